"""The secrets of a credential, in memory, and what of a provider's answer is one.

Invariant: a secret is shown by no repr. What may be stored and what may not is decided here, once: known names are
fields, what the store may keep is listed, and everything else stays with the secrets.

Not for: files (see `secret_file`). A list of what must not be stored was rejected: the next provider has a new name for
a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import LATEST, storable, text
from hermes_state.work.credentials.answers import MOST_OTHERS_BYTES, MOST_SECRET, is_token, keepable, merged, within

# Largest set of extras, as JSON.
MOST_EXTRA_BYTES = 65_536
_SECRET_NAME = re.compile(
    r"token|secret|passw|key|cookie|assertion|credential|authoriz|code|jwt|verifier|bearer|refresh|session|sid$|nonce"
    r"|signature|otp|pin$", re.I,
)
_NO_SECRETS = frozenset({"token_type", "token_endpoint", "error_code", "country_code", "status_code"})
# Names whose texts the store keeps; a text of any other name stays with the secrets, whatever it is called.
_TOLD = frozenset({
    "account", "account_id", "account_type", "audience", "country", "country_code", "created_at", "currency",
    "display_name", "email", "error_code", "expires_at", "expires_in", "family", "id", "interval",
    "issued_at", "issuer", "kind", "label", "locale", "model", "models", "name", "org", "org_id", "organisation",
    "organization", "organization_id", "plan", "plan_type", "product", "region", "scope", "scopes", "status",
    "status_code", "team", "team_id", "tenant", "tenant_id", "tier", "token_endpoint", "token_type", "type", "unit",
    "updated_at", "user", "user_id", "username", "version", "workspace", "workspace_id",
})
# A text shorter than this is none that anybody could use as a secret.
_LEAST_SECRET = 6
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
# In a text of somebody's: what stands behind the name of a secret, and any long run of what tokens are made of.
_NAMED_SECRET = re.compile(
    r"""((?:(?:access|refresh|id|auth|device|user)[_-]?(?:token|code)|api[_-]?key|agent[_-]?key|client[_-]?secret"""
    r"""|secret|password|assertion|authorization|code_verifier)["']?\s*[:=]\s*["']?(?:bearer\s+)?|bearer\s+)"""
    r"""([^\s"',;&}{)]{6,})""", re.I,
)
_LONG_RUN = re.compile(r"(?=[A-Za-z_+=~-]*[0-9])[A-Za-z0-9_+=~-]{24,}")
# Row-level bookkeeping that providers and older programs repeat: no metadata of the credential.
_BOOKKEEPING = frozenset({"provider"})


@dataclass(frozen=True, kw_only=True, repr=False)
class Secrets:
    """What the secret file of one credential holds. Raises `InvalidInput` for what cannot be kept."""

    access_token: str | None = None
    refresh_token: str | None = None  # what gets the next access token
    agent_key: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)  # what else is secret, as JSON
    # Not secret; here so that a rotation that was kept, and whose row was not written, is adopted whole.
    expires_at: float | None = None  # epoch seconds UTC; None: nobody said
    agent_key_expires_at: float | None = None
    extra: Mapping[str, Any] | None = None  # None: the row's stay
    written_at: float | None = None
    # Which row rotates what the file has: store, provider and name; None: nobody said.
    belongs_to: str | None = None

    def __post_init__(self) -> None:
        for name in ("access_token", "refresh_token", "agent_key"):
            value = getattr(self, name)
            if value is not None and not is_token(value):
                raise InvalidInput(  # which says nothing of the value
                    f"{name} of a credential is a text of 1 to {MOST_SECRET:,} characters without NUL.", argument=name
                )
        for name in ("expires_at", "agent_key_expires_at", "written_at"):
            checked_moment(name, getattr(self, name))
        if self.belongs_to is not None:
            text("belongs_to", self.belongs_to, most=4_096, of=" of a credential")
        object.__setattr__(self, "others", _plain("others", self.others))
        if self.extra is not None:
            object.__setattr__(self, "extra", _plain("extra", self.extra))

    def __repr__(self) -> str:
        has = [name for name in ("access_token", "refresh_token", "agent_key") if getattr(self, name) is not None]
        return f"<Secrets with {', '.join(has) or 'no token'}>"

    def texts(self) -> tuple[str, ...]:
        """Every secret text, longest first."""
        found = {one for one in (self.access_token, self.refresh_token, self.agent_key) if one}
        for value in self.others.values():
            found.update(_texts(value))
        return tuple(sorted((one for one in found if len(one) >= _LEAST_SECRET), key=len, reverse=True))

    def without(self, text: str | None, *, most: int = 500) -> str | None:
        """A text of the provider's without any secret in it, at most `most` characters; None stays None.

        Also without what reads like one that is not known here: an answer that could not be parsed has a new token.
        """
        if text is None:
            return None
        said = str(text).encode("utf-8", "replace").decode().replace("\0", "")
        for secret in self.texts():
            said = said.replace(secret, "[secret]")
        said = _NAMED_SECRET.sub(r"\1[secret]", said)
        return _LONG_RUN.sub("[secret]", said)[:most]

    def keeping(self, extra: Mapping[str, Any]) -> Secrets:
        """The same, with other extras."""
        return replace(self, extra=dict(extra))

    def sorted(self, *others: Secrets) -> Secrets:
        """The same, with everything of the extras that may be a secret moved to `others`, and both within their size.

        `others`: secrets that count as known besides its own.
        """
        if self.extra is None:
            return self
        kept, hidden = split(self.extra, self, *others)
        return replace(
            self, extra=within(kept.items(), MOST_EXTRA_BYTES),
            others=merged(self.others, hidden, MOST_OTHERS_BYTES, newest_first=False),
        )


def split(fields: Mapping[str, Any], *secrets: Secrets) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields that are none of ours: what the store may keep, and what stays with the secrets. Raises nothing.

    The store keeps numbers, answers and short texts of names that do not sound like a secret, and longer texts of names
    that are known to be none. A field that has a known secret anywhere in it stays with them.
    """
    known = tuple(secret for one in secrets for secret in one.texts())
    kept: dict[str, Any] = {}
    hidden: dict[str, Any] = {}
    for name, value in keepable(fields).items():
        if name in _BOOKKEEPING or value is None:
            continue
        (hidden if _is_secret(name, value, known) else kept)[name] = value
    return kept, hidden


def mentions(value: str, *secrets: Secrets) -> bool:
    """Whether a text has a known secret in it."""
    return any(secret in value for one in secrets for secret in one.texts())


def checked_moment(name: str, value: Any) -> float | None:
    """A time in epoch seconds UTC, or None. Raises `InvalidInput`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not (
        0 <= value <= LATEST
    ):
        raise InvalidInput(f"{name} is a time in epoch seconds UTC or None, not {value!r:.40}.", argument=name)
    return float(value)


def extra_text(extra: Mapping[str, Any]) -> str:
    """The extras as JSON. Raises `InvalidInput` for what JSON cannot say, and for too much."""
    try:
        said = json_values.dump(dict(extra))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The extras of a credential are JSON: {error}.", argument="extra") from error
    if len(said.encode("utf-8", "surrogatepass")) > MOST_EXTRA_BYTES or not storable(said):
        raise InvalidInput(
            f"The extras of a credential are at most {MOST_EXTRA_BYTES:,} bytes of storable text.", argument="extra"
        )
    return said


def _is_secret(name: str, value: Any, known: tuple[str, ...]) -> bool:
    if not _FIELD_NAME.fullmatch(name) or any(secret in name for secret in known):
        return True
    if name.casefold() not in _NO_SECRETS and _SECRET_NAME.search(name):
        return True
    return _has_secret(name, value, known)


def _has_secret(name: str, value: Any, known: tuple[str, ...]) -> bool:
    if isinstance(value, Mapping):
        return any(_is_secret(inner, one, known) for inner, one in value.items())
    if isinstance(value, list):
        return any(_has_secret(name, one, known) for one in value)
    if not isinstance(value, str):
        return str(value) in known
    if "\0" in value or not storable(value) or any(secret in value for secret in known):
        return True
    return len(value) >= _LEAST_SECRET and name.casefold() not in _TOLD


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [found for one in value.values() for found in _texts(one)]
    if isinstance(value, (list, tuple)):
        return [found for one in value for found in _texts(one)]
    return []


def _plain(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} of a credential is a mapping of names to JSON.", argument=name)
    try:
        found = json_values.load(json_values.dump(dict(value)))
    except (ValueError, RecursionError):
        raise InvalidInput(f"{name} of a credential is JSON.", argument=name) from None  # the cause may quote a secret
    assert isinstance(found, dict)
    return found
