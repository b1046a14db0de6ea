"""The rows of gateways and of the host's owner, as they stand.

Invariant: every column of a gateway is here, read by one list of columns. A row of another uid, or of a process whose
identity cannot be read, is kept and never acted on. No row proves life.

Not for: writing them (see `ownership`, `status`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.clock import ClockDomain
from hermes_state.errors import InvalidInput
from hermes_state.host.exits import Supervisor
from hermes_state.host.facts import Party
from hermes_state.host.states import Kind, RunState
from hermes_state.owners import OwnerIdentity

if TYPE_CHECKING:
    from hermes_state.engine import Reader

COLUMNS = (
    "no, owner, uid, home, kind, supervisor, label, command, code_root, code_sha, code_version, answers, state,"
    " exit_reason, multiplex, served_known, active_agents, active_work, restart_requested, started_at, updated_at,"
    " beats, boot_id, time_namespace, beat_boottime, ended_at"
)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """One run of a gateway or server process."""

    no: int  # the order of starts
    owner: str  # JSON of the identity of the process that writes the row
    uid: int  # of that process
    home: str  # that it was started for
    kind: Kind
    supervisor: Supervisor
    label: str  # what the supervisor calls it; "" when nobody said
    command: str  # how a person starts it again; "" when nobody said
    code_root: str | None  # the folder of the code it runs
    code_sha: str | None  # the commit of that code when it started
    code_version: str | None
    answers: str  # the socket where it says who it is; "" when nowhere
    state: RunState
    exit_reason: str | None
    multiplex: bool | None  # None: not settled
    served: frozenset[str] | None  # homes; None: not settled. A hint: only a live answer counts
    active_agents: int
    active_work: int  # all that a stop would interrupt, agents included
    restart_requested: bool  # it ends to be started again
    started_at: float  # epoch seconds UTC
    updated_at: float  # epoch seconds UTC
    beats: int  # signs of life so far
    domain: ClockDomain  # of the next field
    beat_boottime: float  # the last sign of life
    ended_at: float | None  # epoch seconds UTC; None while it is not known to have ended

    @property
    def identity(self) -> OwnerIdentity | None:
        """Who it is; None when this version cannot read it."""
        return identity_of(self.owner)

    def party(self, fence: int | None = None) -> Party:
        """The same for a verdict."""
        return Party(
            gateway_no=self.no, identity=self.identity, home=self.home, fence=fence, socket=self.answers,
            label=self.label,
        )


@dataclass(frozen=True, kw_only=True)
class HostRecord:
    """Who owns the host, by its row."""

    fence: int  # of the present or the last owner
    gateway: Gateway | None  # None: nobody
    claimed_at: float | None  # epoch seconds UTC
    left_because: str | None  # how the last owner went
    revision: int  # rises with every change that matters to a remembered look


def identity_of(text: str) -> OwnerIdentity | None:
    """The identity that a row names, None when it cannot be read."""
    try:
        return OwnerIdentity.from_json(text)
    except InvalidInput:
        return None


def gateway(row: Sequence[Any], served: frozenset[str]) -> Gateway:
    """A row of `COLUMNS` with its homes."""
    (
        no, owner, uid, home, kind, supervisor, label, command, code_root, code_sha, code_version, answers, state,
        exit_reason, multiplex, served_known, active_agents, active_work, restart_requested, started_at, updated_at,
        beats, boot_id, time_namespace, beat_boottime, ended_at,
    ) = row
    return Gateway(
        no=no, owner=owner, uid=uid, home=home, kind=Kind(kind), supervisor=Supervisor(supervisor), label=label,
        command=command, code_root=code_root, code_sha=code_sha, code_version=code_version, answers=answers,
        state=RunState(state), exit_reason=exit_reason, multiplex=None if multiplex is None else bool(multiplex),
        served=served if served_known else None, active_agents=active_agents, active_work=active_work,
        restart_requested=bool(restart_requested), started_at=started_at, updated_at=updated_at, beats=beats,
        domain=ClockDomain(boot_id=boot_id, time_namespace=time_namespace), beat_boottime=beat_boottime,
        ended_at=ended_at,
    )


def read_gateway(reader: Reader, no: int) -> Gateway | None:
    """One gateway by the number of its row."""
    row = reader.row(f"SELECT {COLUMNS} FROM gateways WHERE no = ?", (no,))
    return None if row is None else gateway(row, _served(reader, no))


def read_running(reader: Reader) -> list[Gateway]:
    """Every run that is not known to have ended, oldest first."""
    rows = reader.rows(f"SELECT {COLUMNS} FROM gateways WHERE ended_at IS NULL ORDER BY no")
    return [gateway(row, _served(reader, row[0])) for row in rows]


def read_host(reader: Reader) -> HostRecord:
    """The host's row, with its gateway when that run is not known to have ended."""
    row = reader.row("SELECT fence, gateway_no, claimed_at, left_because, revision FROM host")
    assert row is not None  # made with the file, and nothing deletes it
    fence, no, claimed_at, left_because, revision = row
    found = None if no is None else read_gateway(reader, no)
    return HostRecord(
        fence=fence, gateway=found, claimed_at=claimed_at, left_because=left_because, revision=revision
    )


def _served(reader: Reader, no: int) -> frozenset[str]:
    return frozenset(home for (home,) in reader.rows("SELECT home FROM served WHERE gateway_no = ?", (no,)))
