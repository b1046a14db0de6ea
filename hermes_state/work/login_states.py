"""The state machine of a login attempt, who may begin one, and which attempts tell their chat how they ended.

Invariant: every pair of a state that is not terminal and an event has its outcome in the table here, and nothing else
decides. A transfer cannot be undone: from it only completion leads on, and an attempt that was superseded or cancelled
while its server completed it goes there too. Terminal states have no events.

Not for: rows (see `login_rows`), or the sign-in itself. Taking a cancelled attempt for ended at once was rejected: its
worker may be inside a request that the server has already granted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from hermes_state.routing.identity import Source


class LoginState(StrEnum):
    """Where an attempt stands."""

    STARTED = "started"
    CODE_SHOWN = "code_shown"  # its person has link and code
    WAITING = "waiting"  # for the person, at the server
    SUPERSEDING = "superseding"  # a newer one of the same person was begun; its worker has not said its last word
    CANCELLING = "cancelling"  # the process stops; its worker has not said its last word
    TRANSFERRED = "transferred"  # the server gave the account over: what follows is done, if need be at the next boot
    COMPLETED = "completed"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    FAILED = "failed"
    EXPIRED = "expired"  # its code ran out


class LoginEvent(StrEnum):
    """What can happen to it."""

    SHOW_CODE = "show the code"
    WAIT = "wait"
    SUPERSEDE = "supersede"
    CANCEL = "cancel"
    TRANSFER = "transfer"
    COMPLETE = "complete"
    FAIL = "fail"
    EXPIRE = "expire"
    END = "end"  # its worker stopped, or its process is gone, and the server transferred nothing


class Refusal(StrEnum):
    """Outcomes that are no state."""

    ENDED = "ended"  # LoginEnded


LIVE = (LoginState.STARTED, LoginState.CODE_SHOWN, LoginState.WAITING)
ENDING = (LoginState.SUPERSEDING, LoginState.CANCELLING)
OPEN = (*LIVE, *ENDING, LoginState.TRANSFERRED)
TERMINAL = frozenset(LoginState) - set(OPEN)

S, E, NO = LoginState, LoginEvent, Refusal.ENDED
TABLE: Mapping[tuple[LoginState, LoginEvent], LoginState | Refusal] = {
    (S.STARTED, E.SHOW_CODE): S.CODE_SHOWN,
    (S.STARTED, E.WAIT): NO,
    (S.STARTED, E.SUPERSEDE): S.SUPERSEDING,
    (S.STARTED, E.CANCEL): S.CANCELLING,
    (S.STARTED, E.TRANSFER): S.TRANSFERRED,
    (S.STARTED, E.COMPLETE): NO,
    (S.STARTED, E.FAIL): S.FAILED,
    (S.STARTED, E.EXPIRE): S.EXPIRED,
    (S.STARTED, E.END): S.FAILED,
    (S.CODE_SHOWN, E.SHOW_CODE): S.CODE_SHOWN,
    (S.CODE_SHOWN, E.WAIT): S.WAITING,
    (S.CODE_SHOWN, E.SUPERSEDE): S.SUPERSEDING,
    (S.CODE_SHOWN, E.CANCEL): S.CANCELLING,
    (S.CODE_SHOWN, E.TRANSFER): S.TRANSFERRED,
    (S.CODE_SHOWN, E.COMPLETE): NO,
    (S.CODE_SHOWN, E.FAIL): S.FAILED,
    (S.CODE_SHOWN, E.EXPIRE): S.EXPIRED,
    (S.CODE_SHOWN, E.END): S.FAILED,
    (S.WAITING, E.SHOW_CODE): S.CODE_SHOWN,
    (S.WAITING, E.WAIT): S.WAITING,
    (S.WAITING, E.SUPERSEDE): S.SUPERSEDING,
    (S.WAITING, E.CANCEL): S.CANCELLING,
    (S.WAITING, E.TRANSFER): S.TRANSFERRED,
    (S.WAITING, E.COMPLETE): NO,
    (S.WAITING, E.FAIL): S.FAILED,
    (S.WAITING, E.EXPIRE): S.EXPIRED,
    (S.WAITING, E.END): S.FAILED,
    (S.SUPERSEDING, E.SHOW_CODE): NO,
    (S.SUPERSEDING, E.WAIT): NO,
    (S.SUPERSEDING, E.SUPERSEDE): S.SUPERSEDING,
    (S.SUPERSEDING, E.CANCEL): S.CANCELLING,
    (S.SUPERSEDING, E.TRANSFER): S.TRANSFERRED,
    (S.SUPERSEDING, E.COMPLETE): NO,
    (S.SUPERSEDING, E.FAIL): S.SUPERSEDED,
    (S.SUPERSEDING, E.EXPIRE): S.SUPERSEDED,
    (S.SUPERSEDING, E.END): S.SUPERSEDED,
    (S.CANCELLING, E.SHOW_CODE): NO,
    (S.CANCELLING, E.WAIT): NO,
    (S.CANCELLING, E.SUPERSEDE): S.CANCELLING,
    (S.CANCELLING, E.CANCEL): S.CANCELLING,
    (S.CANCELLING, E.TRANSFER): S.TRANSFERRED,
    (S.CANCELLING, E.COMPLETE): NO,
    (S.CANCELLING, E.FAIL): S.CANCELLED,
    (S.CANCELLING, E.EXPIRE): S.CANCELLED,
    (S.CANCELLING, E.END): S.CANCELLED,
    (S.TRANSFERRED, E.SHOW_CODE): NO,
    (S.TRANSFERRED, E.WAIT): NO,
    (S.TRANSFERRED, E.SUPERSEDE): S.TRANSFERRED,
    (S.TRANSFERRED, E.CANCEL): S.TRANSFERRED,
    (S.TRANSFERRED, E.TRANSFER): S.TRANSFERRED,
    (S.TRANSFERRED, E.COMPLETE): S.COMPLETED,
    (S.TRANSFERRED, E.FAIL): NO,
    (S.TRANSFERRED, E.EXPIRE): NO,
    (S.TRANSFERRED, E.END): NO,
}
del S, E, NO


class Failure(StrEnum):
    """Why an attempt failed, in one word: a text of the server's could have the code in it."""

    DECLINED = "declined"  # by the person
    NETWORK = "network"
    SERVER = "server"  # it answered with an error
    INTERRUPTED = "interrupted"  # its process ended, and the server transferred nothing
    SIGNED_IN = "signed_in"  # an earlier attempt was transferred meanwhile
    OTHER = "other"


class LoginRefusal(StrEnum):
    """Why no attempt is begun."""

    NOT_A_DM = "not_a_dm"  # a link that is posted there is published
    NOT_ALLOWED = "not_allowed"  # there is a list of administrators, and the person is not on it
    BUSY = "busy"  # somebody else's attempt waits, in this home
    BUSY_ELSEWHERE = "busy_elsewhere"  # an attempt of this process waits, in another home
    TRANSFERRED = "transferred"  # an attempt was granted and is being completed


# Where a conversation of two people is so called although it is a topic, a channel or another program; the seed's list.
PUBLISHING_PLATFORMS = frozenset({"ntfy", "raft", "a2a"})
DM_TYPES = frozenset({"dm", "private"})


def refusal(source: Source, admins: Collection[str] | None) -> LoginRefusal | None:
    """Why a sign-in may not be begun from there. `admins`: user ids; None or empty: everybody who may write may."""
    if (
        source.chat_type not in DM_TYPES or not source.chat_id or source.platform.lower() in PUBLISHING_PLATFORMS
    ):
        return LoginRefusal.NOT_A_DM
    if admins and source.user_id not in admins:
        return LoginRefusal.NOT_ALLOWED
    return None
