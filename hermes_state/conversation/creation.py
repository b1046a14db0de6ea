"""How sessions come to be: new ones, those that must be there, continuations and branches.

Invariant: an id that is taken or entombed is refused inside the transaction that would use it. Making sure that a
session is there never changes a value it has. A continuation, the end of what it continues and the move of the title
are one transaction.

Not for: messages. An upsert was rejected: it could not tell a caller that the id is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

from hermes_state import changes, deletions, json_values, tombstones
from hermes_state.conversation import shared_texts, titles
from hermes_state.conversation.context import is_compacted
from hermes_state.conversation.lineage import Segment, chain_numbers, conversation_segments, is_ancestor, reaches
from hermes_state.conversation.session_rows import (
    Relation,
    TitleSource,
    known_id,
    left_over,
    missing,
    new_session_id,
    optional_text,
    replaced,
    scrub,
    session_no,
)
from hermes_state.errors import InvalidInput, NotFound, Refused, SessionExists

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# What a continuation and a branch take over from the session they come from, unless told otherwise.
INHERITED = (
    "source", "model", "prompt_no", "tools_no", "model_config_no", "user_id", "session_key", "chat_id", "chat_type",
    "thread_id", "display_name", "profile", "cwd", "git_branch", "git_repo_root",
)
# What `ensure` fills where it is NULL. Whose session it is and when it began never change.
FILLED = INHERITED[1:5] + INHERITED[6:]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a session talks and works: the gateway peer and the workspace. Texts, or None for unknown."""

    user_id: str | None = None
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    display_name: str | None = None
    profile: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    git_repo_root: str | None = None

    def known(self) -> dict[str, str]:
        """The columns that are given. Raises `InvalidInput` for what is not a text."""
        given = {item.name: optional_text(item.name, getattr(self, item.name)) for item in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a session works with. Texts are stored once, however many sessions have the same."""

    model: str | None = None
    system_prompt: str | None = None
    # tool schema and model configuration: JSON text, or a list or dict that is made into it
    tools: Any = None
    model_config: Any = None

    def checked(self) -> Setup:
        """The same with everything as text. Raises `InvalidInput`."""
        return Setup(
            model=optional_text("model", self.model), system_prompt=optional_text("system_prompt", self.system_prompt),
            tools=as_json("tools", self.tools), model_config=as_json("model_config", self.model_config),
        )

    def columns(self, tx: Transaction) -> dict[str, Any]:
        """The columns that are given, with large texts stored."""
        given = {
            "model": self.model,
            "prompt_no": shared_texts.intern(tx, self.system_prompt),
            "tools_no": shared_texts.intern(tx, self.tools),
            "model_config_no": shared_texts.intern(tx, self.model_config),
        }
        return {name: value for name, value in given.items() if value is not None}


def as_json(name: str, value: Any) -> str | None:
    """JSON text of a value; a text is JSON text already and stays as it is. Raises `InvalidInput`."""
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            return scrub(json_values.dump(value))
        json_values.load(value)
    except ValueError as error:
        raise InvalidInput(f"{name} cannot be written as JSON: {error}.", argument=name) from error
    return optional_text(name, value)


def extra_json(extra: Mapping[str, Any] | None) -> str | None:
    """JSON text of extra fields, which are a mapping. Raises `InvalidInput`."""
    if extra is None:
        return None
    if not isinstance(extra, Mapping):
        raise InvalidInput(f"extra is a mapping of fields, not {type(extra).__name__}.", argument="extra")
    return as_json("extra", dict(extra))


def insert(
    tx: Transaction, *, id: str | None, source: str, at: float, setup: Setup, place: dict[str, str],
    started_at: float | None = None, title: str | None = None, title_source: TitleSource = "user",
    parent_no: int | None = None, relation: Relation | None = None, extra: str | None = None,
    columns: dict[str, Any] | None = None,
) -> tuple[int, str]:
    """Add a session and return its number and id. Values are checked by the caller; `columns` win over all others.

    Raises `SessionExists`, `Entombed`, `TitleTaken`, `HomeRemoved`.
    """
    deletions.refuse_removed_home(tx)
    if id is None:
        id = new_session_id(at)
    elif tx.row("SELECT 1 FROM sessions WHERE id = ?", (id,)) is not None:
        raise SessionExists(
            f"There is a session {id!r} in {tx.path} already.", hint="Use ensure() when it may be there.",
            path=tx.path, session_id=id,
        )
    tombstones.refuse(tx, "session", id)
    start = at if started_at is None else started_at
    values: dict[str, Any] = {
        "id": id, "source": source, "started_at": start, "active_at": start, "parent_no": parent_no,
        "relation": relation, "extra": extra, **place, **setup.columns(tx), **(columns or {}),
    }
    names = ", ".join(values)
    tx.execute(
        f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
    )
    no = tx.last_insert_rowid()
    if title is not None:
        titles.give(tx, no, title, title_source)
    changes.record(tx, "sessions", id, "insert", at)
    return no, id


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A session that must be there, checked."""

    id: str
    source: str
    setup: Setup
    place: dict[str, str]
    started_at: float | None
    parent_id: str | None
    relation: Relation | None


def complete_no(reader: Reader, wanted: Wanted) -> int | None:
    """The number of the session when it is there and nothing is to be filled; else None. Raises `Entombed`."""
    row = _filled(reader, wanted.id)
    if row is None:
        tombstones.refuse(reader, "session", wanted.id)
        return None
    return row["no"] if _gaps(row, wanted) == ({}, Setup(), False) else None


def make_sure(tx: Transaction, wanted: Wanted, at: float) -> int:
    """Add the session, or fill what the existing one has no value for; returns its number. Raises `Entombed`."""
    row = _filled(tx, wanted.id)
    if row is None:
        parent_no, relation = parent_of(tx, wanted.parent_id, wanted.relation)
        no, _id = insert(
            tx, id=wanted.id, source=wanted.source, at=at, setup=wanted.setup, place=wanted.place,
            started_at=wanted.started_at, parent_no=parent_no, relation=relation,
        )
        return no
    place, setup, has_no_parent = _gaps(row, wanted)
    set_columns(tx, row["no"], {**place, **setup.columns(tx)})
    if has_no_parent:
        parent_no, relation = parent_of(tx, wanted.parent_id, wanted.relation)
        if parent_no is not None and is_ancestor(tx, row["no"], parent_no):
            raise InvalidInput("A session cannot be below itself.", argument="parent_id", path=tx.path)
        set_columns(tx, row["no"], {"parent_no": parent_no, "relation": relation})
    changes.record(tx, "sessions", wanted.id, "update", at)
    return int(row["no"])


def _filled(reader: Reader, session_id: str) -> dict[str, Any] | None:
    columns = ("no", "parent_no", *FILLED)
    row = reader.row(
        f"SELECT {', '.join(columns)} FROM sessions s WHERE id = ? AND NOT {left_over('s')}", (session_id,)
    )
    return None if row is None else dict(zip(columns, row, strict=True))


def _gaps(row: dict[str, Any], wanted: Wanted) -> tuple[dict[str, str], Setup, bool]:
    """What of the given values an existing session has no value for yet; the last item is about the parent."""
    place = {name: value for name, value in wanted.place.items() if name != "user_id" and row[name] is None}
    given = wanted.setup
    setup = Setup(
        model=given.model if row["model"] is None else None,
        system_prompt=given.system_prompt if row["prompt_no"] is None else None,
        tools=given.tools if row["tools_no"] is None else None,
        model_config=given.model_config if row["model_config_no"] is None else None,
    )
    return place, setup, wanted.parent_id is not None and row["parent_no"] is None


def set_columns(tx: Transaction, no: int, values: dict[str, Any]) -> None:
    """Write these columns of a session; nothing for no columns."""
    if values:
        names = ", ".join(f"{name} = ?" for name in values)
        tx.execute(f"UPDATE sessions SET {names} WHERE no = ?", (*values.values(), no))


def parent_of(tx: Transaction, parent_id: str | None, relation: Relation | None) -> tuple[int | None, Relation | None]:
    """The parent's number and what the child is to it ("other" unless said).

    Raises `InvalidInput` and as `session_no`.
    """
    if parent_id is None:
        if relation is not None:
            raise InvalidInput(f"A session without a parent cannot be its {relation}.", argument="relation")
        return None, None
    if relation is None:
        relation = "other"
    if relation not in get_args(Relation):
        raise InvalidInput(
            f"A session is a {', '.join(get_args(Relation))} of its parent, not {relation!r}.", argument="relation"
        )
    if relation in ("continuation", "branch"):
        verb = {"continuation": "continue_as", "branch": "branch"}[relation]
        raise InvalidInput(
            f"A {relation} needs more than a parent.", hint=f"Make it with sessions.{verb}().", argument="relation"
        )
    return session_no(tx, parent_id), relation


# --- going on from another session -------------------------------------------------------------------------------


def continue_session(
    tx: Transaction, session_id: str, *, at: float, new_id: str | None = None, setup: Setup | None = None,
    place: dict[str, str] | None = None, extra: str | None = None, shares: bool = False,
) -> tuple[int, str]:
    """Replace an open session by a new one that continues it; returns the new number and id.

    For code that has a transaction. `shares`: the new one begins with all that the old one has, as a branch at its
    newest message does.
    Raises `SessionReplaced` (somebody was faster), `Refused` (it has ended), `SessionExists`, `Entombed`,
    `SessionNotFound`, `SessionDeleted`.
    """
    row = tx.row(
        f"SELECT no, state, end_reason, archived_at, auto_archived, pinned_at, hidden, {', '.join(INHERITED)}"
        f" FROM sessions s WHERE id = ? AND NOT {left_over('s')}", (known_id(session_id),)
    )
    if row is None:
        raise missing(tx, session_id)
    no, state, end_reason, archived_at, auto_archived, pinned_at, hidden = row[:7]
    if state == "replaced":
        raise replaced(tx, session_id, no)
    if state == "ended":
        raise Refused(
            f"Session {session_id!r} of {tx.path} has ended ({end_reason}); only an open one is continued.",
            hint="Reopen it first.", path=tx.path, session_id=session_id,
        )
    if auto_archived:
        bring_back(tx, no, at)
        archived_at = None
    inherited = dict(zip(INHERITED, row[7:], strict=True))
    given = {**inherited, **(place or {}), **(setup or Setup()).columns(tx)}
    if shares:
        share = _shared_at(tx, session_id, no, None)
        given.update(branched_at_seq=share.upto_seq, branched_at_edit=share.upto_edit)
    child, child_id = insert(
        tx, id=new_id, source=given.pop("source"), at=at, setup=Setup(), place={}, parent_no=no,
        relation="continuation", extra=extra,
        columns={**given, "archived_at": archived_at, "pinned_at": pinned_at, "hidden": hidden},
    )
    tx.execute(
        "UPDATE sessions SET state = 'replaced', ended_at = ?, end_reason = 'compression' WHERE no = ?", (at, no)
    )
    titles.move(tx, no, child)
    changes.record(tx, "sessions", session_id, "update", at)
    return child, child_id


def branch_session(
    tx: Transaction, session_id: str, *, at: float, at_message_id: int | None = None, new_id: str | None = None,
    title: str | None = None, source: str | None = None, setup: Setup | None = None,
    place: dict[str, str] | None = None, extra: str | None = None,
) -> tuple[int, str]:
    """Begin another way on from a message of a conversation; returns the new number and id.

    The branch belongs to the session that the message is stored under: for a message from before a compression, or one
    that `session_id` itself shares with its parent, that is an earlier session; but when a branch has taken back some
    of what it shares, to that branch, so that what was hidden stays so. It is seen through the generation that the
    session it belongs to is seen through, when that covers only what is shared. Raises `NotFound` when the message is
    not part of the conversation, and as `insert` and `session_no`.
    """
    no = session_no(tx, session_id)
    shared = _shared_at(tx, session_id, no, at_message_id)
    inherited = tx.rows(f"SELECT {', '.join(INHERITED)} FROM sessions WHERE no = ?", (no,))[0]
    given = {
        **dict(zip(INHERITED, inherited, strict=True)), **(place or {}), **(setup or Setup()).columns(tx),
        "branched_at_seq": shared.upto_seq, "branched_at_edit": shared.upto_edit,
    }
    inherited_source = given.pop("source")
    child, child_id = insert(
        tx, id=new_id, source=source or inherited_source, at=at, setup=Setup(), place={}, title=title,
        parent_no=shared.session_no, relation="branch", extra=extra, columns=given,
    )
    if is_compacted(tx, shared.session_no):
        from hermes_state.compaction.generations.heads import take_over

        take_over(tx, child, shared.session_no)
    return child, child_id


def _shared_at(tx: Transaction, session_id: str, no: int, message_id: int | None) -> Segment:
    """What a new branch shares, with the bounds that its row records."""
    edits = int(tx.rows("SELECT coalesce(max(id), 0) FROM view_edits")[0][0])
    if message_id is None:
        newest = tx.rows("SELECT coalesce(max(seq), 0) FROM messages WHERE session_no = ?", (no,))[0][0]
        return Segment(session_no=no, upto_seq=int(newest), upto_edit=edits)
    place = tx.row("SELECT session_no, seq FROM messages WHERE id = ?", (message_id,))
    parts = conversation_segments(tx, no) if place is not None else []
    for number, (part, last) in enumerate(zip(parts, reaches(parts), strict=True)):
        if place is not None and part.session_no == place[0] and (last is None or place[1] <= last):
            return _bounds(tx, parts, number, int(place[1]), edits)
    raise NotFound(
        f"Message {message_id} is not part of the conversation of session {session_id!r} in {tx.path}.",
        hint="Take the id of a message that history() shows.", path=tx.path, session_id=session_id,
        message_id=message_id,
    )


def _bounds(tx: Transaction, parts: list[Segment], number: int, seq: int, edits: int) -> Segment:
    """The share of a branch at message `seq` of segment `number`: of that session, or of a branch below it.

    A branch that hides some of what it shares has the edits; the message's number on its axis is below 1.
    """
    chosen, chosen_seq = parts[number], seq
    while parts[number].upto_seq is not None:
        seq -= parts[number].upto_seq or 0
        number += 1
        if tx.row(
            "SELECT 1 FROM view_edits e WHERE session_no = ?1 AND id <= ?2 AND from_seq <= ?3"
            " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id AND r.id <= ?2) LIMIT 1",
            (parts[number].session_no, edits if parts[number].upto_edit is None else parts[number].upto_edit, seq),
        ):
            chosen, chosen_seq = parts[number], seq
    bound = edits if chosen.upto_edit is None else chosen.upto_edit
    return Segment(session_no=chosen.session_no, upto_seq=chosen_seq, upto_edit=bound)


def bring_back(tx: Transaction, no: int, at: float) -> bool:
    """Take a conversation out of the archive that a sweep had put it in; False when a person did, or nobody.

    Called when something new happens in it; what a person archived stays archived.
    """
    chain = chain_numbers(tx, no)
    found = False
    for member in chain:
        row = tx.row("SELECT id FROM sessions WHERE no = ? AND auto_archived = 1", (member,))
        if row is not None:
            tx.execute("UPDATE sessions SET archived_at = NULL, auto_archived = 0 WHERE no = ?", (member,))
            changes.record(tx, "sessions", row[0], "update", at)
            found = True
    return found
