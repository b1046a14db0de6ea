"""What a gateway's frames mean here, and which of them count.

Invariant: a frame counts only when it comes from the gateway that serves its thread, names the session that the thread
has now, and, where its provider knows ids of turns, the turn that is active. While a stop is owed only the end of a
turn or of the session counts: what a gateway says of a session that nobody wants any more is never shown. Everything
here is pure.

Not for: the wire (field names, versions) or writing. Letting frames of unknown threads through without their context
was rejected: a reader would have to guess where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, get_args

from hermes_state.errors import InvalidInput, UnsupportedMessage
from hermes_state.outbox.inputs import levels, storable
from hermes_state.turns.records import ItemType, Thread, Turn
from hermes_state.turns.states import ThreadEvent, ThreadStatus, TurnEvent, TurnState

# Longest id in a frame, as in the outbox.
MOST_CHARACTERS = 512


class FrameKind(StrEnum):
    """Types of frames that a gateway sends about a thread."""

    TURN_STARTED = "turn.started"
    TURN_COMPLETED = "turn.completed"  # fields: state (completed, failed), error
    TURN_ABORTED = "turn.aborted"  # fields: reason
    CONTENT_DELTA = "content.delta"  # fields: text, index
    CONTENT_SNAPSHOT = "content.snapshot"  # fields: text, index
    ITEM = "item.updated"  # fields: item_type and what it is about
    ITEM_COMPLETED = "item.completed"
    APPROVAL = "approval.requested"  # fields: request_id, request_type, args, detail, expires_at
    USER_INPUT = "user_input.requested"  # fields: request_id, questions, detail, expires_at
    WITHDRAWN = "request.withdrawn"  # fields: request_id
    SESSION_EXITED = "session.exited"  # fields: exit_kind (graceful, error), error


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame about a thread, as received."""

    kind: FrameKind
    instance_id: str  # whose connection it came on; never what the frame says
    thread_id: str
    session_id: str
    turn_id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("thread_id", "session_id", "turn_id"):
            value = getattr(self, name)
            if value is None and name == "turn_id":
                continue
            if not isinstance(value, str) or len(value) > MOST_CHARACTERS or not storable(value):
                raise InvalidInput(
                    f"{name} of a frame is a text of at most {MOST_CHARACTERS} characters that UTF-8 can say,"
                    f" not {value!r:.80}.",
                    hint="Answer it with invalid-message.", argument=name,
                )
        if not isinstance(self.kind, FrameKind):
            raise InvalidInput(f"The kind of a frame is a FrameKind, not {self.kind!r:.80}.", argument="kind")
        if not isinstance(self.fields, Mapping):
            raise InvalidInput(
                f"The fields of a frame are a mapping, not {type(self.fields).__name__}.",
                hint="Answer it with invalid-message.", argument="fields",
            )
        levels("fields", dict(self.fields), of="a frame")


class Admission(StrEnum):
    """Whether a frame counts, and why not."""

    ADMITTED = "admitted"
    INERT = "inert"  # an item of a type that nobody here knows: it is nothing, not an activity
    UNKNOWN_THREAD = "unknown_thread"
    OTHER_INSTANCE = "other_instance"  # another gateway serves the thread
    OTHER_SESSION = "other_session"
    STOPPING = "stopping"  # a stop is owed
    STOPPED = "stopped"
    NO_TURN = "no_turn"
    OTHER_TURN = "other_turn"


ITEM_TYPES: frozenset[str] = frozenset(get_args(ItemType))
ENDS = frozenset({FrameKind.TURN_COMPLETED, FrameKind.TURN_ABORTED})
ITEMS = frozenset({FrameKind.ITEM, FrameKind.ITEM_COMPLETED})
CONTENT = frozenset({FrameKind.CONTENT_DELTA, FrameKind.CONTENT_SNAPSHOT})
# What a graceful end of a session says of itself. `recoverable` says nothing of it: a plugin sent it with every stop.
GRACEFUL = "graceful"

# Each type of frame and what it does to the active turn; those with a choice are in `turn_event`.
TURN_EVENTS: Mapping[FrameKind, TurnEvent | None] = {
    FrameKind.TURN_STARTED: TurnEvent.ANNOUNCE,
    FrameKind.TURN_COMPLETED: TurnEvent.COMPLETE,
    FrameKind.TURN_ABORTED: TurnEvent.ABORT,
    FrameKind.SESSION_EXITED: TurnEvent.CRASH,
    **dict.fromkeys((*CONTENT, *ITEMS, FrameKind.APPROVAL, FrameKind.USER_INPUT, FrameKind.WITHDRAWN), None),
}


def kind_of(text: object) -> FrameKind:
    """The type of a frame by its name on the wire. Raises `UnsupportedMessage`."""
    try:
        return FrameKind(text)  # type: ignore[arg-type]
    except ValueError:
        raise UnsupportedMessage(
            f"A gateway sent a message of type {text!r:.80}, which is none.",
            hint="Answer it with unsupported-message; negotiate a version that both sides have.", message_type=text,
        ) from None


def turn_event(frame: Frame) -> TurnEvent | None:
    """What a frame does to the active turn of its thread; None for what says something inside a turn."""
    if frame.kind is FrameKind.TURN_COMPLETED and frame.fields.get("state") != "completed":
        return TurnEvent.FAIL  # an end that is not said to be a success is none
    if frame.kind is FrameKind.SESSION_EXITED and frame.fields.get("exit_kind") == GRACEFUL:
        return TurnEvent.EXIT
    return TURN_EVENTS[frame.kind]


def thread_event(frame: Frame) -> ThreadEvent | None:
    """What a frame does to the status of its thread by itself; the ends of turns do it through their turn."""
    if frame.kind is not FrameKind.SESSION_EXITED:
        return None
    return ThreadEvent.EXIT if frame.fields.get("exit_kind") == GRACEFUL else ThreadEvent.CRASH


def judge(thread: Thread | None, turn: Turn | None, frame: Frame) -> Admission:
    """Whether a frame counts. `thread` and `turn` are as stored; `turn` is the active one of the thread."""
    if thread is None:
        return Admission.UNKNOWN_THREAD
    if frame.instance_id != thread.instance_id:
        return Admission.OTHER_INSTANCE
    if frame.session_id != thread.session_id:
        return Admission.OTHER_SESSION
    if frame.kind is FrameKind.SESSION_EXITED or frame.kind is FrameKind.WITHDRAWN:
        # One that names another turn than the active one is a repeat from before that began.
        earlier = thread.turn_ids and turn is not None and frame.turn_id not in (None, turn.turn_id)
        return Admission.OTHER_TURN if earlier else Admission.ADMITTED
    if thread.status is ThreadStatus.STOPPED:
        return Admission.STOPPED
    if frame.kind not in ENDS and (
        thread.status is ThreadStatus.STOP_PENDING or (turn is not None and turn.state is TurnState.STOPPING)
    ):
        return Admission.STOPPING
    if turn is None:
        return Admission.NO_TURN
    if thread.turn_ids and frame.turn_id != turn.turn_id:
        return Admission.OTHER_TURN
    if frame.kind in ITEMS:
        item_type = frame.fields.get("item_type")
        if not isinstance(item_type, str) or item_type not in ITEM_TYPES:
            return Admission.INERT
    return Admission.ADMITTED


def text_fields(frame: Frame) -> dict[str, Any] | None:
    """The step of a text that a content frame is, as `hermes_state.conversation.merge` takes it; None for others.

    A frame that was stored before there were snapshots or an index is an append to part 0.
    """
    if frame.kind not in CONTENT:
        return None
    replaces = frame.kind is FrameKind.CONTENT_SNAPSHOT or frame.fields.get("operation") == "replace"
    return {
        "text": frame.fields.get("text"), "operation": "replace" if replaces else "append",
        "index": frame.fields.get("index") or 0,
    }


def revised(shown: str, text: str, *, cursor: str = "") -> tuple[FrameKind, str] | None:
    """The frame that brings a reader from `shown` to the cumulative `text`: what it adds, or the whole of it.

    `cursor` is a glyph that a model's host shows at the end of a text in progress; it is no part of the text. None when
    nothing changes.
    """
    if cursor and text.endswith(cursor):
        text = text[: -len(cursor)]
    if text == shown:
        return None
    if text.startswith(shown):
        return FrameKind.CONTENT_DELTA, text[len(shown) :]
    return FrameKind.CONTENT_SNAPSHOT, text
