"""A start from its first look to its row: look, decide, take the lock, write; again when somebody came in between.

Invariant: what was decided on is what is entered: a lock that is held by then, or a gateway of the same home that the
verdict did not know of, sends the start back to look. A verdict stands when the ledger cannot be written, and one that
starts nothing makes no lock file. One start replaces at most one owner, and of several that want to replace the same
one only one sends a signal. After a replacement fails nothing of it is left.

Not for: the verdict itself (`decision`). Starting first and looking for others afterwards was rejected: both then look.
"""

from __future__ import annotations

import os
import secrets
import signal as signals
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_state.errors import CannotOpen, InvalidInput, StateError
from hermes_state.host import gateway_lock, starts
from hermes_state.host.decision import Reason, Refuse, ReplaceHost, Start, Verdict, decide
from hermes_state.host.facts import Facts
from hermes_state.host.living import is_stopped, judge
from hermes_state.host.markers import Markers
from hermes_state.host.ownership import Membership, Run, Voice, register, retract_dead
from hermes_state.host.probe import Probe, Request
from hermes_state.host.records import read_gateway, read_host, read_running
from hermes_state.host.states import Kind, MarkerKind
from hermes_state.owners.identity import identify, pid_namespace
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.owners import Presence

TRIES = 8  # looks of one start while others come in between; then it is a refusal that is tried again
_LEDGER_SECONDS = 5.0  # the verdict stands without its row, and whoever supervises waits for it
Signal = Callable[[int, int], None]
_STARTING: set[tuple[str, str]] = set()  # starts of this process that go on now: file, and whose it is
_STARTING_LOCK = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Entered:
    """How a start ended."""

    verdict: Verdict
    member: Membership | None  # this process's run; None when it does not start, or the host's files cannot be used
    start_id: int | None  # the row of the ledger; None without one, as for what is no gateway
    silent_because: str = ""  # why nobody can ask this run who it is; "" when somebody can
    unwritten_because: str = ""  # why the ledger has no row of it though it should; "" otherwise
    unlisted: Unlisted | None = None  # the answers of a run that could not write its row; None otherwise


class Unlisted:
    """What a run without a row says of itself to whoever asks. Safe for threads."""

    def settle(self, served: Iterable[str], *, multiplex: bool) -> None:
        """Say whom this run serves, each time that it changes. Until then it is its own home or what `rescan` gave."""
        raise NotImplementedError

    def leave(self) -> None:
        """Answer nobody any more. Safe to call twice."""
        raise NotImplementedError


class Entering:
    """One start. Made by `Host.enter`."""

    def __init__(
        self, core: Core, probe: Probe, *, presence: Presence | None = None, signal: Signal = os.kill
    ) -> None:
        self._core = core
        self._probe = probe
        self._presence = presence
        self._signal = signal
        self._voice: Voice | None = None
        self._silent = ""
        self._rescan: Callable[[], Iterable[str]] | None = None

    def enter(
        self, run: Run, request: Request, *, answers: bool = True, rescan: Callable[[], Iterable[str]] | None = None
    ) -> Entered:
        """Decide, and become what was decided. Raises `InvalidInput` for a second run of one process, and what looking
        and writing raise.
        """
        self._silent = "" if answers else "it was started without answers"
        self._rescan = rescan
        entered = None
        with self._only_one():
            self._refuse_second()
            try:
                entered = self._enter(run, request)
                return entered
            finally:
                if self._voice is not None and (entered is None or entered.member is None):
                    self._voice.close()

    def _enter(self, run: Run, request: Request) -> Entered:
        for _ in range(TRIES):
            facts = self._probe.facts(request)
            verdict = decide(facts)
            if isinstance(verdict, ReplaceHost):
                refusal = self._replace(verdict, run)
                # Once: whoever takes the place meanwhile is not replaced as well.
                request = replace(request, replace=False)
                if refusal is None:
                    continue
                verdict = refusal
            if not isinstance(verdict, Start):
                return self._ended(verdict, run)
            member = self._become(verdict, facts, run)
            if member is not None:
                self._probe.forget()
                try:
                    started, unwritten = self._note(verdict, run)
                except BaseException:
                    member.leave(reason="its start could not be written down", failed=True)
                    raise
                return Entered(
                    verdict=verdict, member=member, start_id=started, silent_because=self._silent,
                    unwritten_because=unwritten,
                )
        return self._ended(
            Refuse(
                reason=Reason.RACE_LOST, permanent=False, evidence=(f"it looked {TRIES} times",),
                sentence="Others came in between each time that this start was about to run.",
            ), run,
        )

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        key = str(self._core.path), "" if self._presence is None else self._presence.identity.nonce
        with _STARTING_LOCK:
            first = key not in _STARTING
            _STARTING.add(key)
        if not first:
            raise InvalidInput(
                f"This process is starting a gateway already ({self._core.path}).",
                hint="One process runs one gateway: wait for that start.", path=self._core.path,
            )
        try:
            yield
        finally:
            with _STARTING_LOCK:
                _STARTING.discard(key)

    def _refuse_second(self) -> None:
        with self._core.reader() as reader:
            running = read_running(reader)
        ours = next((one for one in running if one.identity is not None and self._probe.is_us(one.identity)), None)
        if ours is not None:
            raise InvalidInput(
                f"This process runs gateway {ours.no} of {ours.home} already ({self._core.path}).",
                hint="Have that run `leave` first.", path=self._core.path, gateway=ours.no,
            )

    def _ended(self, verdict: Verdict, run: Run) -> Entered:
        started, unwritten = self._note(verdict, run)
        return Entered(verdict=verdict, member=None, start_id=started, unwritten_because=unwritten)

    def _note(self, verdict: Verdict, run: Run) -> tuple[int | None, str]:
        """The row of the ledger, or why there is none: it counts starts, and decides on none.

        A control plane that comes and goes with an app is no start of its home's gateway.
        """
        if run.kind is not Kind.GATEWAY:
            return None, ""
        # Not the presence: who starts nothing needs no lock file, and the next try would leave another one.
        presence = self._presence
        identity = identify(secrets.token_hex(16), self._core.clock) if presence is None else presence.identity
        try:
            return starts.note(self._core, verdict, run, identity, deadline_seconds=_LEDGER_SECONDS), ""
        except StateError as error:
            return None, error.message

    def _me(self) -> Presence:
        if self._presence is None:
            self._presence = presence_of(self._core.path.parent, clock=self._core.clock)
        return self._presence

    def _become(self, verdict: Start, facts: Facts, run: Run) -> Membership | None:
        presence = self._me()
        forced = verdict.reason is Reason.FORCED
        known = frozenset(other.party.gateway_no for other in facts.others)
        if facts.owner is not None:
            known |= {facts.owner.gateway_no}
        self._speak(run, presence)
        held = None
        # A server beside a gateway is found by others and never owns the host.
        if run.kind is Kind.GATEWAY and not verdict.beside and verdict.reason is not Reason.ALREADY_OWNER:
            attempt = gateway_lock.acquire(self._core.path.parent, clock=self._core.clock)
            if attempt.outcome is gateway_lock.Outcome.HELD and not forced:
                return None
            held = attempt.lock
        try:
            member = register(self._core, presence, run, held, self._voice, known=known, force=forced)
        except BaseException:
            if held is not None:
                held.release()
            raise
        if member is None and held is not None:
            held.release()
        return member

    def _speak(self, run: Run, presence: Presence) -> None:
        """Answer from before the row is there; a run that cannot is one that others wait for in vain, and says why."""
        if self._voice is not None or self._silent:
            return
        try:
            self._voice = Voice(self._core, run, presence.identity, self._rescan)
        except CannotOpen as error:
            self._silent = error.message

    def _replace(self, verdict: ReplaceHost, run: Run) -> Refuse | None:
        """Have the owner leave; None when it is gone and its record as well."""
        core, clock, owner = self._core, self._core.clock, verdict.owner
        identity = owner.identity
        assert identity is not None  # `decide` replaces only an owner that is proven to live
        if is_stopped(identity):
            # What it is sent now waits until it goes on, and by then nobody is here to take its place.
            return Refuse(
                reason=Reason.OWNER_SILENT, permanent=False, evidence=(*verdict.evidence, "it was not asked to leave"),
                sentence=f"{owner} is stopped (SIGSTOP or a debugger), so it cannot leave: have it go on, or kill it.",
            )
        markers = Markers(core, presence=self._presence)
        marker = markers.place(
            MarkerKind.TAKEOVER, home=owner.home, target=identity, reason=f"replaced by the gateway of {run.home}"
        )
        if marker is None:
            return Refuse(
                reason=Reason.BEING_REPLACED, permanent=False, evidence=verdict.evidence,
                sentence=f"{owner} is being replaced by somebody else already.",
            )
        said = f"PID {identity.pid} was asked to leave"
        if identity.pid_namespace and identity.pid_namespace == pid_namespace():
            try:
                self._signal(identity.pid, signals.SIGTERM)
            except ProcessLookupError:
                said = f"PID {identity.pid} was gone already"
            except PermissionError:
                said = f"PID {identity.pid} may not be signalled from here; a marker asks it to leave"
        else:
            said = f"PID {identity.pid} is of another pid namespace; a marker asks it to leave"
        deadline = clock.monotonic() + self._probe.waits.leave
        while not self._is_gone(owner.gateway_no):
            if clock.monotonic() >= deadline:
                markers.withdraw(marker)
                return Refuse(
                    reason=Reason.OWNER_LEAVING, permanent=False, evidence=(*verdict.evidence, said),
                    sentence=f"{owner} was asked to leave and is still there after {self._probe.waits.leave:g} s.",
                )
            clock.sleep(self._probe.waits.poll)
        retract_dead(core)
        self._probe.forget()
        return None

    def _is_gone(self, number: int) -> bool:
        with self._core.reader() as reader:
            row, record = read_gateway(reader, number), read_host(reader)
        if row is None or row.ended_at is not None:
            # Its row goes first and its lock after it; somebody else may have that by now, and says so.
            taken = record.gateway is not None and record.gateway.no != number
            return taken or gateway_lock.look(self._core.path.parent).outcome is gateway_lock.Outcome.FREE
        return judge(row, self._core.path.parent, self._core.clock).verdict.dead


def _in_forked_child() -> None:
    global _STARTING_LOCK
    _STARTING_LOCK = threading.Lock()  # whoever held it is not here
    _STARTING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
