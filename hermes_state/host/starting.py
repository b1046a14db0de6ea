"""`start`: a gateway's start that ends in a verdict whatever becomes of `host.db`.

Invariant: what can be seen without writing is looked at again when writing failed, so a live answer that serves the
home still attaches, a lock that is held still refuses, and a record that is only busy is never taken for one that
cannot be used. Starts that cannot write come one by one, and those that run then answer over their socket, where the
folder lets them, so that others find them without a row.

Not for: starts that can write (see `entering`). Taking `gateway.lock` without a row was rejected: it keeps the gateways
of all other homes away for as long as the disk is full.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hermes_state.clock import Clock, clock_from_environment
from hermes_state.errors import CannotOpen, InvalidInput, LockTimeout, NotFound, StateError
from hermes_state.file_lock import CLOSE_ON_EXEC
from hermes_state.host.asking import Answering, Question, ask, socket_path
from hermes_state.host.decision import Reason, Refuse, Start, decide, without_writing
from hermes_state.host.entering import Entered, Unlisted
from hermes_state.host.facts import Answer, Facts, Seen
from hermes_state.host.folder import host_folder
from hermes_state.host.forked import guarded
from hermes_state.host.gateway_lock import GatewayLock
from hermes_state.host.host import Host, open_host
from hermes_state.host.layout import HOST_NAME, problem_of
from hermes_state.host.names import homes_of
from hermes_state.host.ownership import Run
from hermes_state.host.probe import Asker, Probe, Request, Waits
from hermes_state.host.states import Kind, RunState
from hermes_state.owners.presence import lock

_TURN_SECONDS = 20.0  # longer than one start looks at the others
_NAP_SECONDS = 0.05


def start(
    run: Run, *, folder: Path | None = None, replace: bool = False, force: bool = False, standalone: bool = False,
    rescan: Callable[[], Iterable[str]] | None = None, waits: Waits | None = None, clock: Clock | None = None,
) -> tuple[Host | None, Entered]:
    """`open_host` and `enter` in one, for a gateway that runs also where the host's files cannot be used.

    The host is None then, and the verdict is what can be seen without writing; `Entered.unlisted` says to others whom
    a run without a row serves. Raises `InvalidInput` for a second run of one process.
    """
    request = Request(
        home=run.home, supervisor=run.supervisor, replace=replace, force=force, standalone=standalone, kind=run.kind
    )
    time = clock or clock_from_environment()
    try:
        place = host_folder(os.environ) if folder is None else folder
    except CannotOpen as error:
        facts = _nothing_seen(request, error.message)
        return None, Entered(
            verdict=decide(facts), member=None, start_id=None, silent_because=error.message,
            unwritten_because=error.message,
        )
    try:
        host = open_host(place, clock=clock, waits=waits)
    except StateError as error:
        return None, _without_record(run, request, error, place, rescan=rescan, waits=waits, clock=time)
    try:
        return host, host.enter(run, replace=replace, force=force, standalone=standalone, rescan=rescan)
    except InvalidInput:
        host.close()
        raise
    except StateError as error:
        host.close()
        return None, _without_record(run, request, error, place, rescan=rescan, waits=waits, clock=time)
    except BaseException:
        host.close()
        raise


def facts_for(
    request: Request, *, folder: Path | None = None, clock: Clock | None = None, asker: Asker = ask,
    waits: Waits | None = None,
) -> Facts:
    """What a start would know now; nothing is made or changed, and what cannot be read is unknown."""
    try:
        place = host_folder(os.environ) if folder is None else folder
    except CannotOpen as error:
        return _nothing_seen(request, error.message)
    time = clock or clock_from_environment()

    def blind(problem: StateError | None) -> Facts:
        text = "" if problem is None else problem_of(problem, place / HOST_NAME)
        busy = isinstance(problem, LockTimeout)
        return Probe(None, place, time, asker=asker, waits=waits, problem=text, busy=busy).facts(request)

    try:
        host = open_host(place, read_only=True, clock=time, asker=asker, waits=waits)
    except NotFound:
        return blind(None)
    except StateError as error:
        return blind(error)
    with host:
        try:
            return host.probe.facts(request)
        except StateError as error:
            problem = error
    return blind(problem)


def _without_record(
    run: Run, request: Request, error: StateError, folder: Path, *, rescan: Callable[[], Iterable[str]] | None,
    waits: Waits | None, clock: Clock,
) -> Entered:
    """The end of a start that cannot use, or not write, the host's record: look again, and run only if that allows."""
    problem = f"{folder}: {problem_of(error, folder / HOST_NAME)}"
    with _one_by_one(folder, clock) as is_ours:
        facts = facts_for(request, folder=folder, clock=clock, waits=waits)
        verdict = without_writing(decide(facts), facts, problem, busy=isinstance(error, LockTimeout))
        if isinstance(verdict, Start) and not is_ours and not facts.force:
            verdict = Refuse(
                reason=Reason.HOST_BUSY, permanent=False, evidence=verdict.evidence,
                sentence=f"Another start has been looking at {folder} for {_TURN_SECONDS:g} s.",
            )
        if not isinstance(verdict, Start):
            return Entered(verdict=verdict, member=None, start_id=None, unwritten_because=problem)
        spoken, silent = None, problem
        if run.kind is Kind.GATEWAY:
            try:
                spoken, silent = _Spoken(run, folder, clock, rescan), ""
            except StateError as failed:
                silent = failed.message
        return Entered(
            verdict=verdict, member=None, start_id=None, silent_because=silent, unwritten_because=problem,
            unlisted=spoken,
        )


class _Spoken(Unlisted):
    """The answers of a run without a row."""

    def __init__(
        self, run: Run, folder: Path, clock: Clock, rescan: Callable[[], Iterable[str]] | None
    ) -> None:
        """Raises `CannotOpen`, and what `rescan` raises."""
        from hermes_state.owners.identity import identify

        identity = identify(secrets.token_hex(16), clock)
        self._rescan = rescan
        # Its own home at least, from the first moment on: nobody else is to start for that.
        served = frozenset({run.home}) if rescan is None else homes_of(rescan()) | {run.home}
        self._answer = Answer(
            nonce=identity.nonce, pid=identity.pid, home=run.home, state=RunState.RUNNING,
            multiplex=len(served) > 1, served=served, code_sha=run.code_sha,
        )
        self._answering = Answering(socket_path(folder, identity.nonce), self._on_question)

    def settle(self, served: Iterable[str], *, multiplex: bool) -> None:
        self._answer = replace(self._answer, served=homes_of(served), multiplex=multiplex)

    def leave(self) -> None:
        self._answering.close()

    def _on_question(self, question: Question) -> Answer | None:
        if question is Question.RESCAN and self._answer.multiplex:
            if self._rescan is None:
                return None
            self.settle(self._rescan(), multiplex=True)
        return self._answer


def _nothing_seen(request: Request, problem: str) -> Facts:
    return Facts(
        home=request.home, supervisor=request.supervisor, seen=Seen.UNKNOWN, because=(problem,),
        replace=request.replace, force=request.force, standalone=request.standalone, kind=request.kind,
    )


@contextmanager
def _one_by_one(folder: Path, clock: Clock) -> Iterator[bool]:
    """Within this block no other start without a record looks; False when one did for too long.

    The lock is on the folder itself, which needs no room and no permission to write.
    """
    try:
        with guarded() as kept:
            descriptor = os.open(folder, os.O_RDONLY | CLOSE_ON_EXEC)
            kept.add(held := GatewayLock(folder, descriptor))
    except OSError:
        yield True  # a folder that cannot be opened shows nobody to anybody
        return
    try:
        yield _locked(descriptor, clock)
    finally:
        held.release()


def _locked(descriptor: int, clock: Clock) -> bool:
    deadline = clock.monotonic() + _TURN_SECONDS
    while True:
        try:
            lock(descriptor, shared=False)
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(_NAP_SECONDS)
        except OSError:
            return True  # without locks nobody can be waited for
        else:
            return True
