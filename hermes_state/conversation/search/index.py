"""One process's hold on the index file: its connections, and what to do when they fail.

Invariant: nothing that happens to the file reaches a caller as an error. `trouble` says of every failure whether the
file must be emptied (damaged, cut off, not ours by its marks), opened again (deleted or replaced), or left alone for a
while (busy, disk full, read-only, another program's). A reader never waits; the only writer of a process is used by
one thread at a time.

Not for: what is in the index (see `layout.py`, `catch_up.py`). Closing the connections after each search was rejected:
opening costs more than most searches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.conversation.search.layout import (
    APPLICATION_ID,
    Marks,
    StoreState,
    index_path,
    read_marks,
    schema,
)
from hermes_state.conversation.search.ranking import AUXILIARIES
from hermes_state.engine.derived import (
    DerivedReader,
    DerivedStore,
    make_derived,
    open_derived_reader,
    open_derived_writer,
)
from hermes_state.errors import (
    Corrupt,
    DiskFull,
    ForeignStore,
    GenerationLost,
    IOFailure,
    LockTimeout,
    NotAStore,
    NotFound,
    StateError,
    StatementFailed,
)

SHORT_READ = 522  # SQLITE_IOERR_SHORT_READ: the file is shorter than it says
REST_SECONDS = 5.0  # after a failure that will not go away by itself
MOST_IDLE_READERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Why the index cannot be used now."""

    reason: str
    # it has to be emptied and filled anew
    rebuild: bool = False
    # it is not worth trying to write to it for `REST_SECONDS`
    rest: bool = False


class Index:
    """The index file of one store. Safe for threads."""

    def __init__(self, store: Path, clock: Clock) -> None:
        self.path = index_path(store)
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: list[DerivedReader] = []
        self._writer: DerivedStore | None = None
        self._writing = threading.Lock()
        self._rest_until = float("-inf")
        self._why_resting = ""
        self._seen = ""  # generation of the index that was asked last

    # --- reading ---------------------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[DerivedReader]:
        """A reader for the block; what fails in it is for `trouble`, and that reader is not used again."""
        reader = self._idle_reader() or self._open_reader()
        try:
            yield reader
        except BaseException:
            reader.let_go()
            raise
        with self._lock:
            if len(self._readers) < MOST_IDLE_READERS and reader.stopped is None:
                self._readers.append(reader)
                return
        reader.let_go()

    def _idle_reader(self) -> DerivedReader | None:
        while True:
            with self._lock:
                if not self._readers:
                    return None
                reader = self._readers.pop()
            if reader.stopped is None and not reader.lost_files():
                return reader
            reader.let_go()

    def _open_reader(self) -> DerivedReader:
        reader = open_derived_reader(self.path, auxiliaries=AUXILIARIES, clock=self._clock)
        try:
            if reader.application_id != APPLICATION_ID:
                names = {name for (name,) in reader.rows("SELECT name FROM sqlite_schema")}
                if names and not names & {"marks", "terms"}:
                    raise ForeignStore(
                        f"{self.path} is another program's database.", hint="Move it away: its name is needed.",
                        path=self.path,
                    )
                raise NotAStore(f"{self.path} is not a search index.", hint="It is built anew.", path=self.path)
        except BaseException:
            reader.let_go()
            raise
        return reader

    def marks(self, reader: DerivedReader) -> Marks:
        """The marks. Raises `NotAStore` when there are none."""
        try:
            found = read_marks(reader)
        except StatementFailed as error:
            raise NotAStore(f"{self.path} has no marks.", hint="It is built anew.", path=self.path) from error
        if found is None:
            raise NotAStore(f"{self.path} has no marks.", hint="It is built anew.", path=self.path)
        self._seen = found.generation
        return found

    # --- writing ---------------------------------------------------------------------------------------------

    @contextmanager
    def writer(self) -> Iterator[DerivedStore | None]:
        """The writer for the block; None while another thread or process is writing."""
        if not self._writing.acquire(blocking=False):
            yield None
            return
        try:
            writer = self._writer
            if writer is not None and (writer.stopped is not None or writer.lost_files()):
                writer.let_go()
                writer = self._writer = None
            if writer is None:
                writer = self._writer = open_derived_writer(
                    self.path, application_id=APPLICATION_ID, clock=self._clock
                )
            if writer.busy():
                yield None
                return
            try:
                yield writer
            except BaseException:
                writer.let_go()
                self._writer = None
                raise
        finally:
            self._writing.release()

    def rebuild(self, state: StoreState, *, force: bool = False) -> Trouble | None:
        """Make or empty the file for that store; None when that was done, else why not.

        Unless forced, an index that another process made of it meanwhile is left as it is.
        """
        if self.resting:
            return Trouble(reason=self._why_resting)
        self.let_go()
        bad = self._seen

        def done_by_others() -> bool:
            try:
                with self.reader() as reader:
                    marks = self.marks(reader)
            except StateError:
                return False
            return marks.fits(state) and marks.generation != bad and not force

        try:
            if make_derived(self.path, schema(state), application_id=APPLICATION_ID, unless=done_by_others):
                return None
        except StateError as error:
            return self.trouble(error)
        except OSError as error:
            return self._rest(Trouble(reason=f"{self.path} cannot be made: {error.strerror}", rest=True))
        return Trouble(reason=f"another process is making {self.path}")

    # --- trouble ---------------------------------------------------------------------------------------------

    @property
    def resting(self) -> bool:
        """True for a while after a failure that a new attempt would only repeat."""
        return self._clock.monotonic() < self._rest_until

    def trouble(self, error: StateError) -> Trouble:
        """What a failure means, by its class and SQLite's code, never by its text."""
        if isinstance(error, NotFound):
            return Trouble(reason=f"{self.path} is not there yet", rebuild=True)
        if isinstance(error, (Corrupt, NotAStore)):
            return Trouble(reason=f"{self.path} is damaged: {error.message}", rebuild=True)
        if isinstance(error, StatementFailed) and not self._answers():
            return Trouble(reason=f"{self.path} is damaged: {error.message}", rebuild=True)
        if isinstance(error, IOFailure) and error.sqlite_extended == SHORT_READ:
            return Trouble(reason=f"{self.path} was cut off: {error.message}", rebuild=True)
        if isinstance(error, GenerationLost):
            return Trouble(reason=f"{self.path} was deleted or replaced")
        if isinstance(error, LockTimeout):
            return Trouble(reason=f"{self.path} is in use by another process")
        if isinstance(error, DiskFull):
            return self._rest(Trouble(reason=f"the disk of {self.path} is full", rest=True))
        return self._rest(Trouble(reason=f"{self.path} cannot be used: {error.message}", rest=True))

    def _answers(self) -> bool:
        """Whether the simplest question is answered: FTS5 reports some damage as if a statement were wrong."""
        try:
            with self.reader() as reader:
                reader.rows("SELECT rowid FROM terms WHERE terms MATCH 'a' LIMIT 1")
        except (StatementFailed, Corrupt, NotAStore):
            return False
        except StateError as error:
            # What keeps it from answering is not what it holds.
            return not isinstance(error, NotFound)
        return True

    def _rest(self, trouble: Trouble) -> Trouble:
        self._rest_until = self._clock.monotonic() + REST_SECONDS
        self._why_resting = trouble.reason
        return trouble

    # --- closing ---------------------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Close the idle connections; those in use close when their work ends."""
        with self._lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.let_go()
        if self._writing.acquire(blocking=False):
            try:
                if self._writer is not None:
                    self._writer.let_go()
                    self._writer = None
            finally:
                self._writing.release()
