"""The secrets of a credential, in memory, and what of a provider's answer is one.

Invariant: a secret is shown by no repr. What may be stored and what may not is decided here, once: known names are
fields, what sounds like a secret stays with the secrets, the rest is an extra that the store keeps.

Not for: files (see `secret_file`). Keeping every field that we do not know in the store was rejected: an `id_token` is
one of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import LATEST, storable

# Longest token that is taken: signed ones with many claims have some kilobytes.
MOST_SECRET = 65_536
# Largest set of extras, as JSON.
MOST_EXTRA_BYTES = 65_536
_SECRET_NAME = re.compile(r"token|secret|passw|key|cookie|assertion|credential|authoriz|code|jwt|verifier", re.I)
_NO_SECRETS = frozenset({"token_type", "token_endpoint", "error_code", "country_code", "status_code"})
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

    def __post_init__(self) -> None:
        for name in ("access_token", "refresh_token", "agent_key"):
            value = getattr(self, name)
            if value is not None and (
                not isinstance(value, str) or not 0 < len(value) <= MOST_SECRET or "\0" in value or not storable(value)
            ):
                raise InvalidInput(  # which says nothing of the value
                    f"{name} of a credential is a text of 1 to {MOST_SECRET:,} characters without NUL.", argument=name
                )
        for name in ("expires_at", "agent_key_expires_at", "written_at"):
            checked_moment(name, getattr(self, name))
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
        return tuple(sorted((one for one in found if len(one) >= 6), key=len, reverse=True))

    def without(self, text: str | None, *, most: int = 500) -> str | None:
        """A text of the provider's without any secret in it, at most `most` characters; None stays None."""
        if text is None:
            return None
        said = str(text).encode("utf-8", "replace").decode().replace("\0", "")
        for secret in self.texts():
            said = said.replace(secret, "[secret]")
        return said[:most]

    def keeping(self, extra: Mapping[str, Any]) -> Secrets:
        """The same, with the extras that the row has."""
        return replace(self, extra=dict(extra))


def split(fields: Mapping[str, Any], secrets: Secrets) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields that are none of ours: what the store may keep, and what stays with the secrets.

    A value that has a known secret anywhere in it, and a name that sounds like one, at any depth, stay with them.
    """
    kept: dict[str, Any] = {}
    hidden: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _BOOKKEEPING or value is None:
            continue
        (hidden if _is_secret(name, value, secrets.texts()) else kept)[name] = value
    return kept, hidden


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
        text = json_values.dump(dict(extra))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The extras of a credential are JSON: {error}.", argument="extra") from error
    if len(text.encode("utf-8", "surrogatepass")) > MOST_EXTRA_BYTES or not storable(text):
        raise InvalidInput(
            f"The extras of a credential are at most {MOST_EXTRA_BYTES:,} bytes of storable text.", argument="extra"
        )
    return text


def _is_secret(name: str, value: Any, known: tuple[str, ...]) -> bool:
    if name not in _NO_SECRETS and _SECRET_NAME.search(name):
        return True
    if isinstance(value, Mapping):
        return any(_is_secret(str(inner), one, known) for inner, one in value.items())
    if isinstance(value, (list, tuple)):
        return any(_is_secret("", one, known) for one in value)
    return isinstance(value, str) and any(secret in value for secret in known)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
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
