"""The first look at all sessions of a file: what each will be called, and how they hang together.

Invariant: every session row, and every session that only messages name, gets a number and an id of its own; a real id
is never given to a row that has none. Parent links that lead nowhere or in a circle are cut,
counted, and stay in `extra`.

Not for: the rest of a session's row (`sessions.py`). Memory is a few hundred bytes a session, nothing a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from maintenance.dialects.cells import LATEST, time_sql
from maintenance.interop.adopt.source import Source
from maintenance.interop.typed import BadText, Cell, CellReader, key_of
from maintenance.lineage import Forest, Kind

if TYPE_CHECKING:
    from hermes_state.engine import Reader

RELATIONS = {
    Kind.CONTINUATION: "continuation",
    Kind.BRANCH: "branch",
    Kind.DELEGATE: "delegate",
    Kind.RESET: "reset",
    Kind.OTHER: "other",
}


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """One session: what is decided about it before its row is read, and how far its messages have been copied."""

    no: int  # number in the native store
    row: int | None  # rowid in the file; None when only messages name it
    cell: Cell  # its id as the file has it
    id: str = ""  # its id in the native store
    title: str | None = None  # its title, when it keeps it
    parent: Found | None = None  # what it came from
    relation: str | None = None  # what it is to that
    continued: bool = False  # a continuation took over
    messages: int = 0  # message rows
    newest: float | None = None  # newest message that has a time
    # While messages are copied:
    seq: int = 0  # messages so far
    calls: int = 0  # tool calls so far
    live: int = 0  # messages so far that nothing hides
    live_calls: int = 0  # tool calls in those
    last_at: float = 0.0  # time of the last message, or the start of the session
    hidden: str = ""  # what hides the last message: "rewind", "compact" or nothing
    hidden_from: int = 0  # the first message that is hidden with it
    counters: tuple[Cell, Cell] | None = None  # message_count and tool_call_count as the file has them


@dataclass(kw_only=True)
class Survey:
    """All sessions of a file."""

    sessions: list[Found]  # in the file's order, then those that only messages name
    by_key: dict[object, Found]  # by the id as the file has it
    oddities: Counter[str] = field(default_factory=Counter)  # what had to be decided, by name

    @property
    def rows(self) -> Iterator[Found]:
        """Those that have a row in the file, in its order."""
        return (found for found in self.sessions if found.row is not None)


def survey(reader: Reader, source: Source) -> Survey:
    """Look at every session row and at which sessions the messages name."""
    oddities: Counter[str] = Counter()
    optional = [name for name in ("title",) if name in source.columns["sessions"].names]
    cells = CellReader(["id", *optional])
    sessions: list[Found] = []
    by_key: dict[object, Found] = {}
    titles: list[Cell] = []
    for row in reader.iterate(f"SELECT {cells.sql}, rowid FROM sessions ORDER BY rowid"):
        key, *rest = cells.cells(row)
        found = Found(no=len(sessions) + 1, row=int(row[-1]), cell=key)
        sessions.append(found)
        titles.append(rest[0] if rest else None)
        if key is not None:  # SQLite's NULL is equal to nothing, another NULL included
            by_key.setdefault(key_of(key), found)
    _find_messages(reader, sessions, by_key, oddities)
    _name(sessions, oddities)
    _give_titles(sessions, titles, oddities)
    _link(Forest(source.dialect.lineage(reader)), sessions, oddities)
    return Survey(sessions=sessions, by_key=by_key, oddities=oddities)


def sane_time(cell: Cell) -> float | None:
    """A time as a float, when it is one that a native store takes: 1970 to 9999."""
    if isinstance(cell, (int, float)) and 0 <= cell <= LATEST:
        return float(cell)
    return None


def _find_messages(
    reader: Reader, sessions: list[Found], by_key: dict[object, Found], oddities: Counter[str]
) -> None:
    cells = CellReader(["session_id"])
    groups = reader.iterate(
        f"SELECT {cells.sql}, count(*), max({time_sql('timestamp')}) FROM messages GROUP BY session_id"
    )
    for row in groups:
        (key,) = cells.cells(row)
        found = by_key.get(key_of(key))
        if found is None:
            found = by_key[key_of(key)] = Found(no=len(sessions) + 1, row=None, cell=key)
            sessions.append(found)
            oddities["sessions_missing"] += 1
            oddities["messages_without_session"] += row[-2]
        found.messages, found.newest = int(row[-2]), sane_time(row[-1])


def _name(sessions: list[Found], oddities: Counter[str]) -> None:
    taken = set()
    for found in sessions:
        if isinstance(found.cell, str) and found.cell and found.cell not in taken:
            found.id = found.cell
            taken.add(found.id)
    for found in sessions:
        if found.id:
            continue
        said = str(found.cell) if isinstance(found.cell, (str, BadText)) else ""
        oddities["ids_repeated" if isinstance(found.cell, str) and said else "ids_not_text"] += 1
        wanted = said or f"unnamed-{found.no if found.row is None else found.row}"
        number, found.id = 1, wanted
        while found.id in taken:
            number += 1
            found.id = f"{wanted}-{number}"
        taken.add(found.id)


def _give_titles(sessions: list[Found], titles: list[Cell], oddities: Counter[str]) -> None:
    holders: dict[str, Found] = {}
    for found, cell in zip(sessions, titles, strict=False):
        title = str(cell) if isinstance(cell, (str, BadText)) else ""
        if not title:
            continue
        if title in holders:  # the newest keeps it, as in hermes-agent
            holders[title].title = None
            oddities["titles_repeated"] += 1
        holders[title] = found
        found.title = title


def _link(forest: Forest, sessions: list[Found], oddities: Counter[str]) -> None:
    by_name = {
        name: found for found in sessions if found.row is not None and (name := _lineage_name(found.cell)) is not None
    }
    for name, found in by_name.items():
        kind = forest.kind(name)
        if kind is Kind.ROOT:
            continue
        above = by_name.get(forest.parent(name) or forest.owner(name) or "")
        if above is None or above is found:
            continue
        found.parent, found.relation = above, RELATIONS[kind]
    _cut_circles(sessions, oddities)
    for found in sessions:
        if found.parent is not None and found.relation == "continuation":
            found.parent.continued = True


def _cut_circles(sessions: list[Found], oddities: Counter[str]) -> None:
    """Take the parent link from the first row of each circle."""
    seen: dict[int, int] = {}  # number of a session -> the walk that met it
    for start in sessions:
        walk: list[Found] = []
        here: Found | None = start
        while here is not None and here.no not in seen:
            seen[here.no] = start.no
            walk.append(here)
            here = here.parent
        if here is not None and seen[here.no] == start.no and here in walk:
            circle = walk[walk.index(here) :]
            first = min(circle, key=lambda found: found.no)
            first.parent = first.relation = None
            oddities["parent_circles"] += 1


def _lineage_name(cell: Cell) -> str | None:
    if isinstance(cell, str):
        return cell
    return cell.data.decode("utf-8", errors="surrogateescape") if isinstance(cell, BadText) else None
