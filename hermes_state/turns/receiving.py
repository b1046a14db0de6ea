"""Taking one frame of a gateway: what it changes, in one transaction.

Invariant: whether a frame counts is judged again inside the transaction that it changes. An end of a turn that is not
the active one is counted and changes nothing. When a session ends, its stop is done, its turn ends, and nobody waits
for an answer any more.

Not for: text, which is judged by a read and stored with its message. Taking a frame for granted because its connection
is authenticated was rejected: a gateway that was left behind goes on talking about threads that have another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import LATEST
from hermes_state.turns import frames, history, interactions, settling, stops, threads
from hermes_state.turns.frames import Admission, Frame, FrameKind
from hermes_state.turns.records import (
    Interaction,
    Item,
    Thread,
    Turn,
    active_turn,
    find_thread,
    find_turn,
    is_id,
    need_thread,
    told,
)
from hermes_state.turns.states import InteractionEvent, StopEvent

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# Longest status text of an item; what a plugin sends at most, by the facts (1.14).
MOST_STATUS_CHARACTERS = 2000
# Questions in one request, and choices in one question.
MOST_QUESTIONS = 16


@dataclass(frozen=True, kw_only=True)
class Received:
    """What a frame did."""

    admission: Admission  # why it did nothing, unless admitted
    turn: Turn | None = None  # the turn that it was for, as it stands now
    interaction: Interaction | None = None  # the question that it asks, or takes back
    item: Item | None = None  # the item that it added


def safe(sanitise: interactions.Sanitise, frame: Frame) -> dict[str, Any]:
    """What of a frame's fields may be stored of an item or question. Call it before the transaction."""
    fields = frame.fields
    if frame.kind in frames.ITEMS:
        if fields.get("item_type") == "status_text":
            return {"text": told(fields.get("text", ""), MOST_STATUS_CHARACTERS)}
        return sanitise(str(fields.get("item_type")), fields)
    if frame.kind is FrameKind.APPROVAL:
        return sanitise(str(fields.get("request_type")), fields.get("args"))
    if frame.kind is FrameKind.USER_INPUT:
        return {"questions": _form(fields.get("questions"))}
    return {}


def _form(given: object) -> list[dict[str, Any]]:
    """The questions of a form, cut as far as is needed to store them: a form is never too large, only shorter."""
    for most in (MOST_STATUS_CHARACTERS, 1000, 500, 200, 100, 50, 20, 8, 2):
        kept = _questions(given, most)
        if _size(kept) <= interactions.MOST_BYTES:
            break
    while _size(kept) > interactions.MOST_BYTES:
        kept.pop()
    return kept


def _size(kept: list[dict[str, Any]]) -> int:
    return len(json.dumps(kept, ensure_ascii=False).encode())


def _questions(given: object, most: int) -> list[dict[str, Any]]:
    """Of each question its texts, and of each choice its texts: nothing else is shown, so nothing else is stored.

    `most`: characters of a text; the id, which its answer is found by, is kept as it is known everywhere.
    """
    if not isinstance(given, (list, tuple)):
        return []
    kept = []
    for one in given[:MOST_QUESTIONS]:
        if not isinstance(one, Mapping):
            continue
        question = _texts(one, ("id",), MOST_STATUS_CHARACTERS) | _texts(one, ("header", "question", "text"), most)
        options = one.get("options")
        if isinstance(options, (list, tuple)):
            question["options"] = [
                _texts(option, ("label", "description"), most) for option in options[:MOST_QUESTIONS]
                if isinstance(option, Mapping)
            ]
        if isinstance(one.get("multiple"), bool):
            question["multiple"] = one["multiple"]
        kept.append(question)
    return kept


def _texts(given: Mapping[Any, Any], names: tuple[str, ...], most: int) -> dict[str, Any]:
    return {name: told(given[name], most) for name in names if isinstance(given.get(name), str)}


def _request_id(fields: Mapping[str, Any]) -> str:
    """The id of a question. Raises `InvalidInput` for what is none: cut short, two would be one."""
    given = fields.get("request_id")
    if isinstance(given, int) and not isinstance(given, bool):
        given = told(given)
    if not is_id(given):
        raise InvalidInput(
            f"request_id of a frame is a text of 1 to 512 characters without NUL that UTF-8 can say, not"
            f" {told(given, 80)!r}.",
            hint="Answer it with invalid-message.", argument="request_id",
        )
    assert isinstance(given, str)
    return given


def take(tx: Transaction, frame: Frame, kept: Mapping[str, Any], *, boot_id: str | None, at: float) -> Received:
    """Take a frame. `kept` is what `safe` left of it. Raises `InvalidInput` for a question without an id."""
    thread, turn = find_thread(tx, frame.thread_id), active_turn(tx, frame.thread_id)
    admission = frames.judge(thread, turn, frame)
    if admission is not Admission.ADMITTED or thread is None:
        if thread is not None and frame.kind in frames.ENDS and frame.instance_id == thread.instance_id:
            threads.reject(tx, thread.thread_id)
        return Received(admission=admission)
    fields = frame.fields
    if frame.kind is FrameKind.SESSION_EXITED:
        return _exited(tx, thread, turn, frame, at=at)
    if frame.kind is FrameKind.WITHDRAWN:
        taken = interactions.withdraw(
            tx, thread, _request_id(fields), boot_id=boot_id, turn_id=frame.turn_id, at=at
        )
        return Received(admission=admission, turn=turn, interaction=taken)
    assert turn is not None  # nothing else is admitted without one
    event = frames.turn_event(frame)
    if event is not None:
        why = fields.get("error") or fields.get("reason")
        settling.step(tx, thread, turn, event, at=at, error=None if why is None else told(why))
        return Received(admission=admission, turn=find_turn(tx, turn.turn_id))
    if frame.kind in frames.ITEMS:
        item = history.add_item(tx, turn, str(fields["item_type"]), kept, at=at)
        return Received(admission=admission, turn=find_turn(tx, turn.turn_id), item=item)
    questions = kept.get("questions", ()) if frame.kind is FrameKind.USER_INPUT else ()
    asked = interactions.ask(
        tx, thread, request_id=_request_id(fields), boot_id=boot_id,
        turn_id=turn.turn_id,
        kind="approval" if frame.kind is FrameKind.APPROVAL else "user_input",
        request_type=told(fields.get("request_type") or frame.kind, frames.MOST_CHARACTERS),
        args=kept if frame.kind is FrameKind.APPROVAL else {}, at=at,
        detail=None if fields.get("detail") is None else told(fields["detail"]),
        questions=questions, expires_at=_time(fields.get("expires_at")),
    )
    return Received(admission=admission, turn=turn, interaction=asked)


def _time(given: object) -> float | None:
    """A time that a gateway sent, None for what is none, or is after the year 9999."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not -LATEST <= given <= LATEST:
        return None
    return float(given)


def _exited(tx: Transaction, thread: Thread, turn: Turn | None, frame: Frame, *, at: float) -> Received:
    why = told(frame.fields.get("error") or "its session ended")
    for (stop_id,) in tx.rows(
        "SELECT stop_id FROM stops WHERE thread_id = ? AND instance_id = ? AND session_id = ? AND state = 'pending'",
        (thread.thread_id, thread.instance_id, thread.session_id),
    ):
        stops.settle(tx, stop_id, StopEvent.EXITED, at=at, outcome="the session had ended")
    event, moved = frames.turn_event(frame), frames.thread_event(frame)
    assert event is not None and moved is not None  # the table has both for an exit
    settling.end(tx, thread.thread_id, event, at=at, error=why)
    threads.move(tx, need_thread(tx, thread.thread_id), moved, at=at, error=why)
    interactions.end_of_turn(tx, thread.thread_id, None, InteractionEvent.TURN_ENDED, why, at=at)
    return Received(admission=Admission.ADMITTED, turn=None if turn is None else find_turn(tx, turn.turn_id))
