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
from hermes_state.work.credentials.answers import (
    MOST_OTHERS_BYTES,
    MOST_SECRET,
    is_address,
    is_token,
    keepable,
    moment,
    seconds,
    within,
)

if TYPE_CHECKING:
    from hermes_state.work.credentials.grants import Grant

# Codes of RFC 6749 and of providers that say that a grant is over; everything else may pass.
GRANT_IS_OVER = frozenset({
    "invalid_grant", "refresh_token_reused", "refresh_token_expired", "refresh_token_invalidated", "invalid_client",
    "unauthorized_client", "access_denied",
})
# Answers that say themselves that the token was not taken: a client's fault, but for a time that ran out. What a proxy
# says for a server behind it (every 5xx, a redirect) does not tell what that server has done.
_TIMED_OUT = 408
_UNAVAILABLE = 503
_TOKENS = ("access_token", "refresh_token", "agent_key")
_FIELDS = (*_TOKENS, "expires_at", "expires_in", "agent_key_expires_at", "base_url")


@dataclass(frozen=True, kw_only=True, repr=False)
class Rotated:
    """The provider gave a new token. Raises `InvalidInput` only for an access token that is none.

    Every other field that cannot be kept is None here, or left out: the new token is in nobody else's hand.
    """

    access_token: str
    refresh_token: str | None = None  # None: the one that was sent goes on
    expires_at: float | None = None  # epoch seconds UTC; None: nobody said, and what was known is forgotten
    agent_key: str | None = None  # None: the one before goes on
    agent_key_expires_at: float | None = None
    base_url: str | None = None  # None: the one before goes on
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else it said
    others: Mapping[str, Any] = field(default_factory=dict)  # what else it said that is secret
    # it gave a next refresh token that cannot be kept: the one that was sent is over, and there is none
    ended_refresh: bool = False

    def __post_init__(self) -> None:
        if not is_token(self.access_token):
            raise InvalidInput(
                f"access_token of Rotated is a text of 1 to {MOST_SECRET:,} characters without NUL.",
                argument="access_token",
            )
        kept: dict[str, Any] = {
            "expires_at": moment(self.expires_at), "agent_key_expires_at": moment(self.agent_key_expires_at),
            "base_url": self.base_url if is_address(self.base_url) else None, "extra": keepable(self.extra),
            "others": within(keepable(self.others).items(), MOST_OTHERS_BYTES),
        }
        for name in ("refresh_token", "agent_key"):
            kept[name] = getattr(self, name) if is_token(getattr(self, name)) else None
        if self.refresh_token not in (None, "") and kept["refresh_token"] is None:
            kept["ended_refresh"] = True
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, answer: Mapping[str, Any] | None, *, now: float) -> Rotated | None:
        """The answer of a token endpoint, or the row that a plugin gives back; None when it has no access token.

        Names of fields go to their columns, and the rest are extras, of which the store keeps what is no secret;
        `expires_in` counts from `now` (epoch seconds UTC), and an `expires_at` in milliseconds is taken for that.
        """
        if not isinstance(answer, Mapping) or not is_token(answer.get("access_token")):
            return None
        known = {name: answer[name] for name in _FIELDS if answer.get(name) is not None}
        lasts = known.pop("expires_in", None)
        left, until = seconds(lasts), moment(known.get("expires_at"))
        if until is None and left is not None:
            until = moment(now + left)
        known["expires_at"] = until
        rest = {name: value for name, value in answer.items() if name not in _FIELDS}
        if left is not None:
            rest["expires_in"] = lasts
        return cls(extra=rest, **known)

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
    # when the provider lets it be tried again, epoch seconds UTC; None, also for what is no time: after the rest
    reset_at: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reset_at", moment(self.reset_at))


@dataclass(frozen=True, kw_only=True)
class Unsure:
    """It was sent, and nobody knows whether it was taken: no answer, or one that could not be read."""

    reason: str


Verdict = Rotated | Ended | Postponed | Unsure | None
Exchange = Callable[["Grant"], Verdict]


def verdict_of(status: int, answer: Mapping[str, Any] | None, *, now: float) -> Verdict:
    """The verdict that a token endpoint's HTTP answer is, by its status and its `error` code, never by its words.

    Any answer with a token is `Rotated`. An error whose code says that the grant is over is `Ended`. 4xx but 408, and
    503 with a code of the endpoint's own, are `Postponed`: they say that the token was not taken. Everything else (5xx,
    408, a redirect, success without a token) is `Unsure`: a proxy that gave up does not know what its server did.
    """
    new = Rotated.of(answer, now=now)
    if new is not None:
        return new
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        error = error.get("code") or error.get("type")
    code = error if isinstance(error, str) else None
    number = seconds(status) or 0
    reason = f"HTTP {status}" + (f" {code}" if code else "")
    if code in GRANT_IS_OVER and 200 <= number < 500:
        return Ended(reason=f"HTTP {status}", code=code)
    if (400 <= number < 500 and number != _TIMED_OUT) or (number == _UNAVAILABLE and code is not None):
        return Postponed(reason=reason, code=str(status))
    return Unsure(reason=f"{reason} without a token" if 200 <= number < 300 else reason)
