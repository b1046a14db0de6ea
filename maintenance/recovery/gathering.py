"""Gathering: from the raw copy to a file that is filled, mended and verified, with the numbers of the report.

Invariant: steps in one order, each kept in the work folder when it is done: copy, header, rows through SQL, rows from
pages, comparison with the source, references, numbers, indexes and checks. SQLite and the pages of the copy are never
open at the same time.

Not for: names of files and what a caller sees (`run.py`). One long function was rejected: a killed run must find each
step by itself.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hermes_state.clock import Clock
from hermes_state.engine.salvage import Salvage, open_building, open_salvage
from hermes_state.errors import StateError
from maintenance.quoting import literal
from maintenance.recovery import reporting
from maintenance.recovery.agreeing import compare_with_indexes
from maintenance.recovery.carve.schema import SCHEMA_SHAPE
from maintenance.recovery.carving import (
    LEAST_TREES,
    Carver,
    Wanted,
    missing_pages,
    open_image,
    tree_pages,
    unread_commits,
)
from maintenance.recovery.compactions import settle_compactions
from maintenance.recovery.confirming import confirm_messages
from maintenance.recovery.copying import copy_source
from maintenance.recovery.cron import settle_cron
from maintenance.recovery.crosscheck import cross_check
from maintenance.recovery.filling import Filler, TableFiller
from maintenance.recovery.finishing import compact, counts, finish, prepare, read_sequences, require_sound
from maintenance.recovery.header import mend_header
from maintenance.recovery.judging import judge_of
from maintenance.recovery.ladder import AROUND, Fate, Ladder, said_ok, tell
from maintenance.recovery.native import check_messages, give_identity
from maintenance.recovery.notes import Notes
from maintenance.recovery.owing import settle_owed
from maintenance.recovery.parents import give_parents
from maintenance.recovery.records import FILE_CUT, HARDLY_PAGES, PAGES_UNREADABLE, Cancel, Progress, Source, Step
from maintenance.recovery.routing import settle_routing
from maintenance.recovery.schema import Schema, virtual_tables_left_out
from maintenance.recovery.search import drop_search, rebuild_own, search_problem
from maintenance.recovery.serving import give_instances, settle_serving
from maintenance.recovery.settling import settle
from maintenance.recovery.source_schema import find_schema, try_open
from maintenance.recovery.verifying import compare_rows
from maintenance.recovery.work import Work


class Gathering:
    """One run over one work folder, up to the finished file."""

    def __init__(
        self, work: Work, source: Source, *, search: bool, progress: Progress | None, cancel: Cancel | None,
        clock: Clock,
    ) -> None:
        self._work, self._source, self._search = work, source, search
        self._progress, self._cancel, self._clock = progress, cancel, clock

    def document(self) -> dict[str, Any]:
        """Everything up to the finished file in the work folder; the report so far."""
        work = self._work
        if work.result("copied") is None:
            facts = copy_source(self._source, work.folder, progress=self._progress, cancel=self._cancel)
            work.done("copied", [file.document() for file in facts])
        if work.result("header") is None:
            work.done("header", {"mended": mend_header(work.copy, work.wal)})
        with open_image(work.copy, work.wal) as image:
            unread, missing = len(unread_commits(image)), missing_pages(image)
        schema = find_schema(work.copy, work.wal, name=self._source.name)
        gathered = work.result("gathered")
        if gathered is None:
            gathered = self._gather(schema, unread, missing)
            work.done("gathered", gathered)
        if work.result("cross-checked") is None:
            # Only beside damage: of a sound file it could say nothing.
            damaged = any(not table["complete"] or table["uncertain"] for table in gathered["tables"])
            names = list(schema.tables)
            work.done("cross-checked", {"rows": cross_check(work.copy, work.folder, names) if damaged else None})
        if work.result("finished") is None:
            work.done("finished", self._finish(schema, gathered))
        document: dict[str, Any] = dict(gathered)
        document["verified"] = {**gathered["verified"], **work.result("finished")["verified"]}
        if (rows := work.result("cross-checked")["rows"]) is not None:
            document["verified"]["rows_by_sqlite3_recover"] = rows
        document["decisions"] = gathered["decisions"] + work.result("finished")["decisions"]
        return document

    def _gather(self, schema: Schema, unread: int, missing: int) -> dict[str, Any]:
        """All rows, what refers to what, and the numbers of the report."""
        work = self._work
        reachable = try_open(work.copy) if schema.origin == "file" else None
        building = open_building(
            work.filled, page_size=schema.page_size, incremental_vacuum=schema.native,
            search_modules=not schema.native,
        )
        with building, ExitStack() as stack:
            if reachable is not None:
                stack.enter_context(reachable)
            notes = Notes(building)
            filler = Filler(building, notes)
            prepare(filler, schema, search=self._search)
            ladder = Ladder(
                work, filler, reachable, progress=self._progress, cancel=self._cancel, given=self._source.given
            )
            damaged = not ladder.sound or bool(schema.replaced)
            fillers = {
                name: TableFiller(filler, table, number, judge_of(schema, table, damaged=damaged))
                for number, (name, table) in enumerate(schema.tables.items())
            }
            fates = {name: ladder.read(fillers[name]) for name in fillers}
            sequences = read_sequences(reachable)
            # The quick check does not ask whether the keys of such a table are in order, and neither does reading it.
            keyed = {
                name for name, one in fillers.items()
                if one.table.rowid is None and fates[name].whole and reachable is not None
                and not said_ok(reachable, f"PRAGMA integrity_check({literal(name)})")
            }
            if reachable is not None:
                reachable.close()
            wanted = ladder.wanted(fates, fillers)
            for name in keyed:
                wanted[name].keyed = True
            if unread or keyed or any(fate.needs_carving for fate in fates.values()):
                self._carve(filler, schema, wanted)
            facts: dict[str, Any] = {
                "confirmed": {}, "compared": {}, "sequences": sequences, "unread": unread, "missing": missing,
                "pages": self._work.result("carving") or {},
            }
            if schema.origin == "file":
                if (compared := notes.load("compared")):
                    facts |= compared  # by a run that was killed after it: what it mended then is not the source's
                else:
                    with open_salvage(work.copy) as again:
                        self._compare(again, filler, fillers, schema, facts)
                    notes.save("compared", {name: facts[name] for name in ("confirmed", "compared")})
            if schema.native:
                # Before references are cleared: a message without its body is mended, not one without a reference.
                facts["confirmed"]["messages"] = check_messages(
                    filler, fillers["messages"], advance=self._rows("checking messages")
                )
            if schema.native:
                give_instances(filler, fillers, self._clock)
            give_parents(filler, schema, fillers)
            if schema.native:
                settle_owed(filler, fillers, fates, hidden=bool(unread), clock=self._clock)
                settle_serving(
                    filler, fillers, fates, hidden=bool(unread), numbered=bool(sequences), clock=self._clock
                )
                settle_routing(filler, fillers, fates, hidden=bool(unread), clock=self._clock)
                settle_cron(
                    filler, fillers, fates, hidden=bool(unread), numbered=bool(sequences), clock=self._clock
                )
                give_identity(filler, self._clock)
                settle(filler, fillers["messages"], whole=fates["messages"].whole, clock=self._clock)
                settle_compactions(filler, self._clock)
            return self._numbers(filler, schema, fillers, fates, facts)

    def _carve(self, filler: Filler, schema: Schema, wanted: dict[str, Wanted]) -> None:
        if not self._work.begin("carving"):
            filler.decisions.append({"what": "carving_left_out", "why": "it ended the process twice"})
            return

        def show(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(Step(doing="reading pages", done=done, total=total, unit="pages"))

        with open_image(self._work.copy, self._work.wal) as image:
            carver = Carver(filler, schema, wanted)
            carver.run(image, progress=show, cancel=self._cancel)
        if self._cancel is not None and self._cancel():
            self._work.let_go("carving")
        self._tell("carved", 1)
        self._work.done("carving", carver.unread)

    def _compare(
        self, salvage: Salvage, filler: Filler, fillers: dict[str, TableFiller], schema: Schema, facts: dict[str, Any],
    ) -> None:
        if not schema.native and "messages" in fillers:
            facts["confirmed"]["messages"] = confirm_messages(
                salvage, filler, fillers["messages"], schema, advance=self._rows("comparing with the search index")
            )
        for name, one in fillers.items():
            if one.table.rowid is not None and not one.judge.proves:
                compare_with_indexes(salvage, filler, one, self._rows(f"comparing {name} with its indexes"))
            if one.table.own:
                facts["compared"][name] = compare_rows(
                    salvage, filler, one, advance=self._rows(f"comparing {name}")
                )

    def _numbers(
        self, filler: Filler, schema: Schema, fillers: dict[str, TableFiller], fates: dict[str, Fate],
        facts: dict[str, Any],
    ) -> dict[str, Any]:
        db, notes = filler.db, filler.notes
        tables: list[dict[str, Any]] = []
        with db.transaction():
            for name, one in fillers.items():
                reporting.forget_what_was_found(notes, db, one)
                fate = fates[name]
                listed_missing = notes.count("_recovery_listed", one.number)
                about = {
                    "complete": (fate.whole or (fate.listed and not listed_missing)) and not listed_missing,
                    "listed": fate.listed, "seconds": fate.seconds,
                    # Keys of such a table are no numbers, so what could not be read is no range.
                    "unreadable": one.table.rowid is None and not fate.whole and AROUND in fate.seconds,
                }
                if name in facts["confirmed"]:
                    about["confirmed"] = facts["confirmed"][name]
                tables.append(reporting.table_report(notes, db, one, about).document())
        apart = self._work.folder / "apart.jsonl"
        apart.unlink(missing_ok=True)
        lines = reporting.write_apart(notes, apart)
        if facts["unread"]:
            filler.decisions.append({
                "what": "damaged_wal", "commits": facts["unread"],
                "sentence": "Commits in the WAL that SQLite does not read were read from its frames.",
            })
        if facts["missing"] and not all(table["complete"] for table in tables):
            filler.decisions.append({
                "what": FILE_CUT, "pages": facts["missing"],
                "sentence": f"The file was cut: its header counts {facts['missing']} pages that are not there.",
            })
        filler.decisions += self._unread_pages(schema, fates, facts["pages"])
        if schema.origin == "carved":
            filler.decisions.append({
                "what": "schema_incomplete",
                "sentence": "SQLite could not read the schema; tables whose entries are gone have their rows apart.",
            })
        filler.decisions += virtual_tables_left_out(schema)
        for name, release in schema.replaced.items():
            filler.decisions.append({"what": "statement_replaced", "table": name, "by_release": release})
        for name, fate in fates.items():
            if fate.cut_short:
                filler.decisions.append({"what": "bisection_cut_short", "table": name, "why": "its time was used up"})
        for name in schema.lost:
            filler.decisions.append({"what": "table_lost", "table": name, "why": "its statement cannot be read"})
        if self._work.result("header")["mended"]:
            filler.decisions.append({"what": "header_mended", "where": "private copy"})
        compared = facts["compared"]
        return {
            "dialect": "native" if schema.native else "foreign", "schema": schema.origin, "tables": tables,
            "decisions": filler.decisions, "time_gaps": reporting.time_gaps(db, schema), "apart_lines": lines,
            "rungs": sorted({rung for table in tables for rung in table["rungs"]}), "sequences": facts["sequences"],
            "verified": {
                "rows_equal_to_source": sum(pair[0] for pair in compared.values()),
                "rows_not_reachable_in_source": sum(pair[1] for pair in compared.values()),
            },
        }

    def _unread_pages(self, schema: Schema, fates: dict[str, Fate], pages: dict[str, int]) -> list[dict[str, Any]]:
        """Decisions about pages whose rows are gone without anything else that says so: no SQL, no index."""
        said: list[dict[str, Any]] = []
        # What a tree gave through SQL in part has ranges of keys; what an index lists has the keys themselves.
        blind = {SCHEMA_SHAPE.name, *(name for name, fate in fates.items() if fate.lost_tree and not fate.listed)}
        found = {name: count for name, count in sorted(pages.items()) if count and name in blind}
        if found:
            where = ", ".join(f"{name} ({count})" for name, count in found.items())
            said.append({
                "what": PAGES_UNREADABLE, "pages": sum(found.values()), "tables": found,
                "sentence": f"Pages of trees could not be read whole; rows that were on them are lost: {where}.",
            })
        if schema.origin not in ("file", "carved"):
            with open_image(self._work.copy, self._work.wal) as image:
                trees, filled = tree_pages(image)
            if trees < LEAST_TREES * filled:
                said.append({
                    "what": HARDLY_PAGES, "pages": filled, "tree_pages": trees,
                    "sentence": f"Of {filled} pages that are not empty only {trees} can be read as pages of a "
                    "database: what was found may be a small part of what there was.",
                })
        return said

    def _finish(self, schema: Schema, gathered: dict[str, Any]) -> dict[str, Any]:
        """Indexes, checks, and the last form of the file."""
        building = open_building(
            self._work.filled, page_size=schema.page_size, search_modules=not schema.native
        )
        with building:
            self._tell("building indexes", 0)
            filler = Filler(building, Notes(building))
            filler.decisions = []  # those from before are in the numbers
            finish(filler, schema, gathered["sequences"])
            rebuild_own(building, schema.texts)
            if not schema.native and (problem := search_problem(building)):
                drop_search(building)
                filler.decisions.append({
                    "what": "search_left_out", "why": problem,
                    "sentence": "The search index failed its check and was left out; hermes-agent builds it at its "
                    "start.",
                })
            self._tell("verifying", 0)
            verified = require_sound(building)
            wanted = {table["table"]: table["rows"] for table in gathered["tables"]}
            found = counts(building, schema)
            if wanted != found:
                raise StateError(
                    f"The file that was made has other numbers of rows than were put in: {wanted} and {found}.",
                    hint="Report this sentence.", path=self._work.filled,
                )
            compact(building)
        return {"verified": {**verified, "counts": "as reported"}, "decisions": filler.decisions}

    def _tell(self, doing: str, done: int) -> None:
        tell(self._progress, self._cancel, self._work, self._source.given, Step(
            doing=doing, done=done, total=None, unit="rows"
        ))

    def _rows(self, doing: str) -> Any:
        done = 0

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            self._tell(doing, done)

        return advance
