"""What a home's cron shows: jobs, slots, runs, incidents, events.

Invariant: nothing here writes or takes a lock, and every answer is of one home; only `in_flight_everywhere` joins
homes, for who counts what still runs. Whether a job runs is asked of its own home, never of the union.

Not for: changing anything (see `cron`). One list of bare job ids for all homes was rejected: a job of one home made
that of the same name in another look running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cron_store import events, home, incidents
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import rows as slot_rows
from cron_store.records import ClockStep, Event, Incident, Job, Occurrence, Run, TickerRow
from cron_store.runs import rows as run_rows
from cron_store.schedule import next_slots, slots
from cron_store.states import IncidentState, JobState, SlotState
from hermes_state.clock import Clock
from hermes_state.errors import Corrupt, IOFailure, NotFound, SchemaTooOld, StatementFailed
from hermes_state.outbox.inputs import whole
from hermes_state.routing import Home, home_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.store import Store

Result = TypeVar("Result")
MOST_PAGE = 10_000


class Looking:
    """Looking at one home. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._home: Home | None = None

    def reopened(self, store: Store) -> None:
        """Go on with the store that was closed, and is open again: what was seen of owners by other clocks, which takes
        minutes to tell, is remembered. `store` is of the same file."""
        assert store.path == self._store.path, "the cron of one file goes on at that file"
        self._store = store
        self._home = None

    @property
    def home(self) -> Home:
        """Whose cron this is: its real path and the id of its store."""
        core = self._core
        known = self._home
        # Its spelling is looked up in every folder of the path: once is enough, an open store stays where it is.
        if known is None or known.store_id != core.store_id:
            known = self._home = home_of(core)
        return known

    def now(self) -> float:
        """What time it is by the store's clock; epoch seconds UTC."""
        return self._clock.now()

    @property
    def _core(self) -> Core:
        return self._store.core

    @property
    def _clock(self) -> Clock:
        return self._core.clock

    def job(self, job_id: str) -> Job:
        """One job. Raises `JobNotFound`, `Entombed` (it was removed), `LedgerUnreadable`."""
        return self._read(lambda reader: job_rows.find(reader, job_id))

    def jobs(
        self, *, states: Sequence[JobState] | None = None, limit: int = 50, after: str | None = None,
        unreadable: dict[str, Exception] | None = None,
    ) -> list[Job]:
        """Up to `limit` jobs by id; `after` is the id that the last page ended at.

        A job that cannot be read raises `LedgerUnreadable`; given `unreadable`, it is put there, by its id, and the
        others are given.
        """
        whole("limit", limit, 1, MOST_PAGE)
        return self._read(
            lambda reader: job_rows.page(reader, states=states, limit=limit, after=after, unreadable=unreadable)
        )

    def next_slots(self, job_id: str, count: int) -> list[int]:
        """The next `count` slots of a job, as they would be were it not paused; fewer where there are no more."""
        whole("count", count, 1, MOST_PAGE)
        job = self.job(job_id)
        after = max(int(self._clock.now()), job.settled_through)
        if job.waiting_slot is not None:
            return [job.waiting_slot]
        return next_slots(job.schedule, after, count)

    def planned(self, job_id: str, *, until: float, limit: int = 1000) -> list[int]:
        """The slots of a job from now to `until` (epoch seconds UTC), at most `limit`; none while it is paused."""
        whole("limit", limit, 1, MOST_PAGE)
        job = self.job(job_id)
        if not job.active:
            return []
        if job.waiting_slot is not None:
            return [job.waiting_slot] if job.waiting_slot <= until else []
        return slots(job.schedule, max(self._clock.now(), job.settled_through), until, limit=limit)

    def in_flight(self, job_id: str | None = None) -> list[Run]:
        """The runs in flight of a job, or of all of this home."""
        found = self._read(lambda reader: run_rows.in_flight(reader, job_id))
        return [replace(run, home=self.home) for run in found]

    def is_running(self, job_id: str) -> bool:
        """Whether the job of this home has a run in flight."""
        return bool(self._read(lambda reader: run_rows.count_in_flight(reader, job_id)))

    def run(self, fence: int) -> Run:
        """One run, in flight or ended. Raises `NotFound`."""
        found = self._read(lambda reader: run_rows.read(reader, fence))
        if found is None:
            raise NotFound(f"There is no run {fence} in {self._core.path}.", path=self._core.path, fence=fence)
        return found

    def history(
        self, *, job_id: str | None = None, source: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[Run]:
        """Up to `limit` runs, newest first, those in flight too; `before` is the fence that the last page ended at."""
        whole("limit", limit, 1, MOST_PAGE)
        return self._read(
            lambda reader: run_rows.history(reader, job_id=job_id, source=source, limit=limit, before=before)
        )

    def slots(
        self, job_id: str, *, states: Sequence[SlotState] | None = None, after: int | None = None,
        until: int | None = None, limit: int = 200,
    ) -> list[Occurrence]:
        """Up to `limit` records of slots, rows and ranges, oldest first; also of a job that was removed."""
        whole("limit", limit, 1, MOST_PAGE)
        return self._read(
            lambda reader: slot_rows.page(reader, job_id, states=states, after=after, until=until, limit=limit)
        )

    def slot(self, job_id: str, slot: int) -> Occurrence | None:
        """The record that a slot is in; None: it has none, or none any more."""
        return self._read(lambda reader: slot_rows.of_slot(reader, job_id, slot))

    def missed(self, *, since: float | None = None, limit: int = 200) -> list[Occurrence]:
        """Up to `limit` records of slots that were missed after `since` (default: 7 days ago), newest first."""
        whole("limit", limit, 1, MOST_PAGE)
        from_then = self._clock.now() - 7 * 86_400.0 if since is None else since
        return self._read(lambda reader: slot_rows.missed(reader, since=from_then, limit=limit))

    def incidents(
        self, *, job_id: str | None = None, states: Sequence[IncidentState] | None = None
    ) -> list[Incident]:
        """Incidents, the newest first."""
        return self._read(lambda reader: incidents.of(reader, job_id=job_id, states=states))

    def events(self, *, kind: str | None = None, limit: int = 50, before: int | None = None) -> list[Event]:
        """What happened to cron itself, newest first: clock_step, owner_lost, forced_release, schedule_error, ..."""
        whole("limit", limit, 1, MOST_PAGE)
        return self._read(lambda reader: events.page(reader, kind=kind, limit=limit, before=before))

    def ticker(self) -> TickerRow | None:
        """The ticker of this home as it was last heard."""
        return self._read(home.ticker)

    def clock_step(self) -> ClockStep | None:
        """The step of the wall clock that is not believed yet; jobs go by the boot clock meanwhile."""
        clock = self._clock
        now = home.Now(at=clock.now(), boottime=clock.boottime(), domain=clock.domain())
        told = self._read(lambda reader: home.judge(reader, now))
        if told.is_right or told.step is None:
            return None
        return ClockStep(seconds=told.step, at=now.at, stood_seconds=told.stood)

    def ahead(self, *, limit: int = 50) -> dict[str, int]:
        """Up to `limit` jobs whose slots are accounted for beyond now, the farthest first, each with until when (epoch
        seconds UTC): they fire nothing before that. A clock that was ahead for too long leaves them so."""
        whole("limit", limit, 1, MOST_PAGE)
        return self._read(lambda reader: home.ahead(reader, at=self._clock.now(), limit=limit))

    def _read(self, work: Callable[[Reader], Result]) -> Result:
        """One snapshot. What SQLite cannot read is `LedgerUnreadable`: nobody may take it for empty."""
        core = self._core
        with core.reader() as reader:
            try:
                return work(reader)
            except (Corrupt, IOFailure, StatementFailed) as error:
                if isinstance(error, StatementFailed) and core.read_only and not _has_cron(reader):
                    raise SchemaTooOld(
                        f"{core.path} has no cron tables: it was last written by an older version.",
                        hint="Open it once for writing, which adds them.", path=core.path, found=None, needed=11,
                    ) from error
                raise job_rows.unreadable(reader, None, error.message) from error


def _has_cron(reader: Reader) -> bool:
    """Whether the step that adds the tables was made, whatever became of them since."""
    return reader.row("SELECT 1 FROM migrations WHERE name = '0011_pre_add_cron'") is not None


def in_flight_everywhere(homes: Iterable[Looking]) -> list[Run]:
    """The runs in flight of many homes, each with its home: for drain and metrics, never for whether one job runs."""
    return [run for one in homes for run in one.in_flight()]
