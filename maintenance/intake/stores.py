"""A session store as something to import from: hermes-agent's state.db, or another native store.

Invariant: the file is only read, through the door, whoever else has it open; its records are the ones that an export of
it would have, so importing a store and importing its export give the same. Messages that are newer than the first look
are left for the next import.

Not for: turning a whole file into a native store in place (`sessions adopt`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine import open_read
from maintenance.dialects.detect import dialect_of
from maintenance.intake.columns import NAMESPACE
from maintenance.intake.lines import scrub
from maintenance.intake.model import Event, Looked, SourceName
from maintenance.intake.records import RecordReader

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ReadStore
    from maintenance.dialects.base import Dialect


class StoreSource:
    """A store file as a `Source`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._high_id: int | None = None
        with open_read(path, clock=clock) as store:
            self._dialect: Dialect = dialect_of(store)
        self.name: SourceName = "hermes-state" if self._dialect.name == "native" else "hermes-agent"

    def look(self) -> Looked:
        """Read it once."""
        reader = RecordReader()
        with closing(self._pass(reader)) as events:
            for _ in events:
                pass
        return Looked(sessions=reader.sessions(), tally=reader.tally, namespace=NAMESPACE, one_by_one=True)

    def events(self) -> Generator[Event, None, None]:
        """Messages, and what hides them."""
        yield from self._pass(RecordReader())

    def _pass(self, reader: RecordReader) -> Generator[Event, None, None]:
        with open_read(self.path, clock=self._clock) as store:
            with store.snapshot():
                newest = self._dialect.newest_message(store)
                self._high_id = newest if self._high_id is None else self._high_id
                ids = [facts.id for facts in self._dialect.facts(store)]
            # A snapshot for each session: a long import must not hold back the checkpoints of a live store.
            for session_id in sorted(ids):
                with store.snapshot():
                    yield from self._session(store, reader, session_id)

    def _session(self, store: ReadStore, reader: RecordReader, session_id: str) -> Iterator[Event]:
        record = self._dialect.session_record(store, session_id)
        if record is None:
            return  # deleted since the list was made
        if usage := self._dialect.usage_records(store, session_id):
            record.setdefault("usage", usage)
        key = scrub(session_id)
        yield reader.session(key, _clean(record))
        for message in self._dialect.message_records(store, session_id):
            if self._high_id is not None and message["id"] > self._high_id:
                break
            yield from reader.message(key, _clean(message), 0)
        yield from reader.close(key)


def _clean(record: dict[str, Any]) -> dict[str, Any]:
    return {name: scrub(value) for name, value in record.items()}
