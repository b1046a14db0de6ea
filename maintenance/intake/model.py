"""What every source gives, whatever wrote it: sessions, messages, what hides messages, and what could not be used.

Invariant: every line of a file ends in exactly one count of its `Tally`, so that a message can be refused but never be
dropped without a word. The `key` of a message is the same whenever the same file, or a longer one, is read.

Not for: reading (`lines`, `claude`, `codex`, `records`, `stores`) or writing (`merge`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

SourceName = Literal["hermes-state", "hermes-agent", "claude", "codex"]
Hiding = Literal["rewind", "compact"]
# Problems shown one by one; more of them are counted.
PROBLEMS_KEPT = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class IncomingUsage:
    """What one model cost in one session."""

    model: str  # model name
    provider: str = ""  # billing provider
    base_url: str = ""  # route
    billing_mode: str = ""  # route
    task: str = ""  # "" for the conversation itself
    api_calls: int = 0  # calls made
    input_tokens: int = 0  # tokens sent that no cache held
    output_tokens: int = 0  # tokens received
    cache_read_tokens: int = 0  # tokens that a cache held
    cache_write_tokens: int = 0  # tokens put into a cache
    reasoning_tokens: int = 0  # part of the output
    estimated_cost_usd: float | None = None  # None: not known
    actual_cost_usd: float | None = None  # None: not known
    first_at: float | None = None  # first call
    last_at: float | None = None  # last call


@dataclass(frozen=True, kw_only=True)
class IncomingSession:
    """One session as its source tells it."""

    id: str  # the source's own id
    source: str  # cli, telegram, claude-code, codex, ...
    started_at: float  # epoch seconds UTC; with the id it is the session's identity
    ended_at: float | None = None  # epoch seconds UTC; None while open
    end_reason: str | None = None  # why it ended
    parent_id: str | None = None  # the source's id of the session it came from
    relation: str | None = None  # continuation, branch, delegate, reset, other
    archived: bool = False  # hidden from listings
    pinned: bool = False  # kept by sweeps
    # other columns of `sessions` by their native names, and: system_prompt, tools, model_config (texts), totals (a row
    # of `session_totals`), replaced (a continuation took over); branched_at_seq and branched_at_edit are the source's
    columns: Mapping[str, Any] = field(default_factory=dict)
    usage: tuple[IncomingUsage, ...] = ()  # what it cost, by model
    extra: Mapping[str, Any] = field(default_factory=dict)  # what has no column
    messages: int = 0  # messages counted when the source was looked through


@dataclass(frozen=True, kw_only=True, slots=True)
class IncomingMessage:
    """One message as its source tells it."""

    session_id: str  # the source's id of its session
    key: str  # stable identity within the session; becomes the client key unless the row has one of its own
    role: str  # user, assistant, tool, system, developer
    content: Any  # None, text, list or dict, bytes, number
    at: float  # epoch seconds UTC
    tool_name: str | None = None  # of a tool row
    tool_call_id: str | None = None  # of a tool row
    tool_calls: list[Any] | None = None  # of an assistant row, in OpenAI's shape
    finish_reason: str | None = None  # why the model stopped
    token_count: int | None = None  # tokens of this message
    reasoning: str | None = None  # what the model thought
    platform_message_id: str | None = None  # id in a chat platform
    extra: dict[str, Any] | None = None  # what has no column
    line: int = 0  # where it stands in the file, from 1; 0 in a database
    position: int = 0  # its number in the session there; 0 where it has none


@dataclass(frozen=True, kw_only=True, slots=True)
class Hide:
    """From here on the messages `first_key` to `last_key` of a session are not part of its view."""

    session_id: str  # the source's id
    kind: Hiding  # rewind: hidden everywhere; compact: hidden from context only
    first_key: str  # first hidden message
    last_key: str  # last hidden message
    at: float  # epoch seconds UTC
    number: int = 0  # the source's number of the edit, where edits are rows of their own; 0 where they are not
    first_position: int = 1  # below 1: it begins that far back in what a branch shares with its parent
    last_position: int = 0  # where it ends there, when it hides no message of the branch itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """The compactions of a session, and where its messages are. Comes as often as its messages come in runs."""

    session_id: str  # the source's id
    told: Mapping[str, Any]  # the field `compactions` of its record; empty when it came before
    keys: Mapping[int, str]  # position of each message of the run -> its key


# A session comes as an event where its facts are too large to keep for all sessions at once.
Event = IncomingMessage | Hide | Passes | IncomingSession


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line that could not be used."""

    line: int  # its number, from 1; 0 when it is not a line
    reason: str  # why, as a clause: "is not JSON"


@dataclass(kw_only=True)
class Tally:
    """Where the lines of one file went. Their sum is `lines`."""

    lines: int = 0  # lines of the file, blank ones included
    messages_from: int = 0  # lines that became one message or more
    facts: int = 0  # lines of an export that tell of sessions, or begin or end it
    kept: int = 0  # lines that are no message: kept in the extra field of the message after them, or of the session
    repeated: int = 0  # lines that the file has twice
    blank: int = 0  # empty lines
    unfinished: int = 0  # a last line that is still being written, or was torn: imported when it is whole
    refused: int = 0  # lines that cannot be used; each is a problem
    left_out: Counter[str] = field(default_factory=Counter)  # by type: lines that say what others say as well
    messages: int = 0  # messages made
    problems: list[Problem] = field(default_factory=list)  # the first refused lines, and why

    @property
    def accounted(self) -> int:
        """Lines that were put somewhere; equals `lines`, or a reader is wrong."""
        parts = (self.messages_from, self.facts, self.kept, self.repeated, self.blank, self.unfinished, self.refused)
        return sum(parts) + self.left_out.total()

    def refuse(self, line: int, reason: str) -> None:
        """Count a line that cannot be used."""
        self.refused += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(Problem(line=line, reason=reason))


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What a source holds, found by reading it once without keeping its messages."""

    sessions: tuple[IncomingSession, ...]  # parents before their children; the large facts may come as events
    tally: Tally  # where its lines went
    namespace: str  # what the keys of its messages begin with
    one_by_one: bool  # events of a session come together, so that it can be finished when the next one begins


class Source(Protocol):
    """One file to import from."""

    path: Path  # where it is
    name: SourceName  # what wrote it

    def look(self) -> Looked:
        """Read it once: its sessions, and where its lines go."""

    def events(self) -> Generator[Event, None, None]:
        """Read it again, exactly as far as `look` did: messages in order, what hides them, facts of sessions."""
