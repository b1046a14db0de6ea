"""An export that hermes-agent's own import loads: one session a line, each file within the limits of one import.

Invariant: sessions that the import would refuse are left out and named. When one file would be too much for one import,
the rest goes into further files, numbered in the order to import them.

Not for: what a record holds (`maintenance.interop.to_hermes_agent`). One large file was rejected: the import refuses it
whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from maintenance.interop.to_hermes_agent import RELEASE, Limits, Tally, files
from maintenance.reading.export.redact import Redactor
from maintenance.reading.export.run import ExportedFile, finished, verify
from maintenance.reading.export.target import refuse_target, staged

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.dialects.base import Dialect
    from maintenance.reading.export.items import Chosen


@dataclass(kw_only=True)
class Handed:
    """What is handed over, and how."""

    store: ReadStore  # where from
    dialect: Dialect  # what its tables mean
    chosen: Chosen  # which sessions
    redactor: Redactor | None  # masks secrets, when asked for
    tally: Tally  # filled in
    limits: Limits = RELEASE  # of one import

    def write(self, target: Path, db: Path, *, force: bool) -> list[ExportedFile]:
        """Write `target`, and target-2, target-3, ... when it takes more than one import."""
        done: list[ExportedFile] = []
        fresh: list[Path] = []
        try:
            with self.store.snapshot():
                for batch in self._batches():
                    place = target if not done else target.with_name(f"{target.stem}-{len(done) + 1}{target.suffix}")
                    new = not place.exists()
                    done.append(_write(batch, place, db, force=force))
                    fresh += [place] * new
        except BaseException:
            for place in fresh:  # an export that fails leaves nothing
                place.unlink(missing_ok=True)
            raise
        return done or [_write([], target, db, force=force)]

    def stream(self, out: TextIO) -> int:
        """Write all lines to a stream; gives the number of imports that they are."""
        count = 0
        with self.store.snapshot():
            for batch in self._batches():
                _lines(batch, out)
                count += 1
        out.flush()
        return count

    def _batches(self) -> Iterable[list[dict[str, Any]]]:
        found = files(self.store, self.dialect, self.chosen.ids, limits=self.limits, tally=self.tally)
        # A mask is shorter than most secrets and never much longer, so a masked file stays within the limits.
        return found if self.redactor is None else (self.redactor.apply(batch) for batch in found)


def _write(batch: list[dict[str, Any]], target: Path, db: Path, *, force: bool) -> ExportedFile:
    refuse_target(target, db, force=force)
    with staged(target) as partial:
        with partial.open("w", encoding="ascii", newline="\n") as out:
            _lines(batch, out)
        verify(partial, "jsonl", len(batch), sum(len(record["messages"]) for record in batch))
    return finished(target)


def _lines(batch: list[dict[str, Any]], out: TextIO) -> None:
    for record in batch:
        out.write(json.dumps(record, allow_nan=False) + "\n")
