"""`store.sessions`: the sessions of a store, one method a thing that is done with them.

Invariant: each method is one transaction, or reads one snapshot. What belongs to a conversation (title, archive mark,
pin) is the same for all its sessions; what belongs to a session (model, prompt, place) changes only in the one that is
written to.

Not for: messages (see `messages`), routing of gateway peers. A method that takes a dict of columns was rejected: which
columns may change together is what these modules know.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.conversation import creation, lineage, listing, removal, shared_texts, states
from hermes_state.conversation.creation import Place, Setup
from hermes_state.conversation.listing import Filter, SessionSummary
from hermes_state.conversation.removal import DEFAULT_HORIZON_SECONDS, Deleted
from hermes_state.conversation.session_rows import (
    Relation,
    Session,
    load,
    load_many,
    required_text,
    resolve_id,
    session_no,
    valid_id,
    valid_number,
    valid_time,
    wall_time,
    writable_no,
)
from hermes_state.conversation.titles import Titles, sanitize

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

__all__ = [
    "Deleted", "Session", "SessionSummary", "Sessions", "session_no", "writable_no",
]


class Sessions:
    """Create, find, list, end, archive and delete sessions. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._titles = Titles(core)

    # --- making them -----------------------------------------------------------------------------------------

    def create(
        self, *, id: str | None = None, source: str, model: str | None = None, system_prompt: str | None = None,
        title: str | None = None, parent_id: str | None = None, relation: Relation | None = None, tools: Any = None,
        model_config: Any = None, user_id: str | None = None, session_key: str | None = None,
        chat_id: str | None = None, chat_type: str | None = None, thread_id: str | None = None,
        display_name: str | None = None, profile: str | None = None, cwd: str | None = None,
        git_branch: str | None = None, git_repo_root: str | None = None, started_at: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Session:
        """Add a session and return it.

        `id`: up to 200 printable characters; made when None, sorting by time. `source`: cli, telegram, cron, ...
        `relation` to the parent: delegate, reset or other (the default); continuations and branches have their own
        methods. `tools`, `model_config`: JSON text or what becomes it. `started_at`: epoch seconds, now by default.
        Raises `SessionExists`, `Entombed` (the id was deleted), `TitleTaken`, `SessionNotFound` and `SessionDeleted`
        (the parent), `InvalidInput`.
        """
        given_id = None if id is None else valid_id(id)
        source = required_text("source", source)
        setup = Setup(model=model, system_prompt=system_prompt, tools=tools, model_config=model_config).checked()
        place = Place(
            user_id=user_id, session_key=session_key, chat_id=chat_id, chat_type=chat_type, thread_id=thread_id,
            display_name=display_name, profile=profile, cwd=cwd, git_branch=git_branch, git_repo_root=git_repo_root,
        ).known()
        start = None if started_at is None else valid_time("started_at", started_at)
        name, more = sanitize(title), creation.extra_json(extra)

        def work(tx: Transaction) -> Session:
            parent_no, kind = creation.parent_of(tx, parent_id, relation)
            no, _id = creation.insert(
                tx, id=given_id, source=source, at=wall_time(self._core.clock), setup=setup, place=place,
                started_at=start, title=name, parent_no=parent_no, relation=kind, extra=more,
            )
            return load(tx, no)

        return self._core.write(work)

    def ensure(
        self, id: str, source: str, *, model: str | None = None, system_prompt: str | None = None,
        parent_id: str | None = None, relation: Relation | None = None, tools: Any = None, model_config: Any = None,
        user_id: str | None = None, session_key: str | None = None, chat_id: str | None = None,
        chat_type: str | None = None, thread_id: str | None = None, display_name: str | None = None,
        profile: str | None = None, cwd: str | None = None, git_branch: str | None = None,
        git_repo_root: str | None = None, started_at: float | None = None,
    ) -> Session:
        """The session of this id, made now unless it is there.

        One that is there keeps everything it has; what it has no value for is filled in, but never its source, user
        and start. Nothing is written when nothing is to be filled. Raises `Entombed` and `InvalidInput`.
        """
        valid_id(id)
        source = required_text("source", source)
        setup = Setup(model=model, system_prompt=system_prompt, tools=tools, model_config=model_config).checked()
        place = Place(
            user_id=user_id, session_key=session_key, chat_id=chat_id, chat_type=chat_type, thread_id=thread_id,
            display_name=display_name, profile=profile, cwd=cwd, git_branch=git_branch, git_repo_root=git_repo_root,
        ).known()
        start = None if started_at is None else valid_time("started_at", started_at)
        wanted = creation.Wanted(
            id=id, source=source, setup=setup, place=place, started_at=start, parent_id=parent_id, relation=relation
        )

        def work(tx: Transaction) -> Session:
            return load(tx, creation.make_sure(tx, wanted, wall_time(self._core.clock)))

        with self._core.reader() as reader, reader.snapshot():
            no = creation.complete_no(reader, wanted)
            if no is not None:
                return load(reader, no)
        return self._core.write(work)

    # --- finding them ----------------------------------------------------------------------------------------

    def get(self, id: str, resolve: bool = False) -> Session:
        """The session of an id; with `resolve`, also of the beginning of exactly one id.

        Raises `SessionNotFound`, `SessionDeleted`, and `InvalidInput` when several ids begin so.
        """
        with self._core.reader() as reader, reader.snapshot():
            return load(reader, session_no(reader, resolve_id(reader, id) if resolve else id))

    def list(
        self, *, limit: int = 50, offset: int = 0, source: str | None = None, exclude_sources: Iterable[str] = (),
        archived: bool | None = False, include_children: bool = False, cwd: str | None = None,
        title: str | None = None, search: str | None = None, before: float | None = None, after: float | None = None,
    ) -> builtins.list[SessionSummary]:
        """Conversations, last activity first: one entry each, with the id of its tip and the start of its root.

        `archived`: False shows what is not archived, True only what is, None both. `include_children` adds delegates
        and other sessions below another. `cwd`: a folder, with all below it. `title`, `search`: parts of the title; of
        title, id, name or folder (letter case of ASCII is ignored). `before`, `after`: last activity in epoch seconds,
        both exclusive. Reads the newest sessions only until `limit` are found, however many there are.
        """
        wanted = Filter.of(
            source=source, exclude_sources=exclude_sources, archived=archived, include_children=include_children,
            cwd=cwd, title=title, search=search, before=before, after=after,
        )
        with self._core.reader() as reader, reader.snapshot():
            return listing.page(reader, wanted, limit=limit, offset=offset)

    def count(
        self, *, source: str | None = None, exclude_sources: Iterable[str] = (), archived: bool | None = False,
        include_children: bool = False, cwd: str | None = None, title: str | None = None, search: str | None = None,
        before: float | None = None, after: float | None = None,
    ) -> int:
        """How many entries `list` has for the same arguments. Reads every session row once, no message."""
        wanted = Filter.of(
            source=source, exclude_sources=exclude_sources, archived=archived, include_children=include_children,
            cwd=cwd, title=title, search=search, before=before, after=after,
        )
        with self._core.reader() as reader, reader.snapshot():
            return listing.count(reader, wanted)

    def count_by_source(self, *, archived: bool | None = False, include_children: bool = False) -> dict[str, int]:
        """How many entries `list` has of each source, in one query."""
        wanted = Filter.of(archived=archived, include_children=include_children)
        with self._core.reader() as reader, reader.snapshot():
            return listing.count_by_source(reader, wanted)

    def lineage(self, id: str) -> builtins.list[Session]:
        """The sessions of the conversation of an id, root to tip. Raises `SessionNotFound`, `SessionDeleted`."""
        with self._core.reader() as reader, reader.snapshot():
            return load_many(reader, lineage.chain_numbers(reader, session_no(reader, id)))

    def tip(self, id: str) -> Session:
        """The session in which the conversation of an id goes on. Raises `SessionNotFound`, `SessionDeleted`."""
        with self._core.reader() as reader, reader.snapshot():
            return load(reader, lineage.tip_no(reader, session_no(reader, id)))

    def children(self, id: str) -> builtins.list[Session]:
        """The sessions directly below one, in the order they were made. Raises `SessionNotFound`, `SessionDeleted`."""
        with self._core.reader() as reader, reader.snapshot():
            found = reader.rows("SELECT no FROM sessions WHERE parent_no = ? ORDER BY no", (session_no(reader, id),))
            return load_many(reader, [no for (no,) in found])

    def prompt(self, id: str) -> str | None:
        """The system prompt of a session, None when it has none. Raises `SessionNotFound`, `SessionDeleted`."""
        return self._shared(id, "prompt_no")

    def tools(self, id: str) -> str | None:
        """The tool schema of a session as JSON text, None when it has none."""
        return self._shared(id, "tools_no")

    def model_config(self, id: str) -> str | None:
        """The model configuration of a session as JSON text, None when it has none."""
        return self._shared(id, "model_config_no")

    def _shared(self, id: str, column: str) -> str | None:
        with self._core.reader() as reader, reader.snapshot():
            no = session_no(reader, id)
            return shared_texts.text_of(reader, reader.rows(f"SELECT {column} FROM sessions WHERE no = ?", (no,))[0][0])

    # --- states ----------------------------------------------------------------------------------------------

    def end(self, id: str, reason: str) -> bool:
        """End an open session; True when this call did. One that has ended keeps its first time and reason."""
        why, at = required_text("reason", reason), wall_time(self._core.clock)
        return self._core.write(lambda tx: states.end(tx, id, why, at), durability="power")

    def promote_to_reset(self, id: str, reason: str = "session_reset") -> bool:
        """End a session as reset, also one that a program has closed by itself; True when this call did.

        Whatever a person ended, or a reset before, keeps its reason. Raises `InvalidInput` for another kind of reason.
        """
        at = wall_time(self._core.clock)
        return self._core.write(lambda tx: states.promote_to_reset(tx, id, reason, at), durability="power")

    def reopen(self, id: str, *, by_recovery: bool = False) -> Session:
        """Make an ended session open again; one that is open stays as it is.

        `by_recovery`: nobody asked for this very session, so only one that a program closed by itself is taken up
        again, never one that was reset. Raises `SessionReplaced` while a continuation is there, `Refused`.
        """
        at = wall_time(self._core.clock)

        def work(tx: Transaction) -> Session:
            return load(tx, states.reopen(tx, id, at, by_recovery=by_recovery))

        return self._core.write(work, durability="power")

    def continue_as(
        self, id: str, *, new_id: str | None = None, model: str | None = None, system_prompt: str | None = None,
        tools: Any = None, model_config: Any = None, extra: dict[str, Any] | None = None,
    ) -> Session:
        """Let a new session take over after a compression, in one transaction; returns the new one.

        It has the source, peer, workspace, model and prompt of the old one unless given, and takes its title, pin and
        archive mark. The old one is `replaced`: appends to it fail and name the new one.
        Raises `SessionReplaced` (another process was faster), `Refused` (it has ended), `SessionExists`, `Entombed`.
        """
        if new_id is not None:
            valid_id(new_id)
        setup = Setup(model=model, system_prompt=system_prompt, tools=tools, model_config=model_config).checked()
        more = creation.extra_json(extra)

        def work(tx: Transaction) -> Session:
            no, _id = creation.continue_session(
                tx, id, at=wall_time(self._core.clock), new_id=new_id, setup=setup, extra=more
            )
            return load(tx, no)

        return self._core.write(work, durability="power")

    def branch(
        self, id: str, *, at_message_id: int | None = None, new_id: str | None = None, title: str | None = None,
        source: str | None = None, model: str | None = None, system_prompt: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Session:
        """Begin another way on from a message (by default the newest), without copying any; returns the new session.

        Everything up to and with that message belongs to both, as it was to be seen now: a later rewind or compaction
        on one side does not reach the other. `parent_id` of the new session is the session that the message is stored
        under, or the branch that has hidden a part of what it shares. Raises `NotFound` when the message is not part of
        the conversation, `TitleTaken`, and as `get`.
        """
        if new_id is not None:
            valid_id(new_id)
        if at_message_id is not None:
            valid_number("at_message_id", at_message_id)
        setup = Setup(model=model, system_prompt=system_prompt).checked()
        name, more = sanitize(title), creation.extra_json(extra)
        from_where = None if source is None else required_text("source", source)

        def work(tx: Transaction) -> Session:
            no, _id = creation.branch_session(
                tx, id, at=wall_time(self._core.clock), at_message_id=at_message_id, new_id=new_id, title=name,
                source=from_where, setup=setup, extra=more,
            )
            return load(tx, no)

        return self._core.write(work)

    # --- what people and programs change ---------------------------------------------------------------------

    def rename(self, id: str, title: str | None) -> Session:
        """Give the conversation of a session a title of a person's choice, or none. See `titles.set`."""
        return self._titles.set(id, title, source="user")

    def archive(self, id: str, archived: bool = True, *, automatic: bool = False) -> builtins.list[str]:
        """Hide a conversation from listings, or show it again; returns the ids of its sessions, root to tip.

        `automatic`: a sweep does it, so that new messages bring it back. What a person archived stays so.
        """

        def mark(tx: Transaction, no: int, at: float) -> None:
            if not archived:
                creation.set_columns(tx, no, {"archived_at": None, "auto_archived": 0})
            elif automatic:
                tx.execute(
                    "UPDATE sessions SET archived_at = ?, auto_archived = 1 WHERE no = ? AND archived_at IS NULL",
                    (at, no),
                )
            else:
                # A hidden session with a fixed title gives it up, so that a new one can have it.
                tx.execute(
                    "UPDATE sessions SET archived_at = coalesce(archived_at, ?1), auto_archived = 0,"
                    " title = iif(hidden, NULL, title), title_source = iif(hidden, NULL, title_source) WHERE no = ?2",
                    (at, no),
                )

        return self._mark_conversation(id, mark)

    def pin(self, id: str, pinned: bool = True) -> builtins.list[str]:
        """Keep a conversation from every sweep, or no longer; returns the ids of its sessions, root to tip."""

        def mark(tx: Transaction, no: int, at: float) -> None:
            tx.execute(
                "UPDATE sessions SET pinned_at = iif(?1, coalesce(pinned_at, ?2), NULL) WHERE no = ?3",
                (int(pinned), at, no),
            )

        return self._mark_conversation(id, mark)

    def set_model(self, id: str, model: str | None) -> None:
        """Change the model of a session, and nothing else. Raises `SessionReplaced`, and as `get`."""
        self._change(id, Setup(model=model).checked(), ("model",))

    def set_prompt(self, id: str, system_prompt: str | None) -> None:
        """Change the system prompt of a session. Raises `SessionReplaced`, and as `get`."""
        self._change(id, Setup(system_prompt=system_prompt).checked(), ("prompt_no",))

    def set_tools(self, id: str, tools: Any) -> None:
        """Change the tool schema of a session: JSON text, or what becomes it."""
        self._change(id, Setup(tools=tools).checked(), ("tools_no",))

    def set_model_config(self, id: str, model_config: Any) -> None:
        """Change the model configuration of a session: JSON text, or what becomes it."""
        self._change(id, Setup(model_config=model_config).checked(), ("model_config_no",))

    def set_place(self, id: str, place: Place) -> None:
        """Change where a session talks and works; what `place` leaves out stays. Raises `SessionReplaced`, as `get`."""
        known = place.known()

        def work(tx: Transaction) -> None:
            creation.set_columns(tx, writable_no(tx, id), known)
            changes.record(tx, "sessions", id, "update", wall_time(self._core.clock))

        if known:
            self._core.write(work)

    # --- deleting --------------------------------------------------------------------------------------------

    def delete(
        self, ids: str | Iterable[str], *, actor: str, reason: str, whole_conversations: bool = False,
        horizon_seconds: float = DEFAULT_HORIZON_SECONDS,
    ) -> Deleted:
        """Remove sessions with their messages and their delegates; see `removal` for what stays and in which steps.

        `actor`, `reason`: for the ledger of deletions. `whole_conversations`: every session of the chains that the ids
        belong to. `horizon_seconds`: how long the ids may not come back (90 days).
        Raises `SessionGuarded` (somebody is at work in one of them) and as `get`, before anything was removed. When
        somebody begins to work in one while the earlier ones of a long list go, `removed` of the error has their ids.
        """
        return removal.delete(
            self._core, [ids] if isinstance(ids, str) else list(ids), actor=actor, reason=reason,
            whole_conversations=whole_conversations, horizon_seconds=horizon_seconds,
        )

    def delete_if_empty(self, id: str, *, actor: str, reason: str) -> bool:
        """Remove a session that has no message, title or child; False when it has. A concurrent append wins."""
        return removal.delete_if_empty(self._core, id, actor=actor, reason=reason)

    # --- inside ----------------------------------------------------------------------------------------------

    def _change(self, id: str, setup: Setup, columns: tuple[str, ...]) -> None:
        def work(tx: Transaction) -> None:
            no = writable_no(tx, id)
            before = tx.rows("SELECT prompt_no, tools_no, model_config_no FROM sessions WHERE no = ?", (no,))[0]
            creation.set_columns(tx, no, {**dict.fromkeys(columns), **setup.columns(tx)})
            shared_texts.release(tx, before)
            changes.record(tx, "sessions", id, "update", wall_time(self._core.clock))

        self._core.write(work)

    def _mark_conversation(self, id: str, mark: Callable[[Transaction, int, float], None]) -> builtins.list[str]:
        def work(tx: Transaction) -> builtins.list[str]:
            at, ids = wall_time(self._core.clock), []
            for no in lineage.chain_numbers(tx, session_no(tx, id)):
                mark(tx, no, at)
                ids.append(str(tx.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0][0]))
                changes.record(tx, "sessions", ids[-1], "update", at)
            return ids

        return self._core.write(work)
