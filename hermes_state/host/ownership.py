"""Owning the host, and being one of its gateways: the row that goes with the lock.

Invariant: the lock comes first and the row after it, with the next fence; the row goes first and the lock after it.
A record of somebody else is replaced or retracted only with proof: we hold the lock, or its process is provably dead.
A process whose lock file was replaced under it keeps the host for as long as it lives. One process writes one row.

Not for: deciding whether to start (see `decision`, `entering`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_state.errors import HostLost, InvalidInput
from hermes_state.host.asking import Answering, Question, socket_path, sweep
from hermes_state.host.exits import Supervisor
from hermes_state.host.facts import Answer
from hermes_state.host.folder import our_uid
from hermes_state.host.gateway_lock import GatewayLock
from hermes_state.host.gateway_lock import Outcome as Lock
from hermes_state.host.gateway_lock import acquire as acquire_lock
from hermes_state.host.living import Judged, end_the_dead, holds_its_presence, judge
from hermes_state.host.names import canonical, homes_of, without_secrets
from hermes_state.host.records import read_host, read_running
from hermes_state.host.states import TERMINAL, TRANSITIONS, Kind, RunState

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity, Presence


_STEADY_SECONDS = 1.0  # less than the patience of whoever asks


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a process says of itself when it starts. Raises `InvalidInput` for what is no absolute path of a home."""

    home: str  # the home it is started for; kept by its one spelling
    kind: Kind = Kind.GATEWAY
    supervisor: Supervisor = Supervisor.NONE
    label: str = ""  # what the supervisor calls it
    command: str = ""  # how a person starts it again
    code_root: str | None = None  # the folder of its code
    code_sha: str | None = None  # the commit that it runs
    code_version: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", canonical(self.home))
        object.__setattr__(self, "command", without_secrets(self.command))


class Voice:
    """What answers for this process whoever asks who it is, from before its row can be seen.

    A gateway that is there and silent could be anything; others would start beside it what it is about to serve.
    """

    def __init__(
        self, core: Core, run: Run, identity: OwnerIdentity, rescan: Callable[[], Iterable[str]] | None
    ) -> None:
        """`rescan` looks for homes and gives all that are served then. Raises `CannotOpen`."""
        self._answer = _first_answer(run, identity)
        self._rescan = rescan
        self._member: Membership | None = None
        self._answering = Answering(socket_path(core.path.parent, identity.nonce), self._on_question)
        sweep(core.path.parent)
        self.path = str(self._answering.path)

    def speak_for(self, member: Membership) -> None:
        """From now on say what that run says of itself."""
        self._member = member

    def close(self) -> None:
        """Say nothing more. Safe to call twice."""
        self._answering.close()

    def _on_question(self, question: Question) -> Answer | None:
        member = self._member
        if member is None:
            return self._answer
        if question is Question.RESCAN and member.answer.multiplex:
            if self._rescan is None:
                return None  # nobody looked: what it serves is no answer to that, and would be a refusal for good
            member.settle(self._rescan(), multiplex=True)
        return member.steady_answer()


def _first_answer(run: Run, identity: OwnerIdentity) -> Answer:
    return Answer(
        nonce=identity.nonce, pid=identity.pid, home=run.home, state=RunState.STARTING, multiplex=None, served=None,
        code_sha=run.code_sha,
    )


class Membership:
    """This process's run, from its row to `leave`. Safe for threads."""

    def __init__(
        self, core: Core, no: int, run: Run, identity: OwnerIdentity, lock: GatewayLock | None, fence: int | None,
        voice: Voice | None,
    ) -> None:
        self._core = core
        self._text = identity.to_json()
        self._lock = lock
        self._voice = voice
        # The voice's thread settles as well as the caller's, and what is said follows what is written.
        self._turn = threading.RLock()
        self.identity = identity
        self.run = run
        self.gateway_no = no
        # Of the ownership; None for one that runs beside the owner.
        self.fence = fence
        self._answer = _first_answer(run, identity)
        if voice is not None:
            voice.speak_for(self)

    @property
    def owns_host(self) -> bool:
        """Whether this process still has the lock, on the file that others look at."""
        return self._lock is not None and self._lock.still_counts()

    @property
    def answer(self) -> Answer:
        """What this process says when it is asked."""
        return self._answer

    def steady_answer(self) -> Answer:
        """The same after a write that is being made, so that nobody sees a row and then an answer from before it.

        For at most a second: while the file is locked by others, what was true before is true.
        """
        held = self._turn.acquire(timeout=_STEADY_SECONDS)
        try:
            return self._answer
        finally:
            if held:
                self._turn.release()

    def settle(self, served: Iterable[str], *, multiplex: bool) -> None:
        """Say whom this run serves, once that is known and each time that it changes.

        Raises `HostLost`, and `InvalidInput` for what is no list of homes.
        """
        homes = homes_of(served)

        def work(tx: Transaction) -> None:
            self.refuse_ended(tx)
            tx.execute(
                "UPDATE gateways SET multiplex = ?, served_known = 1, updated_at = ?, beats = beats + 1 WHERE no = ?",
                (int(multiplex), self._core.clock.now(), self.gateway_no),
            )
            # What was said of a store stays for as long as its home is served.
            tx.execute(
                "DELETE FROM served WHERE gateway_no = ? AND home NOT IN (SELECT value FROM json_each(?))",
                (self.gateway_no, json.dumps(sorted(homes))),
            )
            tx.executemany(
                "INSERT OR IGNORE INTO served (gateway_no, home) VALUES (?, ?)",
                [(self.gateway_no, home) for home in sorted(homes)],
            )
            bump(tx)

        with self._turn:
            self._core.write(work)
            self._answer = replace(self._answer, multiplex=multiplex, served=homes)

    def move(
        self, state: RunState, *, reason: str | None = None, first: Callable[[Transaction], bool] | None = None
    ) -> bool:
        """Say how far this run is. Raises `InvalidInput` for what cannot follow, `HostLost` when the run is over.

        `first` is done in the same transaction; when it gives False nothing is written, and this gives False.
        """
        at = self._core.clock.now()

        def work(tx: Transaction) -> bool:
            self.refuse_ended(tx)
            if first is not None and not first(tx):
                return False
            tx.execute(
                "UPDATE gateways SET state = ?, exit_reason = coalesce(?, exit_reason), updated_at = ?, ended_at = ?,"
                " beats = beats + 1 WHERE no = ?",
                (state, reason, at, at if state in TERMINAL else None, self.gateway_no),
            )
            bump(tx)
            return True

        with self._turn:
            now = self._answer.state
            if state is not now and state not in TRANSITIONS[now]:
                raise InvalidInput(
                    f"A run that is {now} cannot be {state} next (gateway {self.gateway_no} in {self._core.path}).",
                    hint="The states are those of hermes_state.host.states.", path=self._core.path, state=str(state),
                )
            moved = self._core.write(work)
            if moved:
                self._answer = replace(self._answer, state=state)
            return moved

    def beat(self, *, active_agents: int | None = None, active_work: int | None = None) -> None:
        """One sign of life. `active_work` counts all that a stop would interrupt. Raises `HostLost`."""
        clock = self._core.clock
        domain = clock.domain()
        self._write(
            "UPDATE gateways SET beats = beats + 1, beat_boottime = ?, boot_id = ?, time_namespace = ?, updated_at = ?,"
            " active_agents = coalesce(?, active_agents), active_work = coalesce(?, active_work) WHERE no = ?",
            clock.boottime(), domain.boot_id, domain.time_namespace, clock.now(),
            None if active_agents is None else max(active_agents, 0),
            None if active_work is None else max(active_work, 0),
        )

    def request_restart(self) -> None:
        """Say that this run ends to be started again, and not for good. Raises `HostLost`."""
        self._write(
            "UPDATE gateways SET restart_requested = 1, updated_at = ?, beats = beats + 1 WHERE no = ?",
            self._core.clock.now(),
        )

    def refuse_ended(self, tx: Transaction) -> None:
        """Raise `HostLost` unless this run is known to go on; every write for it begins so."""
        row = tx.row("SELECT owner FROM gateways WHERE no = ? AND ended_at IS NULL", (self.gateway_no,))
        if row != (self._text,):
            raise HostLost(
                f"Gateway {self.gateway_no} in {tx.path} is not this process any more: its run was ended.",
                hint="Stop, or start anew.", path=tx.path, fence=self.fence, current=None,
            )

    def guard(self, tx: Transaction) -> None:
        """Call it first in a transaction that only the host's owner may make. Raises `HostLost`."""
        record = read_host(tx)
        # Not `owns_host`: while this process holds its lock nobody else gets a fence, also when its file was unlinked.
        if self.fence is None or record.fence != self.fence or self._lock is None or not self._lock.is_held:
            raise HostLost(
                f"This process (gateway {self.gateway_no}) does not own the host in {tx.path} any more, or never did.",
                hint="Stop what only the owner may do.", path=tx.path, fence=self.fence, current=record.fence,
            )
        self.refuse_ended(tx)

    def leave(self, *, reason: str, failed: bool = False) -> None:
        """End this run: the row says so, then the socket and the lock go, also when the row could not be written.

        Safe to call twice.
        """
        try:
            with self._turn:
                if self._answer.state not in TERMINAL:
                    self._end_row(reason, failed=failed)
        finally:
            if self._voice is not None:
                self._voice.close()
            if self._lock is not None:
                self._lock.release()

    def _end_row(self, reason: str, *, failed: bool) -> None:
        end = RunState.STARTUP_FAILED if failed and self._answer.state is RunState.STARTING else RunState.STOPPED
        at = self._core.clock.now()

        def work(tx: Transaction) -> None:
            tx.execute(
                "UPDATE gateways SET state = ?, exit_reason = ?, updated_at = ?, ended_at = ?"
                " WHERE no = ? AND owner = ? AND ended_at IS NULL",
                (end, reason, at, at, self.gateway_no, self._text),
            )
            _clear_host(tx, self.gateway_no, reason)
            bump(tx)

        self._core.write(work, durability="power")
        self._answer = replace(self._answer, state=end)

    def _write(self, sql: str, *params: object) -> None:
        def work(tx: Transaction) -> None:
            self.refuse_ended(tx)
            tx.execute(sql, (*params, self.gateway_no))

        self._core.write(work)


def bump(tx: Transaction) -> None:
    """Make every remembered look at the host look again."""
    tx.execute("UPDATE host SET revision = revision + 1")


def register(
    core: Core, presence: Presence, run: Run, lock: GatewayLock | None, voice: Voice | None, *, known: frozenset[int],
    force: bool = False,
) -> Membership | None:
    """Write this process's run; with the lock also the ownership. None when somebody came in between: decide anew.

    `known`: rows that the verdict knew of. `force` starts beside whoever is there.
    """
    clock, folder = core.clock, core.path.parent
    with core.reader() as reader:
        judged = [judge(one, folder, clock) for one in read_running(reader)]
        owner = read_host(reader).gateway
    # What is of another boot and answered is known; what is silent there is not here.
    alive = frozenset(one.gateway.no for one in judged if one.may_live and one.same_boot)
    at, domain = clock.now(), clock.domain()

    def work(tx: Transaction) -> tuple[int, int | None] | None:
        end_the_dead(tx, judged, at=at)
        if not force and _newcomer(tx, run, frozenset(one.gateway.no for one in judged), alive - known):
            return None
        now = read_host(tx)
        if lock is not None and (now.gateway is not None and now.gateway.ended_at is None):
            mine = next((one for one in judged if one.gateway.no == now.gateway.no), None)
            if mine is None or (owner is not None and holds_its_presence(mine, folder)):
                return None  # its lock file was replaced under it, or it came after our look
        tx.execute(
            "INSERT INTO gateways (owner, uid, home, kind, supervisor, label, command, code_root, code_sha,"
            " code_version, answers, state, started_at, updated_at, boot_id, time_namespace, beat_boottime)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'starting', ?, ?, ?, ?, ?)",
            (
                presence.identity.to_json(), our_uid(), run.home, run.kind, run.supervisor, run.label, run.command,
                run.code_root, run.code_sha, run.code_version, "" if voice is None else voice.path, at, at,
                domain.boot_id, domain.time_namespace, clock.boottime(),
            ),
        )
        no = tx.last_insert_rowid()
        fence = None
        if lock is not None:
            fence = now.fence + 1
            tx.execute(
                "UPDATE host SET fence = ?, gateway_no = ?, claimed_at = ?, left_because = NULL", (fence, no, at)
            )
        bump(tx)
        return no, fence

    written = core.write(work, durability="power")
    if written is None:
        return None
    return Membership(core, written[0], run, presence.identity, lock, written[1], voice)


def retract_dead(core: Core) -> str | None:
    """Take the record of a dead owner away; gives the proof, or None when nothing is there or nothing is proven."""
    clock, folder = core.clock, core.path.parent
    with core.reader() as reader:
        record = read_host(reader)
    if record.gateway is None:
        return None
    judged = judge(record.gateway, folder, clock)
    because = judged.verdict.because if judged.verdict.dead else ""
    if not because and not holds_its_presence(judged, folder):
        attempt = acquire_lock(folder, clock=clock)
        if attempt.lock is not None:
            attempt.lock.release()
        because = "the lock of the host was free" if attempt.outcome is Lock.ACQUIRED else ""
    if not because:
        return None
    at = clock.now()

    def work(tx: Transaction) -> str | None:
        now = read_host(tx)
        if now.gateway is None or (now.fence, now.gateway.no) != (record.fence, judged.gateway.no):
            return None
        end_the_dead(tx, [judged], at=at)
        _clear_host(tx, judged.gateway.no, because)
        bump(tx)
        return because

    return core.write(work, durability="power")


def gateways(core: Core) -> list[Judged]:
    """Every run that is not known to have ended, judged."""
    with core.reader() as reader:
        return [judge(one, core.path.parent, core.clock) for one in read_running(reader)]


def evidence_text(evidence: tuple[str, ...]) -> str:
    """The form that a ledger row keeps."""
    return json.dumps(list(evidence), ensure_ascii=False)


def _newcomer(tx: Transaction, run: Run, judged: frozenset[int], unknown: frozenset[int]) -> bool:
    """Whether a gateway is there that the verdict did not know of; it may come to serve the same home."""
    if run.kind is not Kind.GATEWAY:
        return False
    rows = tx.rows("SELECT no FROM gateways WHERE ended_at IS NULL AND kind = 'gateway'")
    return any(no not in judged or no in unknown for (no,) in rows)


def _clear_host(tx: Transaction, no: int, because: str) -> None:
    tx.execute("UPDATE host SET gateway_no = NULL, left_because = ? WHERE gateway_no = ?", (because, no))
