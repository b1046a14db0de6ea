"""Recover every damaged store of a folder: `python examples/recover_all.py FOLDER OUTPUT_FOLDER`.

Each `*.db` below FOLDER is looked at first; what is sound is passed over. Results, reports and what was kept apart are
new files in OUTPUT_FOLDER; no store is written to. Run it again after an interrupt: it goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes_state.errors import StateError
from maintenance.recovery import Report, inspect, recover


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one store."""

    source: Path
    # None when it was sound, or could not be recovered
    report: Report | None
    # why it could not, "" when it could
    problem: str = ""


def recover_all(folder: Path, output: Path) -> Iterator[Result]:
    """Recover the damaged stores below `folder`, one after the other; sound ones are not given."""
    output.mkdir(parents=True, exist_ok=True)
    for source in sorted(folder.rglob("*.db")):
        target = output / f"{'-'.join(source.relative_to(folder).parts)}"
        if target.exists():
            continue  # done by an earlier run
        try:
            if inspect(source).damaged:
                yield Result(source=source, report=recover(source, target, allow_partial=True))
        except StateError as error:
            yield Result(source=source, report=None, problem=f"{error} {error.hint}".strip())


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    failed = False
    for result in recover_all(Path(arguments[0]), Path(arguments[1])):
        if result.report is None:
            failed = True
            print(f"{result.source}: {result.problem}")
            continue
        rows = sum(table.rows for table in result.report.tables)
        lost = sum(table.lost_keys for table in result.report.tables)
        more = "; more may be lost, see the report" if result.report.lost and not lost else ""
        print(f"{result.source}: {rows:,} rows in {result.report.output}, {lost:,} known to be lost{more}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
