"""What callers of `store.messages` get back.

Invariant: records are frozen and hold values only, never a connection: they stay what they were when the row changes
hands. Not for: rows of the tables; those are tuples read by the module that owns the statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

# A field of `extra`: this message repeats the one of that id for the model's sake, after a compression, and is not
# shown to people a second time.
CARRIED_FROM = "carried_from"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message as stored."""

    # insertion id in the whole store, the only order; never used twice
    id: int
    # the session it belongs to
    session_id: str
    # its number within the session, from 1
    seq: int
    # user, assistant, tool, system or developer
    role: str
    # what was given: str, list or dict (JSON), bytes, int or float, None
    content: Any
    # tool calls of an assistant message as given, None when it made none
    tool_calls: list[Any] | None = None
    # of a tool message: which call it answers, and the tool's name
    tool_call_id: str | None = None
    tool_name: str | None = None
    finish_reason: str | None = None
    # tokens of this message as the caller counted them
    token_count: int | None = None
    # the model's reasoning text
    reasoning: str | None = None
    # the chat platform's id of the message, and the caller's idempotency key
    platform_message_id: str | None = None
    client_key: str | None = None
    # wall clock, epoch seconds UTC; not an order
    created_at: float
    # fields that have no column
    extra: dict[str, Any] = field(default_factory=dict)
    # "rewind": taken back; "compact": no longer sent to the model; None: live
    hidden: Literal["rewind", "compact"] | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a history, in insertion order."""

    messages: tuple[Message, ...]
    # pass it as `after` (or as `before` when paging backwards) for the next page; None when there is none
    next: int | None


@dataclass(frozen=True, kw_only=True)
class Window:
    """A message with its neighbours, in insertion order."""

    messages: tuple[Message, ...]
    # position of the asked message in `messages`
    anchor: int
    # True when the session goes on before the first or after the last one shown
    more_before: bool
    more_after: bool


@dataclass(frozen=True, kw_only=True)
class Rewound:
    """What a rewind did."""

    # id of the edit, for `restore`; None when nothing was left to hide
    edit_id: int | None
    # live messages that it hid
    hidden: int
    # the user message it went back to, which is hidden too, so that a client can offer its text again; its preview when
    # the body is damaged
    target: Message
    # newest message that is still visible, None when none is
    head_id: int | None


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """What `compress_rows` did."""

    # messages whose body became a frame, or joined one
    rows: int
    # bytes of those bodies before and after
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True, kw_only=True)
class Unsettled:
    """A stream whose writer is gone or not done: what of it is durable."""

    stream_id: int
    session_id: str
    role: str
    # wall clock, epoch seconds
    started_at: float
    # JSON of the identity of the process that wrote it, and whether that is proven dead (else it may still go on)
    owner: str
    dead: bool
    # the text so far, as `merge` gives it
    content: str
    reasoning: str
