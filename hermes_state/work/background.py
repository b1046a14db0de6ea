"""Background work as it stands: one row, a process or a delegation, and what became of its notice.

Invariant: every column of a row is here, read by one list of columns. Whether its end was delivered is read from the
outbox for as long as that remembers, and from the row afterwards: never from both, so the two cannot differ.

Not for: changing rows (see `background_rows`). Two tables were rejected: what is owed, who watches over it, how it is
kept and how it is told are the same for both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.clock import ClockDomain
from hermes_state.errors import InvalidInput
from hermes_state.leases.rows import LeaseRow
from hermes_state.outbox.inputs import text, whole
from hermes_state.outbox.states import State as Delivery
from hermes_state.work.states import DelegationState, Mode, ProcessState, Reason, Sort
from hermes_state.work.verbosity import DEFAULT, Verbosity, known
from hermes_state.work.watching import Watch

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# A claim of hermes-agent's delegations lasts so long (facts on gateways, 5): what watches over work renews within it.
TERM_SECONDS = 300.0
MOST_PAGE = 1000
MOST_NAME = 200  # characters of an id: the key of a row is the dedupe id of its notice, which has at most 512

_OWN = (
    "no, key, sort, home, state, session_id, session_key, generation, described, mode, verbosity, transport, target,"
    " pid, pid_scope, identity, owner, boot_id, time_namespace, renewals, expires_boottime, registered_at, started_at,"
    " state_at, ended_at, exit_code, reason, ended_by, error, watch_last_at, watch_strikes, watch_struck, watch_told,"
    " watch_disabled_at, result_chars, result, taken_over_at"
)
# The last word about its notice: that one of its obligations was taken, also one that a person owed again; else what
# became of the first one; else what was kept of that. "." is the character after "-".
_DELIVERY = (
    "coalesce((SELECT state FROM outbox WHERE dedupe_id > background_work.key || '#retry-'"
    " AND dedupe_id < background_work.key || '#retry.' AND state = 'accepted' LIMIT 1),"
    " (SELECT state FROM outbox WHERE dedupe_id = background_work.key), delivery)"
)
# What became of the notice of its end, and since when that is final.
LAST_WORD = (
    f"{_DELIVERY}, coalesce((SELECT settled_at FROM outbox WHERE dedupe_id = background_work.key), delivery_at)"
)
COLUMNS = f"{_OWN}, {LAST_WORD}"


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Who is told when background work ends, and how. Raises `InvalidInput`."""

    mode: Mode = Mode.TURN
    transport: str = ""  # what has to be up for it, as in the outbox; "" only for nobody
    target: str = ""  # whom it is for, in the transport's words
    verbosity: Verbosity = DEFAULT  # what a person is shown

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "mode", Mode(self.mode))
        except ValueError:
            raise InvalidInput(
                f"{self.mode!r:.80} is no way to tell of an end.", hint=f"It is one of {', '.join(Mode)}.",
                argument="mode",
            ) from None
        object.__setattr__(self, "verbosity", known(self.verbosity))
        nobody = self.mode is Mode.NOBODY
        text("transport", self.transport, empty=nobody, of=" of a notice")
        text("target", self.target, empty=True, of=" of a notice")
        if nobody and self.transport:
            raise InvalidInput(
                f"Nobody is to be told, and {self.transport!r} is named as the transport.",
                hint="Leave the transport out, or say how its end is told.", argument="transport",
            )


NOBODY = Tell(mode=Mode.NOBODY)


@dataclass(frozen=True, kw_only=True)
class BackgroundWork:
    """What a process and a delegation have in common."""

    no: int  # the order of registration
    key: str  # what it is: process/ID/EPOCH or delegation/ID; the dedupe id of the notice of its end
    home: str  # store_id of the home that it runs for
    session_id: str | None  # in whose conversation it was begun
    session_key: str | None  # the routing key of that conversation
    generation: int | None  # of that conversation when it was begun; None: it had no routing entry
    tell: Tell  # how its end is told
    owner: str | None  # JSON of who watches over it; None once it has ended
    lease: LeaseRow | None = field(repr=False)  # the same as a lease; None once it has ended
    taken_over_at: float | None  # since when another than who began it watches; None: nobody else does
    registered_at: float  # epoch seconds UTC, as all times here
    started_at: float | None
    state_at: float  # since when its state is what it is
    ended_at: float | None
    error: str | None  # why it failed, or why it counts as lost
    delivery: Delivery | None  # what became of the notice of its end; None: there is none
    delivery_at: float | None  # since when that is final
    result_chars: int  # of its result, before it was cut

    @property
    def ended(self) -> bool:
        """Whether it has ended, however."""
        return self.ended_at is not None

    @property
    def delivered(self) -> bool:
        """Whether somebody took the notice of its end."""
        return self.delivery is Delivery.ACCEPTED

    @property
    def failed(self) -> bool:
        """Whether it ended in another way than well; False while it runs."""
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """One line for a person: what it is and how it stands."""
        raise NotImplementedError

    @property
    def result_text(self) -> str:
        """Its output or result as a text; "" when there is none."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Process(BackgroundWork):
    """A background process."""

    process_id: str
    epoch: str  # which spawn of that id
    state: ProcessState
    command: str
    cwd: str | None
    task_id: str | None
    patterns: tuple[str, ...]  # of its output, each a match of which is told
    watch: Watch  # what is known of those matches
    pid: int | None  # within its scope; None: it was not said that it runs
    pid_scope: str | None  # "host", or "sandbox" where the pid means nothing here
    identity: str | None = field(repr=False)  # JSON: which process of which boot that pid was
    exit_code: int | None  # None: it has none, or nobody knows it
    reason: Reason | None  # why it ended
    ended_by: str | None  # who or what ended it
    output: str = field(repr=False)  # its last 200,000 characters

    @property
    def failed(self) -> bool:
        return self.ended and self.exit_code != 0

    @property
    def headline(self) -> str:
        if not self.ended:
            how = f"is {self.state}"
        elif self.state is ProcessState.LOST:
            how = "was lost: nobody knows how it ended"
        elif self.reason is Reason.FAILED_START:
            how = "could not be started"
        elif self.exit_code is None:
            how = "has ended; its exit code is not known"
        else:
            how = f"{'was killed' if self.reason is Reason.KILLED else 'has ended'} with exit code {self.exit_code}"
        return f"Background process {self.process_id} ({_line(self.command)}) {how}."

    @property
    def result_text(self) -> str:
        return self.output


@dataclass(frozen=True, kw_only=True)
class Delegation(BackgroundWork):
    """Work that was given to a sub-agent."""

    delegation_id: str
    state: DelegationState
    task: Any  # what was asked for; JSON
    parent_session_id: str | None  # whose agent gave it away
    child_session_id: str | None  # in which the sub-agent works
    result: Any = field(repr=False)  # what it came to; JSON

    @property
    def failed(self) -> bool:
        return self.ended and self.state is not DelegationState.COMPLETED

    @property
    def headline(self) -> str:
        goal = self.task.get("goal") if isinstance(self.task, dict) else self.task
        what = f" ({_line(goal)})" if isinstance(goal, str) and goal else ""
        why = f": {_line(self.error)}" if self.error and self.ended else ""
        return f"Delegation {self.delegation_id}{what} is {self.state}{why}."

    @property
    def result_text(self) -> str:
        if self.result is None:
            return ""
        if isinstance(self.result, str):
            return self.result
        try:
            return json.dumps(self.result, ensure_ascii=False)
        except RecursionError:  # another program wrote it, and this caller's calls are deep
            return f"(a result of {self.result_chars:,} characters that is too deep to be shown here)"


def process_key(process_id: str, epoch: str) -> str:
    """The key of one spawn of a process. Raises `InvalidInput`."""
    return f"{Sort.PROCESS}/{name('process_id', process_id)}/{name('epoch', epoch)}"


def delegation_key(delegation_id: str) -> str:
    """The key of a delegation. Raises `InvalidInput`."""
    return f"{Sort.DELEGATION}/{name('delegation_id', delegation_id)}"


def name(argument: str, value: Any) -> str:
    """An id that a key can be made of. Raises `InvalidInput`."""
    text(argument, value, most=MOST_NAME, of=" of background work")
    if "/" in value or "#" in value:
        raise InvalidInput(
            f"{argument} of background work is {value!r}; neither / nor # may be in it.",
            hint="The key of its notice is made of it, with those between its parts.", argument=argument,
        )
    return str(value)


def has_work(reader: Reader) -> bool:
    """Whether the store has the table: it comes with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'background_work'") is not None


def find(reader: Reader, key: str) -> Process | Delegation | None:
    """One row by its key."""
    row = reader.row(f"SELECT {COLUMNS} FROM background_work WHERE key = ?", (key,))
    return None if row is None else work_of(row)


def newest_spawn(reader: Reader, process_id: str) -> Process | None:
    """The spawn of a process id that was registered last."""
    row = reader.row(
        # "0" is the character after "/".
        f"SELECT {COLUMNS} FROM background_work WHERE key > ?1 || '/' AND key < ?1 || '0' ORDER BY no DESC LIMIT 1",
        (f"{Sort.PROCESS}/{name('process_id', process_id)}",),
    )
    found = None if row is None else work_of(row)
    return found if isinstance(found, Process) else None


def open_work(reader: Reader, sort: Sort) -> list[Process | Delegation]:
    """Everything that has not ended, the first registered first."""
    return [
        work_of(row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM background_work WHERE ended_at IS NULL AND sort = ? ORDER BY no", (str(sort),)
        )
    ]


def page(
    reader: Reader, sort: Sort | None, *, states: Sequence[str] | None = None, session_key: str | None = None,
    session_id: str | None = None, modes: Sequence[Mode] | None = None, undelivered: bool = False, limit: int = 50,
    before: int | None = None,
) -> list[Process | Delegation]:
    """Up to `limit` rows (1 to 1000), newest first; `before` is the `no` that the last page ended at."""
    whole("limit", limit, 1, MOST_PAGE)
    if not has_work(reader):
        return []
    rows = reader.rows(
        f"SELECT {COLUMNS} FROM background_work WHERE (?1 IS NULL OR sort = ?1)"
        " AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR session_key = ?3)"
        " AND (?4 IS NULL OR session_id = ?4) AND (?5 IS NULL OR mode IN (SELECT value FROM json_each(?5)))"
        f" AND (?6 IS NULL OR no < ?6) AND (?7 = 0 OR (ended_at IS NOT NULL AND {_DELIVERY} <> 'accepted'))"
        " ORDER BY no DESC LIMIT ?8",
        (
            None if sort is None else str(sort), None if states is None else json.dumps([str(one) for one in states]),
            session_key, session_id, None if modes is None else json.dumps([str(one) for one in modes]), before,
            int(undelivered), limit,
        ),
    )
    return [work_of(row) for row in rows]


def work_of(row: Sequence[Any]) -> Process | Delegation:
    """A row of `COLUMNS`."""
    (
        no, key, sort, home, state, session_id, session_key, generation, described, mode, verbosity, transport, target,
        pid, pid_scope, identity, owner, boot_id, time_namespace, renewals, expires_boottime, registered_at,
        started_at, state_at, ended_at, exit_code, reason, ended_by, error, watch_last_at, watch_strikes, watch_struck,
        watch_told, watch_disabled_at, result_chars, result, taken_over_at, delivery, delivery_at,
    ) = row
    facts = _read(described)
    if not isinstance(facts, dict):
        facts = {}
    lease = None
    if owner is not None:
        lease = LeaseRow(
            name=key, fence=0, renewals=renewals, owner=owner,
            domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
            acquired_boottime=expires_boottime - TERM_SECONDS, expires_boottime=expires_boottime,
            term_seconds=TERM_SECONDS, acquired_at=registered_at,
        )
    common: dict[str, Any] = {
        "no": no, "key": key, "home": home, "session_id": session_id, "session_key": session_key,
        "generation": generation,
        "tell": Tell(mode=Mode(mode), transport=transport, target=target, verbosity=Verbosity(verbosity)),
        "owner": owner, "lease": lease, "taken_over_at": taken_over_at,
        "registered_at": registered_at, "started_at": started_at, "state_at": state_at, "ended_at": ended_at,
        "error": error,
        "delivery": None if delivery is None else Delivery(delivery), "delivery_at": delivery_at,
        "result_chars": result_chars,
    }
    if Sort(sort) is Sort.PROCESS:
        _sort, process_id, epoch = key.split("/")
        return Process(
            **common, process_id=process_id, epoch=epoch, state=ProcessState(state),
            command=facts.get("command", ""), cwd=facts.get("cwd"), task_id=facts.get("task_id"),
            patterns=tuple(facts.get("patterns", ())),
            watch=Watch(
                last_at=watch_last_at, strikes=watch_strikes, struck=bool(watch_struck), told=watch_told,
                disabled=watch_disabled_at is not None,
            ),
            pid=pid, pid_scope=pid_scope, identity=identity, exit_code=exit_code,
            reason=None if reason is None else Reason(reason), ended_by=ended_by, output=result or "",
        )
    return Delegation(
        **common, delegation_id=key.partition("/")[2], state=DelegationState(state), task=facts.get("task"),
        parent_session_id=facts.get("parent_session_id"), child_session_id=facts.get("child_session_id"),
        result=None if result is None else _read(result),
    )


def _read(text: str) -> Any:
    """The value of a stored text, and the text itself where it cannot be read here: one row hides no other."""
    try:
        return json_values.read(text)
    except ValueError:
        return text


def _line(value: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(value.split())
    return line if len(line) <= 80 else f"{line[:77]}..."


