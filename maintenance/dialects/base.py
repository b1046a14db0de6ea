"""What a store's tables mean, said once for every command.

Invariant: a command never writes SQL about sessions or messages itself; it asks the dialect of the file. A dialect
reads through a `Reader` and changes rows only inside a `Transaction` that its caller opened. Every read is bounded: a
page, a stream, or one small fact a session.

Not for: opening files (`gate`), choosing sessions (`selection`), deciding what may be removed (`lineage`, `removal`).
One class a release was rejected: files carry columns of several releases at once, so a dialect looks at the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# More rows than any session has.
LARGE = 2**31

TriggerState = Literal["present", "missing", "noop"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFacts:
    """The few facts of a session that sorting, lineage and removal need. Small: a store may have 100,000 of them."""

    id: str  # text id; bytes that are not UTF-8 are surrogate-escaped
    source: str  # cli, telegram, cron, ...; "" when unreadable
    parent_id: str | None  # the session it came from
    started_at: float | None  # epoch seconds UTC; None when not a time
    ended_at: float | None  # epoch seconds UTC; None when open, or ended at an unreadable time
    ended: bool  # True once something ended it, even at an unreadable time
    last_activity_at: float | None  # newest of start, end, activity stamp and, while it is open, newest message
    message_count: int  # the file's own counter
    archived: bool  # hidden from listings by the user or a sweep (column or mark)
    pinned: bool  # to be kept by every sweep (column or mark)
    hidden: bool  # special row that no listing shows and no sweep takes
    delegate: bool  # carries a delegate marker: work that another session handed out


@dataclass(frozen=True, kw_only=True)
class SessionRow:
    """One session with everything that filters and pages show, decoded."""

    facts: SessionFacts  # the sortable part
    title: str | None  # the user's or the model's title
    model: str | None  # model name
    end_reason: str | None  # why it ended
    display_name: str | None  # chat name of a gateway peer
    session_key: str | None  # gateway routing key
    user_id: str | None  # gateway user
    chat_id: str | None  # gateway chat
    chat_type: str | None  # dm, group, channel, ...
    thread_id: str | None  # gateway thread
    cwd: str | None  # working directory
    branch: str | None  # git branch
    repo_root: str | None  # git work tree
    provider: str | None  # billing provider
    profile: str | None  # profile name recorded in the row
    tool_call_count: int  # the file's own counter
    input_tokens: int  # as accounted by the file
    output_tokens: int  # as accounted by the file
    cost_usd: float | None  # actual cost, else the estimate
    auto_archived: bool  # archived by a sweep rather than by a person
    branched_from: str | None  # id that a branch marker names
    delegate_from: str | None  # id that a delegate marker names
    reset_from: str | None  # id that a reset marker names
    never_active: bool  # a gateway session that never had a turn: it has a routing key and no message

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def workspace(self) -> str | None:
        """The project a session worked in: its git work tree, else its directory."""
        return self.repo_root or self.cwd


@dataclass(frozen=True, kw_only=True, slots=True)
class LineageRow:
    """A session that has a parent, is one, or carries a lineage marker."""

    id: str  # session id
    parent_id: str | None  # parent link, possibly to a session that is gone
    source: str  # tool children never continue a conversation
    started_at: float | None  # tie-break of the tip walk
    ended_at: float | None  # rule for old branches
    ended: bool  # live children are preferred as a tip
    end_reason: str | None  # 'compression' on a parent makes its child a continuation
    session_key: str | None  # rule for old resets
    last_activity_at: float | None  # tie-break of the tip walk
    branched_from: str | None  # marker
    delegate_from: str | None  # marker
    reset_from: str | None  # marker
    relation: str | None = None  # what the file itself says it is to its parent; None where rules have to tell


@dataclass(frozen=True, kw_only=True)
class MessageRow:
    """One message, decoded. `content` is text, a Blob, a number, a list or dict (structured content), or None."""

    id: int  # insertion id: the only order
    session_id: str  # session
    role: str  # user, assistant, tool, system
    content: Any  # decoded, see above
    content_bytes: int  # size as stored
    tool_name: str | None  # for tool rows
    tool_calls: str | None  # raw JSON text
    timestamp: float | None  # epoch seconds UTC; None when not a time
    live: bool  # part of the model's context; a NULL flag of an old file is live
    compacted: bool  # kept for display after compaction


@dataclass(frozen=True, kw_only=True)
class SearchIndex:
    """One full-text index of the file."""

    name: str  # virtual table
    layout: Literal["inline", "external", "contentless"]  # where it keeps the text
    tokenizer: str  # tokenizer clause as declared, "unicode61" when none is
    columns: tuple[str, ...]  # indexed columns
    content_source: str | None  # table or view of an external layout
    triggers: Mapping[str, TriggerState]  # "<name>_insert|_delete|_update" -> state


@dataclass(frozen=True, kw_only=True)
class UsageRow:
    """What one model cost in one session."""

    model: str  # model name
    provider: str  # billing provider
    task: str  # "" for the conversation itself, else vision, compression, ...
    api_calls: int  # calls made
    input_tokens: int  # accounted tokens
    output_tokens: int  # accounted tokens
    cost_usd: float | None  # actual cost, else the estimate


@dataclass(frozen=True, kw_only=True)
class DeleteCounts:
    """What one delete took away."""

    sessions: int = 0  # session rows
    messages: int = 0  # message rows
    others: Mapping[str, int] = field(default_factory=dict)  # table -> rows of other tables
    detached: int = 0  # kept children whose parent link was cleared

    def __add__(self, other: DeleteCounts) -> DeleteCounts:
        tables = {*self.others, *other.others}
        return DeleteCounts(
            sessions=self.sessions + other.sessions,
            messages=self.messages + other.messages,
            others={table: self.others.get(table, 0) + other.others.get(table, 0) for table in sorted(tables)},
            detached=self.detached + other.detached,
        )


@dataclass(frozen=True, kw_only=True)
class StoreCounts:
    """Whole-store figures that need one pass over sessions and an index."""

    sessions: int  # session rows
    messages: int  # message rows
    by_source: tuple[tuple[str, int, int], ...]  # (source, sessions, messages by the sessions' counters), most first
    ended: int  # sessions that ended
    archived: int  # by column
    pinned: int  # by column
    oldest_started_at: float | None  # first readable start
    newest_activity_at: float | None  # last readable activity


@dataclass(frozen=True, kw_only=True)
class ContentSizes:
    """What structured content (images, tool parts) takes in a store."""

    structured_messages: int  # messages with structured content
    structured_bytes: int  # bytes of it
    structured_repeated_bytes: int  # bytes of it that another message holds as well, byte for byte


@dataclass(frozen=True, kw_only=True)
class ChannelSize:
    """What one kind of content takes in a store."""

    name: str  # such as "tool content", "reasoning"
    bytes: int  # as the file keeps it, compressed where it is
    share: float  # of all kinds together, 0 to 1
    exact: bool  # False when told from a sample


@dataclass(frozen=True, kw_only=True)
class StoreShape:
    """Which tables and columns the file has."""

    schema_version: int | None  # as the file states it
    session_columns: tuple[str, ...]  # in the file's order
    message_columns: tuple[str, ...]  # in the file's order
    tables: frozenset[str]  # ordinary tables, search shadow tables included
    unknown_tables: tuple[str, ...]  # tables no release we know has; always kept
    search_storage_version: int | None  # what the file states about its search layout


@dataclass(frozen=True, kw_only=True)
class Deed:
    """Who changes something, when and why; for files that keep that themselves."""

    at: float  # epoch seconds UTC
    actor: str  # program and process
    reason: str  # why, in words


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A WHERE clause over the expressions of `Dialect.fields`."""

    sql: str = "1"  # condition
    params: tuple[Any, ...] = ()  # its bound values


class Dialect(Protocol):
    """The meaning of one file's tables. Made by `dialect_of`; holds no connection."""

    name: str
    shape: StoreShape

    @property
    def is_native(self) -> bool:
        """Whether the file is a store of this project: it works beside others by default, and its index is apart."""

    @property
    def fields(self) -> Mapping[str, str]:
        """SQL expressions by name for `Condition`: text id source title model end_reason cwd repo_root branch provider
        user_id chat_id chat_type session_key; numbers started_at ended_at last_activity_at message_count
        tool_call_count tokens cost; 0 or 1: ended archived pinned hidden never_active. Over the table alias `s`."""

    @property
    def has_archived(self) -> bool:
        """Whether the file has a column for archived; otherwise it is a mark."""

    @property
    def has_pinned(self) -> bool:
        """Whether the file has a column for pinned; otherwise it is a mark."""

    # reading
    def facts(self, reader: Reader, condition: Condition = ...) -> Iterator[SessionFacts]:
        """Matching sessions, last activity first, then newest inserted."""

    def sessions(self, reader: Reader, ids: Sequence[str]) -> dict[str, SessionRow]:
        """The sessions with these ids; an id that does not exist is absent."""

    def lineage(self, reader: Reader) -> list[LineageRow]:
        """Every session that takes part in a lineage."""

    def children(self, reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Sessions whose parent link names one of `ids`, by parent."""

    def unnamed_sessions(self, reader: Reader) -> int:
        """Session rows whose id is not text: they are counted and cannot be chosen."""

    def ids_with_prefix(self, reader: Reader, prefix: str, limit: int = -1) -> list[str]:
        """Ids that start with `prefix`, literally; all of them without a limit."""

    def ids_with_title(self, reader: Reader, title: str, limit: int) -> list[str]:
        """Ids of sessions titled `title`, or `title #N` with the highest N first."""

    def previews(self, reader: Reader, ids: Sequence[str], width: int = 60) -> dict[str, str]:
        """First words of the first live user message, by session; a session without one is absent."""

    def message_ids(self, reader: Reader, session_id: str, *, first: int = 0, last: int = 0) -> list[int]:
        """Insertion ids in order: all of them, or only the `first` and `last` few."""

    def messages(self, reader: Reader, message_ids: Sequence[int]) -> Iterator[MessageRow]:
        """These messages, in order of id, streamed."""

    def newest_message(self, reader: Reader) -> int:
        """The highest message id of the store, 0 when it has none; ids are never used twice."""

    def messages_after(self, reader: Reader, message_id: int) -> list[tuple[int, str]]:
        """Id and session of each message with a higher id, in order."""

    def message_counts(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Rows by session, counted in the table; a session without messages has 0."""

    def message_bytes(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Bytes of message text by session (content, tool calls, reasoning)."""

    def compaction_count(self, reader: Reader, ids: Sequence[str]) -> int:
        """Compactions of these sessions, of any state; 0 where a file keeps none as rows of their own."""

    def chat_count(self, reader: Reader, ids: Sequence[str]) -> int:
        """Chats whose next message would go on in these sessions; 0 where a file keeps no routing of ours."""

    def job_count(self, reader: Reader, ids: Sequence[str]) -> int:
        """Cron jobs whose runs go on in these sessions; 0 where a file keeps no cron of ours."""

    def stored_bytes(self, reader: Reader) -> dict[str, int]:
        """About what the messages of each session take in the file, compressed where they are; one pass over all."""

    def role_counts(self, reader: Reader, session_id: str) -> dict[str, int]:
        """Messages of one session by role."""

    def usage(self, reader: Reader, session_id: str) -> list[UsageRow]:
        """Per-model usage where the file records it."""

    def session_count(self, reader: Reader) -> int:
        """Session rows of the whole store."""

    def counts(self, reader: Reader) -> StoreCounts:
        """Whole-store figures."""

    def channels(self, reader: Reader) -> tuple[ChannelSize, ...]:
        """What each kind of content takes, at a cost that does not grow with the file; empty if not told."""

    def content_sizes(self, reader: Reader) -> ContentSizes:
        """What structured content takes; reads every message."""

    def session_record(self, reader: Reader, session_id: str) -> dict[str, Any] | None:
        """Every column of one session, for export."""

    def message_records(self, reader: Reader, session_id: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Every column of one session's messages with an id above `after`, in order, decoded, for export; streamed."""

    def usage_records(self, reader: Reader, session_id: str) -> list[dict[str, Any]]:
        """Every column of one session's usage rows, for export; none where the file records none."""

    def search_indexes(self, reader: Reader) -> tuple[SearchIndex, ...]:
        """The file's full-text indexes."""

    def guards(self, reader: Reader, ids: Sequence[str], now: float) -> dict[str, str]:
        """Sessions that a live lease, a live lock or a ledger row protects, each with the reason in words."""

    # changing, inside the caller's transaction
    def delete_sessions(
        self, tx: Transaction, ids: Sequence[str], deed: Deed | None = None, *, limit: int = LARGE
    ) -> DeleteCounts:
        """Delete sessions with all that belongs to them. Raises Refused when a table we do not know forbids it.

        `deed` goes into the file's own ledger of deletions where it has one. A dialect that `drains` takes out of sight
        all of them and removes `limit` message rows; the rest is left to `drain`.
        """

    @property
    def drains(self) -> bool:
        """Whether a session of any size goes in one short transaction, and its rows in later ones."""

    def left_behind(self, reader: Reader) -> bool:
        """Whether there is something for `drain`."""

    def drain(self, tx: Transaction, limit: int) -> bool:
        """Remove up to `limit` rows that deletes left behind, killed runs' too; True when there is more to do."""

    def delete_messages(self, tx: Transaction, session_id: str, limit: int, deed: Deed | None = None) -> int:
        """Delete up to `limit` messages of one session, oldest first: for a session too large for one transaction."""

    def set_archived(
        self, tx: Transaction, ids: Sequence[str], archived: bool, deed: Deed | None = None
    ) -> int:
        """Set or clear archived on sessions; returns the rows that changed."""

    def set_pinned(
        self, tx: Transaction, ids: Sequence[str], pinned: bool, deed: Deed | None = None
    ) -> int:
        """Set or clear pinned on sessions; returns the rows that changed."""

    def set_title(
        self, tx: Transaction, session_id: str, title: str | None, deed: Deed | None = None
    ) -> str | None:
        """Title a session by the rules of the file; returns the title as stored. Raises InvalidInput, NotFound."""
