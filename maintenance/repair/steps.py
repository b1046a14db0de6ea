"""The steps of a repair on the private copy, in order of least harm, each followed by the same proofs.

Invariant: after every step that changed something, each ordinary table has the rows that it had before the first one,
and no more rows dangle than before; a step that breaks this ends the repair, and the copy is thrown away. The order is:
the schema when SQLite refuses it, because no other step can be proved without it; search indexes; ordinary indexes; a
rewrite of the whole file only when pages are left to nobody or the lists of pages are damaged.

Not for: the store itself. Trying every step on every damage was rejected: what is sound is not rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from hermes_state.engine import APPLICATION_ID, NulRule
from hermes_state.engine.private import PrivateCopy, open_private
from hermes_state.errors import Corrupt, RepairFailed, RepairStopped, StateError
from maintenance.doctor.findings import Finding, recover_command
from maintenance.quoting import literal
from maintenance.repair.diagnosis import Diagnosis, kind_of
from maintenance.repair.index_step import rebuild_index
from maintenance.repair.report import Doing, Step, TablePrint
from maintenance.repair.rows import foreign_key_breaches, require_same_rows, row_prints
from maintenance.repair.schema_step import make_missing, mend_schema
from maintenance.repair.search_step import rebuild_search_index, rule_to_write

Say = Callable[[Doing], None]
Stopped = Callable[[], bool]


class Mending:
    """One private copy under repair."""

    def __init__(self, copy: Path, store: Path, say: Say, stopped: Stopped) -> None:
        self.copy = copy
        self.steps: list[Step] = []
        self.tables: dict[str, TablePrint] = {}
        self._store = store
        self._say = say
        self._stopped = stopped
        self._breaches: int | None = None
        self._rewrite = False

    def run(self, diagnosis: Diagnosis) -> Path:
        """Do every step; returns the file that is ready, which need not be the copy it began with."""
        self._remember()
        by_kind = {kind: [one for one in diagnosis.derived if kind_of(one) == kind] for kind in
                   ("schema", "search index", "index", "rebuild")}
        if by_kind["schema"]:
            self._do("schema", lambda: self._schema(by_kind["schema"]))
        rule = rule_to_write(self.copy)
        for name in dict.fromkeys(finding.object for finding in by_kind["search index"]):
            self._do(f"search index {name}", lambda name=name: self._search(name, rule))  # type: ignore[misc]
        for name in dict.fromkeys(name for finding in by_kind["index"] for name in self._indexes(finding)):
            self._do(f"index {name}", lambda name=name: self._index(name))  # type: ignore[misc]
        if self._rewrite or by_kind["rebuild"]:
            self._do("rewrite", lambda: self._rebuild([finding.object for finding in by_kind["rebuild"]]))
        return self.copy

    # --- proofs ----------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """The rows before the first step. A table that cannot be read in full is canonical damage after all."""
        self._say(Doing(doing="reading every row"))
        with open_private(self.copy, search_modules=False, tolerant=True) as private:
            try:
                self.tables = row_prints(private)
            except StateError as error:
                raise Corrupt(
                    f"{self._store} cannot be repaired, because its rows cannot all be read. {error.message} Nothing "
                    "was changed.",
                    hint=f"Run `{recover_command(self._store)}`: it reads the rows that can be read into a new file.",
                    path=self._store, search_index=False, sqlite_code=error.sqlite_code,
                    sqlite_extended=error.sqlite_extended,
                ) from error
            self._breaches = _breaches(private)

    def _do(self, name: str, work: Callable[[], None]) -> None:
        self._go_on()
        self._say(Doing(doing=f"working on {name}"))
        work()
        self._say(Doing(doing=f"comparing every row after {name}"))
        with open_private(self.copy, search_modules=False, tolerant=True) as private:
            require_same_rows(self._store, name, self.tables, row_prints(private))
            now = _breaches(private)
        if self._breaches is not None and (now is None or now > self._breaches):
            raise RepairFailed(
                f"The repair of {self._store} was thrown away: after the step {name} more rows refer to rows that are "
                "gone. The store is as it was.",
                hint=f"Run `{recover_command(self._store)}`.", path=self._store, step=name,
            )

    def _go_on(self) -> None:
        """Raise when the caller wants to stop."""
        if self._stopped():
            raise stopped(self._store)

    # --- steps -----------------------------------------------------------------------------------------------

    def _schema(self, findings: list[Finding]) -> None:
        known = known_definitions(self.copy)
        rows = {finding.facts.get("rowid") for finding in findings if finding.code == "schema_entry_damaged"}
        if rows:
            self.steps += mend_schema(self.copy, known, NulRule.CUT, rows)
            self._rewrite = True  # the tree of a removed entry belongs to nobody
        for finding in findings:
            if finding.code == "schema_object_missing":
                kind = str(finding.facts.get("kind", "index"))
                self.steps += make_missing(self.copy, finding.object, kind, known, NulRule.CUT)

    def _search(self, name: str, rule: NulRule) -> None:
        step, left = rebuild_search_index(self.copy, self._store, name, rule)
        self.steps.append(step)
        self._rewrite |= left

    def _index(self, name: str) -> None:
        step, left = rebuild_index(self.copy, self._store, name)
        self.steps.append(step)
        self._rewrite |= left

    def _indexes(self, finding: Finding) -> Iterator[str]:
        """The indexes that a finding is about: itself, or all of the table that it names."""
        if finding.code != "index_content_differs":
            yield finding.object
            return
        with open_private(self.copy, search_modules=False, tolerant=True) as private:
            for row in private.rows(f"PRAGMA index_list({literal(finding.object)})"):
                yield str(row[1])

    def _rebuild(self, objects: list[str]) -> None:
        target = self.copy.with_name("rewritten.db")
        target.unlink(missing_ok=True)
        with open_private(self.copy) as private:
            private.on_progress(self._stopped)
            try:
                private.rows("VACUUM INTO ?", (str(target),))
            except StateError:
                self._go_on()  # an interrupted statement is no failure of the file
                raise
        self.copy = target
        done = [Step(kind="rebuild", object=name, how="file written anew") for name in objects]
        self.steps += done or [Step(kind="rebuild", object="use of pages", how="file written anew")]


def stopped(store: Path) -> RepairStopped:
    """The caller wanted it to end."""
    return RepairStopped(f"The repair of {store} was cancelled; the store is as it was.", path=store)


def known_definitions(copy: Path) -> dict[tuple[str, str], str]:
    """Statements by (kind, name) of the release that the file is of: for a native store all, else those of indexes."""
    from hermes_state.engine.salvage import schema_entries
    from hermes_state.engine.schema import schema_sql
    from maintenance.recovery.known import known_shapes

    with open_private(copy, search_modules=False, tolerant=True) as private:
        if private.row("PRAGMA application_id") == (APPLICATION_ID,):
            return {(kind, name): sql for kind, name, _table, sql in schema_entries(schema_sql()) if sql}
        version = _schema_version(private)
    shapes = [shape for shape in known_shapes() if shape.version == version and version is not None]
    return {("index", name): sql for shape in shapes for name, sql in shape.indexes.items()}


def _schema_version(private: PrivateCopy) -> int | None:
    try:
        row = private.row("SELECT version FROM schema_version")
    except StateError:
        return None
    return row[0] if row is not None and isinstance(row[0], int) else None


def _breaches(private: PrivateCopy) -> int | None:
    try:
        return foreign_key_breaches(private)
    except StateError:
        return None  # the damage of an index keeps it from being asked


