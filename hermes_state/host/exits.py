"""Exit codes: what a verdict is to each supervisor, and what a supervisor does with a code.

Invariant: the two tables here are the only place where a number stands for a verdict. What is stored is the verdict;
the number is made at the edge, because the same one means different things per supervisor.

Sources: codes and fates of the change log and the released units of hermes-agent. For s6/0 and launchd/0 they differ
(`Reading`), so nothing here may depend on which is right: no verdict that has to be tried again exits 0 supervised.

Not for: the exit codes of this program's own verbs. One code for "attached" was rejected: 78 parked nine of eleven
units of a fleet at boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from hermes_state.host.states import MarkerKind

TRY_AGAIN = 75  # EX_TEMPFAIL
PERMANENT = 78  # EX_CONFIG


class Supervisor(StrEnum):
    """Who starts a gateway and reads its exit code."""

    SYSTEMD = "systemd"
    S6 = "s6"
    LAUNCHD = "launchd"
    EXTERNAL = "external"  # somebody who said so, in the environment
    NONE = "none"  # a person or a script


class Outcome(StrEnum):
    """A verdict without its facts: the form that is stored."""

    START = "start"
    ATTACH = "attach"
    REFUSE_PERMANENT = "refuse_permanent"
    REFUSE_TRANSIENT = "refuse_transient"
    REPLACE_HOST = "replace_host"


class Fate(StrEnum):
    """What becomes of a unit whose process exited."""

    RESTARTED = "restarted"  # after the supervisor's delay
    PARKED = "parked"  # until a person starts it
    ENDED = "ended"  # nobody supervises it


class Reading(StrEnum):
    """How an exit with 0 is read by s6 and launchd: the sources differ."""

    RELEASE = "release"  # the released units: 0 is started again (KeepAlive=true; finish stops on 78 only)
    CHANGE_LOG = "change log"  # 0 parks (KeepAlive.SuccessfulExit=false; a clean exit is parked by s6 as well)


_SUPERVISED: Mapping[Outcome, int | None] = {
    Outcome.START: None,  # it runs
    Outcome.ATTACH: TRY_AGAIN,  # served now; it must come back when the owner is gone
    Outcome.REFUSE_PERMANENT: PERMANENT,
    Outcome.REFUSE_TRANSIENT: TRY_AGAIN,
    Outcome.REPLACE_HOST: None,
}
# For each verdict and whoever reads the code; None: the process goes on to run. That a person gets 75 for a transient
# refusal is ours: no source says what it was.
EXIT_CODES: Mapping[Supervisor, Mapping[Outcome, int | None]] = {
    Supervisor.SYSTEMD: _SUPERVISED,
    Supervisor.S6: _SUPERVISED,
    Supervisor.LAUNCHD: _SUPERVISED,
    Supervisor.EXTERNAL: _SUPERVISED,
    Supervisor.NONE: {**_SUPERVISED, Outcome.ATTACH: 0},
}

# The 4 x 3 table: what each does with the three codes.
_SAME_IN_BOTH: Mapping[tuple[Supervisor, int], Fate] = {
    (Supervisor.SYSTEMD, TRY_AGAIN): Fate.RESTARTED,  # RestartForceExitStatus=75
    (Supervisor.SYSTEMD, PERMANENT): Fate.PARKED,  # RestartPreventExitStatus=78
    (Supervisor.SYSTEMD, 0): Fate.RESTARTED,  # Restart=always
    (Supervisor.S6, TRY_AGAIN): Fate.RESTARTED,  # finish passes it on
    (Supervisor.S6, PERMANENT): Fate.PARKED,  # finish exits 125
    (Supervisor.LAUNCHD, TRY_AGAIN): Fate.RESTARTED,  # relaunched as a failure
    (Supervisor.LAUNCHD, PERMANENT): Fate.PARKED,  # the wrapper makes 0 of it
    (Supervisor.NONE, TRY_AGAIN): Fate.ENDED,
    (Supervisor.NONE, PERMANENT): Fate.ENDED,
    (Supervisor.NONE, 0): Fate.ENDED,
}
FATES: Mapping[Reading, Mapping[tuple[Supervisor, int], Fate]] = {
    Reading.RELEASE: {
        **_SAME_IN_BOTH, (Supervisor.S6, 0): Fate.RESTARTED, (Supervisor.LAUNCHD, 0): Fate.RESTARTED,
    },
    Reading.CHANGE_LOG: {**_SAME_IN_BOTH, (Supervisor.S6, 0): Fate.PARKED, (Supervisor.LAUNCHD, 0): Fate.PARKED},
}


def exit_code(outcome: Outcome, supervisor: Supervisor) -> int | None:
    """What a start with this verdict exits with; None when it goes on to run."""
    return EXIT_CODES[supervisor][outcome]


def stop_code(marker: MarkerKind | None, supervisor: Supervisor) -> int:
    """What a run exits with after SIGTERM; `marker` is the one that announced it, None when nobody did.

    0 for a planned stop, 1 for a stop that nobody announced. A supervised run whose place somebody took comes back (75)
    and attaches: with 0 it would be parked in one of the readings, and nobody serves its home once that one is gone.
    """
    if marker is None:
        return 1
    if marker is MarkerKind.TAKEOVER and supervisor is not Supervisor.NONE:
        return TRY_AGAIN
    return 0


def supervisor_of(environ: Mapping[str, str], *, pid: int, parent: int) -> Supervisor:
    """Who started this process, by its environment.

    A shell of a desktop session inherits INVOCATION_ID; SYSTEMD_EXEC_PID, where it is set, tells whose it is.
    """
    external = environ.get("HERMES_GATEWAY_EXTERNAL_SUPERVISOR", "").strip().lower()
    if external and external not in ("0", "false", "no"):
        return Supervisor(external) if external in set(Supervisor) else Supervisor.EXTERNAL
    if environ.get("HERMES_S6_SUPERVISED_CHILD"):
        return Supervisor.S6
    if environ.get("XPC_SERVICE_NAME", "0") != "0":
        return Supervisor.LAUNCHD
    if environ.get("INVOCATION_ID"):
        started = environ.get("SYSTEMD_EXEC_PID")
        if started is None or started in (str(pid), str(parent)):
            return Supervisor.SYSTEMD
    return Supervisor.NONE
