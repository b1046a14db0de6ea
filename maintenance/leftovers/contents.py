"""What the database in a leftover holds, and which of its rows the store lacks.

Invariant: a leftover is only read. A file alone is opened as it is, without a lock and without anything beside it; one
with a WAL or a journal is copied to a private folder first. What a look may cost is bounded unless it is `deep`: then
rows are compared one by one, by what they say. A damaged copy, or one whose WAL cannot be read to its end, is never
called wholly in the store.

Not for: captures of a lost WAL (`maintenance.recovery.captures` compares them). Files of the two dialects are compared
by session ids and counts only: their rows say the same in different words.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine.private import PrivateCopy, open_private
from hermes_state.engine.still import open_still
from hermes_state.errors import InsufficientSpace, StateError
from maintenance.dialects.native.compactions import compactions_lacking
from maintenance.dialects.native.owed import obligations_lacking
from maintenance.dialects.native.routed import routes_lacking
from maintenance.dialects.native.scheduled import jobs_lacking
from maintenance.dialects.native.serving import instances_lacking
from maintenance.dialects.native.shape import native_identity
from maintenance.dialects.native.working import rows_lacking
from maintenance.ledger import deleted_at
from maintenance.leftovers.names import DROPPING
from maintenance.leftovers.other_tables import rows_of_other_tables
from maintenance.leftovers.records import Holds
from maintenance.output.text import human_bytes
from maintenance.recovery.captures import foreign
from maintenance.recovery.captures.facts import differing
from maintenance.recovery.captures.untaken import untaken
from maintenance.recovery.format.image import Image
from maintenance.space.verify import first_line, foreign_key_problems, page_problems

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.leftovers.records import Budget

NATIVE, FOREIGN = "native", "hermes-agent"
_SPARE_BYTES = 64 << 20


@dataclass(kw_only=True)
class Live:
    """The store that leftovers are compared with."""

    # its file
    path: Path
    # the store open for reading, None when it is not there or cannot be read
    reader: ReadStore | None
    # why not; "" otherwise
    problem: str = ""

    @cached_property
    def identity(self) -> str | None:
        """`store_id` of a native store, None for a file of hermes-agent."""
        found = native_identity(self._open)
        return None if found is None else found.store_id

    @cached_property
    def counts(self) -> dict[str, int]:
        """Messages by session; sessions without any too."""
        return messages_by_session(self._open, native=self.identity is not None)

    @cached_property
    def deleted(self) -> frozenset[str]:
        """Sessions that were deleted on purpose, as far as a ledger says."""
        found = set(deleted_at(self.path))
        return frozenset(found | set(self._keys("session")))

    @cached_property
    def deleted_messages(self) -> frozenset[int]:
        """Ids of messages that were deleted one by one; a native store keeps them."""
        return frozenset(int(key) for key in self._keys("message"))

    @cached_property
    def damage(self) -> str:
        """What is wrong with its pages and references, "" when nothing is. Reads every page."""
        found = page_problems(self._open)
        if found:
            return first_line(found)
        # hermes-agent's own files may have such rows; in ours they mean that content is gone.
        broken = self.identity is not None and foreign_key_problems(self._open)
        return "rows refer to rows that are gone" if broken else ""

    @property
    def _open(self) -> ReadStore:
        assert self.reader is not None
        return self.reader

    def _keys(self, kind: str) -> list[str]:
        if self.identity is None:
            return []
        rows = self._open.rows("SELECT keys FROM deletions WHERE kind = ?", (kind,))
        return [str(key) for (keys,) in rows for key in json.loads(keys)]


def look_into(database: Path, live: Live, budget: Budget) -> Holds:
    """What `database` holds, compared with the store as far as `budget` goes. What cannot be told is in `problem`."""
    size = sum(path.stat().st_size for path in _family(database))
    try:
        with opened(database, live.path.parent, budget, size) as copy:
            return _compared(copy, _counted(copy, budget), live, budget)
    except StateError as error:
        return Holds(problem=error.message)


def wal_problem(database: Path) -> str:
    """Why the WAL beside a copy does not show all that was committed; "" when it does or there is none."""
    wal = Path(f"{database}-wal")
    if not wal.exists() or not wal.stat().st_size:
        return ""
    with Image.read(None, wal, wal_rule="lenient") as image:
        if not image.wal.header_whole:
            return f"the header of {wal.name} is damaged, and the commits in it cannot be seen"
        newest = [commit for generation in image.generations if generation.newest for commit in generation.commits]
        if not all(commit.visible for commit in newest):
            return f"a frame of {wal.name} is damaged, and the commits behind it cannot be seen"
    return ""


@contextmanager
def opened(database: Path, folder: Path, budget: Budget, size: int) -> Iterator[PrivateCopy]:
    """The database open for reading; with a WAL or a journal a private copy of it below `folder`."""
    family = _family(database)
    if len(family) == 1:
        with open_still(database) as copy:
            yield copy
        return
    if not budget.deep and size > budget.largest:
        raise InsufficientSpace(
            f"It has a WAL, so looking into it needs a copy of {human_bytes(size)}, which only --deep makes.",
            path=database, needed_bytes=size, free_bytes=None,
        )
    free = shutil.disk_usage(folder).free
    if free < 2 * size + _SPARE_BYTES:
        raise InsufficientSpace(
            f"Looking into it needs {human_bytes(2 * size + _SPARE_BYTES)} in {folder}, and {human_bytes(free)} are "
            "free.", path=database, needed_bytes=2 * size + _SPARE_BYTES, free_bytes=free,
        )
    with tempfile.TemporaryDirectory(prefix=f"{DROPPING}{os.getpid()}-", dir=folder) as private:
        target = Path(private) / "copy.db"
        for path in family:
            shutil.copyfile(path, f"{target}{str(path).removeprefix(str(database))}")
        with open_private(target, search_modules=False) as copy:
            yield copy


def messages_by_session(reader: Any, *, native: bool) -> dict[str, int]:
    """How many messages each session has."""
    found = {str(key): 0 for (key,) in reader.rows("SELECT id FROM sessions")}
    found.update((str(key), int(count)) for key, count in reader.rows(_BY_SESSION[native]))
    return found


_BY_SESSION = {
    False: "SELECT session_id, count(*) FROM messages GROUP BY session_id",
    True: "SELECT s.id, count(*) FROM messages m JOIN sessions s ON s.no = m.session_no GROUP BY m.session_no",
}


def _family(database: Path) -> list[Path]:
    """The file, and its WAL and journal when they hold bytes."""
    beside = (Path(f"{database}{ending}") for ending in ("-wal", "-journal"))
    return [database, *(path for path in beside if path.exists() and path.stat().st_size)]


def _counted(copy: PrivateCopy, budget: Budget) -> Holds:
    native = native_identity(copy) is not None
    newest = copy.row(
        f"SELECT {'created_at' if native else 'timestamp'} FROM messages ORDER BY id DESC LIMIT 1"
    )
    at = newest[0] if newest and isinstance(newest[0], (int, float)) else None
    holds = Holds(dialect=NATIVE if native else FOREIGN, newest_at=at)
    with _bounded(copy, budget) as bound:
        try:
            sessions = copy.row("SELECT count(*) FROM sessions")
            messages = copy.row("SELECT count(*) FROM messages")
        except StateError:
            if not bound.passed:
                raise
            return replace(holds, problem="counting its rows takes longer than a quick look; --deep does it")
    return replace(
        holds, sessions=sessions[0] if sessions else None, messages=messages[0] if messages else None
    )


def _compared(copy: PrivateCopy, holds: Holds, live: Live, budget: Budget) -> Holds:
    if holds.problem:
        return holds
    if live.reader is None:
        # Nothing of it is in a store that cannot be read.
        lacking = {"sessions": holds.sessions or 0, "messages": holds.messages or 0}
        return replace(holds, lacking=_some(lacking), problem=live.problem, compared="not")
    native = holds.dialect == NATIVE
    if budget.deep and native == (live.identity is not None):
        # Not the quick check: an index that lacks entries would hide rows from the comparison.
        said = [str(text) for (text,) in copy.rows("PRAGMA integrity_check(1)")]
        damage = "" if said == ["ok"] else f"it is damaged: {first_line(said) or 'no answer'}"
        lacking = _native_rows(copy, live) if native else dict(
            foreign.missing(copy, None, live.reader, live.deleted.__contains__).by_table()
        )
        if not native:
            lacking |= {one.table: one.rows for one in untaken(copy, None, live.reader, native=False)}
        lacking |= rows_of_other_tables(copy, live.reader)
        return replace(
            holds, compared="rows", lacking=_some(lacking), problem=damage,
            differing=differing(copy, live.reader, native=native),
        )
    with _bounded(copy, budget) as bound:
        try:
            return replace(holds, compared="counts", lacking=_some(_by_counts(copy, live, native)))
        except StateError:
            if not bound.passed:
                raise
    return replace(holds, problem="comparing it takes longer than a quick look; --deep does it")


def _by_counts(copy: PrivateCopy, live: Live, native: bool) -> dict[str, int]:
    """What the store lacks at least, by session ids and numbers of messages."""
    lacking: Counter[str] = Counter()
    counts = messages_by_session(copy, native=native)
    if native and live.deleted_messages:
        for key, number in copy.rows("SELECT s.id, m.id FROM messages m JOIN sessions s ON s.no = m.session_no"):
            counts[str(key)] -= number in live.deleted_messages
    for key, count in counts.items():
        if key not in live.counts:
            if key not in live.deleted:
                lacking["sessions"] += 1
                lacking["messages"] += count
        else:
            lacking["messages"] += max(0, count - live.counts[key])
    return dict(lacking)


def _native_rows(copy: PrivateCopy, live: Live) -> dict[str, int]:
    """Sessions and messages of a native copy that the store lacks, by what they say: the row check is over it."""
    identity = native_identity(copy)
    same = identity is not None and identity.store_id == live.identity
    lacking: Counter[str] = Counter()
    orphans = copy.row("SELECT count(*) FROM messages WHERE session_no NOT IN (SELECT no FROM sessions)")
    lacking["messages"] += int(orphans[0]) if orphans else 0
    for no, key in copy.rows("SELECT no, id FROM sessions"):
        if key in live.deleted:
            continue
        lacking["sessions"] += key not in live.counts
        here = Counter(
            live._open.rows(
                "SELECT m.role, m.created_at, m.row_check FROM messages m JOIN sessions s ON s.no = m.session_no "
                "WHERE s.id = ?", (key,),
            )
        )
        for number, *said in copy.iterate(
            "SELECT id, role, created_at, row_check FROM messages WHERE session_no = ?", (no,)
        ):
            mark = tuple(said)
            if here[mark] > 0:
                here[mark] -= 1
            elif not (same and number in live.deleted_messages):
                lacking["messages"] += 1
    lacking["compactions"] = compactions_lacking(copy, live._open, live.deleted)
    if same:
        lacking["outbox"] = obligations_lacking(copy, live._open)
        lacking["gateway_instances"] = instances_lacking(copy, live._open)
        lacking["routing"] = routes_lacking(copy, live._open)
        lacking["cron"] = jobs_lacking(copy, live._open)
        lacking |= rows_lacking(copy, live._open)
    return dict(lacking)


def _some(rows: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(rows.items()) if count}


@dataclass(kw_only=True)
class _Bound:
    passed: bool = False


@contextmanager
def _bounded(copy: PrivateCopy, budget: Budget) -> Iterator[_Bound]:
    """Interrupt statements of the block once it took longer than the budget says."""
    import time

    bound, end = _Bound(), time.monotonic() + budget.seconds

    def over() -> bool:
        bound.passed = bound.passed or time.monotonic() > end
        return bound.passed

    copy.on_progress(None if budget.deep else over)
    try:
        yield bound
    finally:
        copy.on_progress(None)
