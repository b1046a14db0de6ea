"""`recover`: everything that can be had of a damaged source, in a new and verified file, with a report of what is lost.

Invariant: the source is copied raw by a child process before SQLite opens anything, and only the copy is read after
that; the result gets its name when it is verified, and never the name of something that is there. Each step is kept, so
a run that was killed or cancelled goes on and ends with the same result.

Not for: putting the result in the place of the damaged store (`install.py`). Recovering in place was rejected: the
damaged bytes are all there is.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.create import publish
from hermes_state.errors import InvalidInput, MarksDamaged, NotAStore, RecoveryStopped, Refused, StateError
from hermes_state.flushing import sync_file
from maintenance.marks import Marks, marks_path, read_marks, set_mark
from maintenance.recovery import reporting
from maintenance.recovery.gathering import Gathering
from maintenance.recovery.install import restore_command
from maintenance.recovery.records import Cancel, Progress, Report, Source, TableReport, rows_are_lost
from maintenance.recovery.sources import find_source
from maintenance.recovery.work import NAMED, Work, named_by_a_killed_run, work_folder, working
from maintenance.recovery.work import finish as forget_work
from maintenance.space.disk import Need, Room, require_room, rooms

ENDING = ".recovered.db"
REPORT_ENDING = ".recovery.json"
APART_ENDING = ".recovery-apart.jsonl"
PARTIAL = ".partial"
MARGIN_BYTES = 256 << 20
MARGIN_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Names:
    """The files that a run makes."""

    output: Path
    report: Path
    apart: Path


def default_output(source: Source) -> Path:
    """Where the result goes when nothing was said: beside the source."""
    base = source.given if source.given.is_dir() else source.name
    return base.with_name(base.name + ENDING)


def free_output(source: Source) -> Path:
    """The default name, or the next one with a number: for a result that goes into the store's place at once.

    Earlier results stay, and a run that was killed or stopped is gone on with under the name that it had.
    """
    first = default_output(source)
    stem = first.name.removesuffix(ENDING)
    names = (
        first if number == 1 else first.with_name(f"{stem}.{number}{ENDING}") for number in itertools.count(1)
    )
    return next(name for name in names if work_folder(name).exists() or not _is_taken(name))


def _is_taken(output: Path) -> bool:
    made = (*_beside(output), Path(f"{output}{REPORT_ENDING}"), Path(f"{output}{APART_ENDING}"))
    return any(path.exists() or path.is_symlink() for path in made)


def recover(
    source: Path | str, output: Path | str | None = None, *, native: bool = False, allow_partial: bool = False,
    report: Path | str | None = None, progress: Progress | None = None, cancel: Cancel | None = None,
    clock: Clock = SYSTEM,
) -> Report:
    """Recover `source` into the new file `output` and say what was found, what is certain and what is lost.

    source: a damaged store, a bare file, a folder of quarantined files, or a capture; never written. output: default
    "<source>.recovered.db". native: make a native store of a file of hermes-agent. allow_partial: give the result its
    name although rows are known to be lost; otherwise ".partial" is added to it and `Report.partial` says so. progress
    is called with a `Step`; cancel is asked now and then, and when it says True, `RecoveryStopped` is raised and the
    same call goes on later.

    Raises `NotFound`, `NotAStore` (no rows in it at all), `InsufficientSpace`, `LockTimeout` (it is being written to),
    `Refused` (the output exists), `Corrupt` (the result could not be verified), `RecoveryStopped`.
    """
    started = clock.monotonic()
    found = find_source(Path(source))
    target = Path(output).expanduser().absolute() if output is not None else default_output(found)
    names = Names(
        output=target,
        report=Path(report).expanduser().absolute() if report is not None else Path(f"{target}{REPORT_ENDING}"),
        apart=Path(f"{target}{APART_ENDING}"),
    )
    _refuse_places(found, names)
    _refuse_taken(found, names, named_by_a_killed_run(found, target))
    require_space(found, target)
    with working(found, target) as work:
        resumed = work.resumed
        try:
            if not resumed:
                _refuse_taken(found, names, frozenset())
            gathering = Gathering(work, found, search=not native, progress=progress, cancel=cancel, clock=clock)
            document = gathering.document()
            ending = _Ending(work, found, names, native=native, resumed=resumed, clock=clock)
            result = ending.publish(document, allow_partial=allow_partial, started=started)
        except RecoveryStopped:
            raise
        except StateError as error:
            if isinstance(error, NotAStore) or work.result("copied") is None:
                forget_work(work)  # nothing is in it that a later run could go on with
            raise
        forget_work(work)
    return result


def require_space(source: Source, output: Path) -> None:
    """Refuse when the copy and the result do not fit beside the output."""
    require_room(
        _rooms(source, output), what=f"Recovering {source.name}", instead="Or name an --output on another disk."
    )


def space_needed(source: Source, output: Path) -> tuple[int, int]:
    """Bytes that a recovery needs beside its output, and bytes that are free there."""
    found = _rooms(source, output)
    return (found[0].needed_bytes, found[0].free_bytes) if found else (0, 0)


def _rooms(source: Source, output: Path) -> tuple[Room, ...]:
    # What is on the disk, not how long it is: a sparse file stays one.
    size = sum(_on_disk(path.stat()) for _part, path in source.files)
    needs = [Need(directory=output.parent, bytes=2 * size, what="the copy and the result")]
    return rooms(needs, margin_bytes=max(MARGIN_BYTES, int(size * MARGIN_SHARE)))


def _on_disk(state: os.stat_result) -> int:
    return state.st_blocks * 512 if hasattr(state, "st_blocks") else state.st_size


def _refuse_places(source: Source, names: Names) -> None:
    """Refuse what can never be: names in no folder or in one that cannot be written to, or one name for two files."""
    if any(names.output == path for _part, path in source.files):
        raise InvalidInput(
            "--output names the source itself.", hint="Name a new file: the source is never written.", option="--output"
        )
    taken = {*_beside(names.output), names.apart, marks_path(names.output)}
    work = work_folder(names.output)
    if names.report in taken or work in (names.report, *names.report.parents):
        raise InvalidInput(
            f"--report names {names.report}, which is made for something else.",
            hint="Name another file with --report, or leave it out.", option="--report", path=names.report,
        )
    for option, folder in (("--output", names.output.parent), ("--report", names.report.parent)):
        if not folder.is_dir():
            raise InvalidInput(f"The folder {folder} does not exist.", hint="Create it first.", path=folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInput(
                f"Nothing can be written to the folder {folder}.", hint=f"Name a file elsewhere with {option}.",
                option=option, path=folder,
            )


def _refuse_taken(source: Source, names: Names, ours: frozenset[Path]) -> None:
    """Refuse names that something has. `ours`: what a killed run of the same recovery has named already."""
    for path in (*_beside(names.output), names.report, names.apart):
        if path not in ours and (path.exists() or path.is_symlink()):
            chosen = path == names.report and path != Path(f"{names.output}{REPORT_ENDING}")
            option = "--report" if chosen else "--output"
            hint = f"Name a new file with {option}."
            if path == Path(f"{names.output}{PARTIAL}"):
                hint = (
                    "An earlier recovery ended there, with rows lost. "
                    f"`{restore_command(path, source.main or source.given)}` puts that in the store's place; to "
                    f"recover anew, name a new file with {option}."
                )
            raise Refused(f"{path} exists already.", hint=hint, path=path)


def _beside(output: Path) -> tuple[Path, ...]:
    return (output, *(Path(f"{output}{ending}") for ending in ("-wal", "-shm", "-journal", PARTIAL)))


class _Ending:
    """From the finished file in the work folder to the names that people see."""

    def __init__(
        self, work: Work, source: Source, names: Names, *, native: bool, resumed: bool, clock: Clock
    ) -> None:
        self._work, self._source, self._names, self._native = work, source, names, native
        self._was_resumed, self._clock = resumed, clock

    def publish(self, document: dict[str, Any], *, allow_partial: bool, started: float) -> Report:
        """Give everything its name."""
        tables = [_table(said) for said in document["tables"]]
        partial = rows_are_lost(tables, document["decisions"]) and not allow_partial
        output = Path(f"{self._names.output}{PARTIAL}") if partial else self._names.output
        filled = self._work.filled
        dialect = document["dialect"]
        verified = dict(document["verified"])
        marks, unread = self._marks()
        if self._native and dialect == "foreign":
            from maintenance.recovery.adopting import adopt_recovered

            filled = self._work.folder / "native.db"
            if self._work.result("adopted") is None:
                self._work.done("adopted", adopt_recovered(self._work.filled, filled, marks, self._clock)[1])
            verified["adopted"] = self._work.result("adopted")
            dialect = "native"
        # What a killed run has named is not in the folder any more, and is this run's.
        earlier = self._work.result(NAMED) or {}
        if not filled.exists():
            filled = next((path for path in map(Path, (earlier["output"], earlier["was"])) if path.exists()), filled)
        self._work.done(NAMED, {
            "output": str(output), "report": str(self._names.report), "apart": str(self._names.apart),
            "was": str(filled),
        })
        has_apart = document["apart_lines"] > 0
        report = Report(
            source=self._source, files=self._work.files(), dialect=dialect, schema=document["schema"], output=output,
            report_path=self._names.report, apart_path=self._names.apart if has_apart else None, partial=partial,
            tables=tables, decisions=[*document["decisions"], *unread], time_gaps=document["time_gaps"],
            rungs=document["rungs"], verified=verified, started_at=self._clock.now(),
            seconds=self._clock.monotonic() - started, resumed=self._was_resumed,
        )
        staged_apart = self._work.folder / "apart.jsonl"
        if has_apart and (staged_apart.exists() or not self._names.apart.exists()):
            self._publish(staged_apart, self._names.apart)
        sync_file(filled)
        if dialect == "foreign":
            # Before the file has its name: what is pinned must never be there without its pin.
            for mark in ("pinned", "archived"):
                set_mark(output, getattr(marks, mark), mark, True)
        # Before the result has its name as well: a file that looks finished has its report beside it.
        reporting.write_report(
            report.document(), self._names.report, ours=str(self._names.report) == earlier.get("report")
        )
        if filled != output:
            self._publish(filled, output)
        return report

    def _marks(self) -> tuple[Marks, list[dict[str, Any]]]:
        """Pins and archive marks that lie beside the source; without them prune deletes what was pinned."""
        try:
            return read_marks(self._source.name), []
        except MarksDamaged as error:
            path = marks_path(self._source.name)
            return Marks(path=path), [
                {"what": "marks_left_out", "file": str(path), "why": error.message}
            ]

    def _publish(self, staged: Path, target: Path) -> None:
        if not publish(staged, target):
            raise Refused(f"{target} exists already.", hint="Name a new file with --output.", path=target)


def _table(said: dict[str, Any]) -> TableReport:
    """A table's report again, as it was kept in the work folder."""
    return TableReport(
        name=said["table"], rows=said["rows"], certain=said["certain"], uncertain=said["uncertain"],
        placeholders=said["placeholders"], confirmed=said["confirmed"], apart=said["apart"],
        deleted_remains=said["deleted_remains"], uncertain_keys=said["uncertain_keys"],
        placeholder_keys=said["placeholder_keys"], reasons=said["reasons"], lost=said["lost"],
        lost_keys=said["lost_keys"], lost_ranges=[(first, last) for first, last in said["lost_ranges"]],
        duplicates=said["duplicates"], duplicate_rows=said["duplicate_rows"], rungs=said["rungs"],
        complete=said["complete"], unreadable=said["unreadable"], seconds=said["seconds"],
    )
