"""The index file: where it is, what is in it, and whose it is.

The file is `search.db` beside `state.db`; beside any other `<name>.db` it is `<name>.search.db`, and beside a file that
does not end in `.db` its whole name with `.search.db`, so no two stores share one. It holds one row of marks and one
full-text table over message ids: the terms of each message, and its facets (kind of talk, session, source) as terms of
their own, which makes these filters an intersection of posting lists instead of a look at each row. A facet begins with
a private-use character, which the text of a message never brings into the index (see `text.separated`).

Invariant: an index answers only for the store, the incarnation and the layout that it was made for, and only when its
mark is not above the highest id the store ever gave out; else it is emptied. Ids are never used twice within an
incarnation and messages never change, so an entry cannot be wrong, only superfluous.

Not for: opening the file (see `index.py`). Positions are kept (detail=full), because phrases and CJK need them. They
are dear: measured 0.58 bytes a byte of content when merged, against 0.43 with detail=column and 0.25 with detail=none;
but then a phrase of common words would have to be looked for in the texts (in thousands at 250,000 messages).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.engine import Reader

APPLICATION_ID = 0x48535831  # "HSX1"
LAYOUT = 1
# Sources that talk to themselves: what they wrote comes after what people said.
MACHINE_SOURCES = frozenset({"cron"})
CHILD_SOURCES = frozenset({"subagent", "delegate"})
PEOPLE, MACHINE, CHILD = "p", "m", "c"
FACET = "\ue000"
ROLES = ("user", "assistant", "tool", "system", "developer")


def index_path(store: Path) -> Path:
    """The index file of the store at `store`."""
    if store.name == "state.db":
        return store.with_name("search.db")
    return store.with_name(f"{store.name.removesuffix('.db')}.search.db")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreState:
    """What the store says of itself now."""

    store_id: str
    incarnation: str
    # highest id that any message has, and that any ever had
    newest: int
    highest: int
    # highest entry of the ledger of deletions
    deletions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What the index says of itself."""

    layout: int
    store_id: str
    incarnation: str
    # random, new whenever the index is emptied
    generation: str
    # every message up to this id is in it
    high_water: int
    # entries of what was deleted up to this ledger entry were taken out
    deletions_seen: int
    # where a sweep for later deletions is, and which ledger entry it is for
    sweep_at: int
    sweep_for: int

    def fits(self, state: StoreState) -> bool:
        """Whether the index may answer for that store."""
        mine = (self.layout, self.store_id, self.incarnation)
        return mine == (LAYOUT, state.store_id, state.incarnation) and 0 <= self.high_water <= state.highest


_MARKS = "layout, store_id, incarnation, generation, high_water, deletions_seen, sweep_at, sweep_for"


def schema(state: StoreState) -> list[tuple[str, Sequence[Any]]]:
    """Statements for an empty index of that store."""
    return [
        (
            "CREATE TABLE marks (one INTEGER PRIMARY KEY CHECK (one = 1), layout INTEGER NOT NULL,"
            " store_id TEXT NOT NULL, incarnation TEXT NOT NULL, generation TEXT NOT NULL, high_water INTEGER NOT NULL,"
            " deletions_seen INTEGER NOT NULL, sweep_at INTEGER NOT NULL, sweep_for INTEGER NOT NULL) STRICT",
            (),
        ),
        (
            "CREATE VIRTUAL TABLE terms USING fts5(text, session_no UNINDEXED, role UNINDEXED,"
            " source UNINDEXED, created_at UNINDEXED, content='', contentless_delete=1, contentless_unindexed=1,"
            " tokenize='unicode61 remove_diacritics 2')",
            (),
        ),
        # Two segments are worth a merge in idle time: each has its own copy of the words.
        ("INSERT INTO terms (terms, rank) VALUES ('usermerge', 2)", ()),
        (
            f"INSERT INTO marks (one, {_MARKS}) VALUES (1, ?, ?, ?, ?, 0, ?, 0, ?)",
            (LAYOUT, state.store_id, state.incarnation, secrets.token_hex(8), state.deletions, state.deletions),
        ),
    ]


def read_state(reader: Reader) -> StoreState:
    """The store's own numbers, in one statement."""
    found = reader.rows(
        "SELECT store_id, incarnation, message_floor, (SELECT max(id) FROM messages),"
        " (SELECT max(id) FROM deletions) FROM store"
    )
    store_id, incarnation, floor, newest, deletions = found[0]
    return StoreState(
        store_id=store_id, incarnation=incarnation, newest=newest or 0, highest=max(floor, newest or 0),
        deletions=deletions or 0,
    )


def read_marks(reader: Reader) -> Marks | None:
    """The index's marks, None when there is no such row."""
    row = reader.row(f"SELECT {_MARKS} FROM marks")
    if row is None:
        return None
    return Marks(
        layout=row[0], store_id=row[1], incarnation=row[2], generation=row[3], high_water=row[4],
        deletions_seen=row[5], sweep_at=row[6], sweep_for=row[7],
    )


def file_bytes(path: Path) -> int:
    """Size of the index with its WAL; 0 when there is none."""
    total = 0
    for name in (path, Path(f"{path}-wal")):
        try:
            total += os.stat(name).st_size
        except FileNotFoundError:
            continue
    return total


# --- facets ------------------------------------------------------------------------------------------------------


def kind_of(source: str, relation: str | None) -> str:
    """Whose talk a session is: people's, a machine's own, or a child's working for another session."""
    if relation == "delegate" or source in CHILD_SOURCES:
        return CHILD
    return MACHINE if source in MACHINE_SOURCES else PEOPLE


def facets(*, session_no: int, source: str, relation: str | None) -> str:
    """The facets of a message, as terms."""
    return f"{FACET}{kind_of(source, relation)} {session_facet(session_no)} {source_facet(source)}"


def kind_facet(kind: str) -> str:
    """A kind of talk as a term."""
    return f"{FACET}{kind}"


def session_facet(session_no: int) -> str:
    """A session as a term."""
    return f"{FACET}s{session_no}"


def source_facet(source: str) -> str:
    """A source as a term; hexadecimal, because a term has letters and digits only."""
    return f"{FACET}x{source.encode('utf-8', 'replace').hex()}"


def any_of(terms: Iterable[str]) -> str:
    """An FTS5 expression: one of these facets."""
    return f"({' OR '.join(terms)})"


def stored_role(role: str) -> int | str:
    """A role as the index keeps it: the usual ones as a number, to save space."""
    return ROLES.index(role) if role in ROLES else role
