"""The state machine of a turn's reply, and which door a send goes through.

Invariant: every pair of a state and an event has its outcome in the table here, and nothing else decides. A reply is
sealed by its final alone, once; another final later corrects it. What is no final never seals. An abandoned reply is
over. One whose final was given up is owed nothing until the turn says a final again, be it the same.

Not for: rows (see `seals`). A door that looks at the text of a send to find out whether it is the final was rejected:
that is how a commentary became the end of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ReplyState(StrEnum):
    """Where a reply stands. Only the last is terminal: a sealed one may be corrected."""

    STREAMING = "streaming"  # begun; no final was declared
    SEALING = "sealing"  # its final is owed to the platform
    SEALED = "sealed"  # the platform has the final that counts
    RECONCILING = "reconciling"  # the platform has an earlier final, and is owed another one
    GIVEN_UP = "given_up"  # the final that counts was refused, dropped or tried too often: nothing is owed
    ABANDONED = "abandoned"  # it ended without a final


class ReplyEvent(StrEnum):
    """What can happen to it."""

    FINAL = "final"  # the turn says its final
    SAME_FINAL = "same final"  # it says again the one that counts now
    OTHER_FINAL = "other final"  # it says another one
    SHOWN = "shown"  # the platform has the final that counts now
    SHOWN_EARLIER = "shown an earlier one"  # the platform has one that was corrected since
    GIVE_UP = "give up"  # what the final that counts owes ended, and the platform has not got it
    ABANDON = "abandon"


class Refusal(StrEnum):
    """Outcomes that are no state."""

    ENDED = "ended"  # ReplyEnded


S, E = ReplyState, ReplyEvent
TABLE: Mapping[tuple[ReplyState, ReplyEvent], ReplyState | Refusal] = {
    (S.STREAMING, E.FINAL): S.SEALING,
    (S.STREAMING, E.ABANDON): S.ABANDONED,
    (S.SEALING, E.SAME_FINAL): S.SEALING,
    (S.SEALING, E.OTHER_FINAL): S.SEALING,
    (S.SEALING, E.SHOWN): S.SEALED,
    (S.SEALING, E.SHOWN_EARLIER): S.RECONCILING,
    (S.SEALING, E.GIVE_UP): S.GIVEN_UP,
    (S.SEALING, E.ABANDON): Refusal.ENDED,
    (S.SEALED, E.SAME_FINAL): S.SEALED,
    (S.SEALED, E.OTHER_FINAL): S.RECONCILING,
    (S.SEALED, E.SHOWN): S.SEALED,
    (S.SEALED, E.SHOWN_EARLIER): S.SEALED,
    (S.SEALED, E.GIVE_UP): S.SEALED,
    (S.SEALED, E.ABANDON): Refusal.ENDED,
    (S.RECONCILING, E.SAME_FINAL): S.RECONCILING,
    (S.RECONCILING, E.OTHER_FINAL): S.RECONCILING,
    (S.RECONCILING, E.SHOWN): S.SEALED,
    (S.RECONCILING, E.SHOWN_EARLIER): S.RECONCILING,
    (S.RECONCILING, E.GIVE_UP): S.GIVEN_UP,
    (S.RECONCILING, E.ABANDON): Refusal.ENDED,
    (S.GIVEN_UP, E.SAME_FINAL): S.SEALING,
    (S.GIVEN_UP, E.OTHER_FINAL): S.SEALING,
    (S.GIVEN_UP, E.SHOWN): S.SEALED,
    (S.GIVEN_UP, E.SHOWN_EARLIER): S.GIVEN_UP,
    (S.GIVEN_UP, E.GIVE_UP): S.GIVEN_UP,
    (S.GIVEN_UP, E.ABANDON): Refusal.ENDED,
    (S.ABANDONED, E.FINAL): Refusal.ENDED,
    (S.ABANDONED, E.ABANDON): S.ABANDONED,
}
del S, E


class Door(StrEnum):
    """What becomes of a send that somebody makes while a reply may be streamed to the same chat."""

    PASS = "pass"  # it is a message of its own
    SEAL = "seal"  # it is the final of the stream, or one again that was given up: finish it with this text
    RECONCILE_BY_EDIT = "reconcile_by_edit"  # the stream is sealed: edit its message, send nothing


# Of a send that is a turn's final, by the state of the turn's reply; None: none was begun.
FINAL_DOOR: Mapping[ReplyState | None, Door] = {
    None: Door.PASS,
    ReplyState.STREAMING: Door.SEAL,
    ReplyState.SEALING: Door.RECONCILE_BY_EDIT,
    ReplyState.SEALED: Door.RECONCILE_BY_EDIT,
    ReplyState.RECONCILING: Door.RECONCILE_BY_EDIT,
    ReplyState.GIVEN_UP: Door.SEAL,
    ReplyState.ABANDONED: Door.PASS,
}


def door(state: ReplyState | None, *, interim: bool) -> Door:
    """Which way a send goes. `interim`: commentary, a flush at the end of a segment, anything but the turn's final.

    Every way out of a program asks here, or one of them seals a stream with what was no final.
    """
    return Door.PASS if interim else FINAL_DOOR[state]
