"""What an exchange says of the one token that it sent: one verdict.

Invariant: a new token is had only when it is said. What says nothing (None, an empty answer) has not succeeded; what
leaves open whether the provider took the token is `Unsure`, and a token that works once is not sent again after that.

Not for: sending. Judging exceptions by their text was rejected: a caller knows what its own client raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.work.credentials.secrets import Secrets, checked_moment, extra_text, split

if TYPE_CHECKING:
    from hermes_state.work.credentials.grants import Grant

# Codes of RFC 6749 and of providers that say that a grant is over; everything else may pass.
GRANT_IS_OVER = frozenset({
    "invalid_grant", "refresh_token_reused", "refresh_token_expired", "refresh_token_invalidated", "invalid_client",
    "unauthorized_client", "access_denied",
})
_FIELDS = ("access_token", "refresh_token", "agent_key", "expires_at", "expires_in", "agent_key_expires_at", "base_url")
# A number above this is in milliseconds: the year 5138 in seconds, 1973 in milliseconds.
_MILLISECONDS = 1e11


@dataclass(frozen=True, kw_only=True, repr=False)
class Rotated:
    """The provider gave a new token."""

    access_token: str
    refresh_token: str | None = None  # None: the one that was sent goes on
    expires_at: float | None = None  # epoch seconds UTC; None: nobody said, and what was known is forgotten
    agent_key: str | None = None  # None: the one before goes on
    agent_key_expires_at: float | None = None
    base_url: str | None = None  # None: the one before goes on
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else it said that is not secret
    others: Mapping[str, Any] = field(default_factory=dict)  # what else it said that is

    def __post_init__(self) -> None:
        self.secrets()
        extra_text(self.extra)
        if self.base_url is not None:
            text("base_url", self.base_url, most=2_048, of=" of Rotated")

    @classmethod
    def of(cls, answer: Mapping[str, Any] | None, *, now: float) -> Rotated | None:
        """The answer of a token endpoint, or the row that a plugin gives back; None when it has no access token.

        Names of fields go to their columns, what sounds like a secret stays with the secrets, and the rest are extras;
        `expires_in` counts from `now` (epoch seconds UTC), and an `expires_at` in milliseconds is taken for that.
        """
        if not isinstance(answer, Mapping) or not answer.get("access_token"):
            return None
        known = {name: answer[name] for name in _FIELDS if answer.get(name) is not None}
        lasts = known.pop("expires_in", None)
        for name in ("expires_at", "agent_key_expires_at"):
            if name in known:
                known[name] = _moment(name, known[name])
        if lasts is not None and "expires_at" not in known:
            known["expires_at"] = now + _number("expires_in", lasts)
        tokens = {name: known.get(name) for name in ("access_token", "refresh_token", "agent_key")}
        rest = {str(name): value for name, value in answer.items() if name not in _FIELDS}
        if lasts is not None:
            rest["expires_in"] = lasts
        extra, others = split(rest, Secrets(**tokens))  # type: ignore[arg-type]
        return cls(extra=extra, others=others, **known)

    def secrets(self) -> Secrets:
        """What of it goes into the secret file. Raises `InvalidInput`."""
        return Secrets(
            access_token=self.access_token, refresh_token=self.refresh_token, agent_key=self.agent_key,
            others=self.others, expires_at=self.expires_at, agent_key_expires_at=self.agent_key_expires_at,
            extra=self.extra,
        )

    def __repr__(self) -> str:
        return f"<Rotated until {self.expires_at}>"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The provider says that the grant is over: a person has to log in anew."""

    reason: str
    code: str | None = None  # the provider's


@dataclass(frozen=True, kw_only=True)
class Postponed:
    """The provider answered, and did not take the token; or it certainly was not sent. Tried again after a rest."""

    reason: str
    code: str | None = None  # an HTTP status or the provider's code
    reset_at: float | None = None  # when the provider lets it be tried again, epoch seconds UTC; None: after the rest


@dataclass(frozen=True, kw_only=True)
class Unsure:
    """It was sent, and nobody knows whether it was taken: no answer, or one that could not be read."""

    reason: str


Verdict = Rotated | Ended | Postponed | Unsure | None
Exchange = Callable[["Grant"], Verdict]


def verdict_of(status: int, answer: Mapping[str, Any] | None, *, now: float) -> Verdict:
    """The verdict that a token endpoint's HTTP answer is, by its status and its `error` code, never by its words.

    2xx with a token is `Rotated`, without one `Unsure`. An error whose code says that the grant is over is `Ended`;
    every other answer is `Postponed`.
    """
    if 200 <= status < 300:
        return Rotated.of(answer, now=now) or Unsure(reason=f"HTTP {status} without a token")
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        error = error.get("code") or error.get("type")
    code = error if isinstance(error, str) else None
    if code in GRANT_IS_OVER and status < 500:
        return Ended(reason=f"HTTP {status}", code=code)
    return Postponed(reason=f"HTTP {status}" + (f" {code}" if code else ""), code=str(status))


def _moment(name: str, value: Any) -> float | None:
    number = _number(name, value)
    return checked_moment(name, number / 1000 if number > _MILLISECONDS else number)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} of a token endpoint's answer is a number of seconds.", argument=name) from None
