"""What is wrong with a service file of a gateway, before it is wrong every five minutes.

Invariant: pure: the text of a file in, what its supervisor would do with our exit codes and the findings out; nothing
is read, run or changed. What the text does not tell is unknown (None), never fine and never wrong; a file of a kind
that is not known gives one finding that says so, never none.

Not for: writing service files, or finding them (see `unit_files`). Looking at running processes was rejected: the loop
begins at the next update.

Sources: systemd.service(5), launchd.plist(5), s6-supervise (finish that exits 125), units of hermes-agent 0.19.0.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.parsers.expat import ExpatError

from hermes_state.host import systemd
from hermes_state.host.exits import PERMANENT, TRY_AGAIN, Fate, Supervisor

TAKEOVER_FLAGS = ("--replace", "--force")
KILLED = -9  # how an end by SIGKILL is written here, as Python writes it
UNANNOUNCED = 1  # what a run exits with after a SIGTERM that nobody announced
CODES = (0, UNANNOUNCED, TRY_AGAIN, PERMANENT, KILLED)
# A program that makes 0 of 78 for launchd, which cannot park by number (hermes-agent's name for it).
_WRAPPER = "stderr_timestamp"
_FLAG = re.compile(r"(?<![\w-])(--replace|--force)(?![\w-])")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    code: str  # for programs
    sentence: str  # for people
    fix: str  # what to change


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What a service file says."""

    supervisor: Supervisor | None  # None: of no kind that is known, or it cannot be read
    fates: Mapping[int, Fate | None]  # one of CODES -> what becomes of the unit; None: the file does not tell
    home: str | None  # HERMES_HOME that it gives the gateway; None: it gives none
    findings: tuple[Finding, ...]


def lint(text: str, *, finish: str | None = None) -> list[Finding]:
    """What is wrong with a systemd unit, a launchd property list or an s6 run script. See `read`."""
    return list(read(text, finish=finish).findings)


def read(text: str, *, finish: str | None = None) -> Unit:
    """Judge the text of a service file.

    `finish` is the finish script beside an s6 run script: "" when there is none, None when nobody looked.
    """
    if text.lstrip().startswith("<?xml") or "<plist" in text:
        return _launchd(text)
    if re.search(r"^\[(Service|Unit)\]", text, re.MULTILINE):
        return _systemd(text)
    if text.startswith("#!"):
        return _s6(text, finish)
    return _unreadable(Finding(
        code="unknown_kind", sentence="This is neither a systemd unit, nor a property list, nor a run script.",
        fix="Give the file that starts the gateway.",
    ))


def _judged(
    supervisor: Supervisor, fates: Mapping[int, Fate | None], *, words: str, keeps: str, home: str | None,
    again: str, parks: str, more: tuple[Finding, ...] = (),
) -> Unit:
    """The findings that every supervisor has in common. `again` and `parks` are the fixes in its own words."""
    found = []
    if Fate.RESTARTED in fates.values():
        found += [
            Finding(
                code="takeover_kept_alive",
                sentence=f"{flag} together with {keeps}: two that are started so by {supervisor} end each other for"
                " ever.",
                fix=f"Take {flag} out: a supervised start waits for its turn by itself.",
            )
            for flag in TAKEOVER_FLAGS if flag in _FLAG.findall(words)
        ]
    if fates[PERMANENT] is Fate.RESTARTED:
        found.append(Finding(
            code="permanent_not_parked",
            sentence=f"With {keeps} a start that is refused for good ({PERMANENT}) is tried again for ever.", fix=parks,
        ))
    if fates[TRY_AGAIN] is Fate.PARKED:
        found.append(Finding(
            code="transient_not_restarted",
            sentence=f"With {keeps} a start that has to be tried again ({TRY_AGAIN}) is not: its home stays unserved"
            " when the gateway that serves it ends.", fix=again,
        ))
    if Fate.PARKED in (fates[KILLED], fates[UNANNOUNCED]):
        what = "that is killed" if fates[KILLED] is Fate.PARKED else "that fails (1)"
        found.append(Finding(
            code="crash_not_restarted", sentence=f"With {keeps} a gateway {what} is not started again.", fix=again
        ))
    return Unit(supervisor=supervisor, fates=fates, home=home, findings=(*found, *more))


def _systemd(text: str) -> Unit:
    unit = systemd.parse(text)
    again = unit.last("Service", "Restart") or "no"
    fates: dict[int, Fate | None] = {
        code: Fate.RESTARTED if systemd.restarts(unit, code) else Fate.PARKED for code in CODES
    }
    more: tuple[Finding, ...] = ()
    limit = systemd.start_limit(unit)
    if fates[TRY_AGAIN] is Fate.RESTARTED and limit is not None and limit.gives_up:
        more = (Finding(
            code="start_limit",
            sentence=f"A start that has to be tried again comes every {limit.delay:g} s, and systemd gives up after"
            f" {limit.burst} starts in {limit.interval:g} s.",
            fix="Set StartLimitIntervalSec=0 in [Unit], or RestartSec=5 in [Service].",
        ),)
    return _judged(
        Supervisor.SYSTEMD, fates, words=systemd.command_line(unit), keeps=f"Restart={again}",
        home=systemd.environment(unit).get("HERMES_HOME"), more=more,
        again=f"Set Restart=always, with RestartForceExitStatus={TRY_AGAIN}.",
        parks=f"Add RestartPreventExitStatus={PERMANENT}.",
    )


def _launchd(text: str) -> Unit:
    try:
        said = plistlib.loads(text.encode())
    except (plistlib.InvalidFileException, ExpatError, ValueError) as error:
        return _unreadable(Finding(
            code="unreadable", sentence=f"The list cannot be read: {error}.", fix="Correct it."
        ))
    if not isinstance(said, dict):
        return _unreadable(Finding(
            code="unreadable", sentence="The list cannot be read: it is no dictionary.", fix="Correct it."
        ))
    alive = said.get("KeepAlive", False)
    words = " ".join(str(word) for word in said.get("ProgramArguments") or ())
    fates = {code: _by_launchd(alive, code) for code in CODES}
    if _WRAPPER in words:
        fates[PERMANENT] = fates[0]
    keeps = "KeepAlive" if alive is True else "no KeepAlive" if not alive else "this KeepAlive"
    given = said.get("EnvironmentVariables")
    home = given.get("HERMES_HOME") if isinstance(given, dict) else None
    return _judged(
        Supervisor.LAUNCHD, fates, words=words, keeps=keeps, home=home if isinstance(home, str) else None,
        again="Set KeepAlive to a dictionary with SuccessfulExit false.",
        parks="Set KeepAlive to a dictionary with SuccessfulExit false, and start it through a program that exits 0"
        f" for {PERMANENT}.",
    )


def _by_launchd(alive: object, code: int) -> Fate | None:
    if not isinstance(alive, dict):
        return Fate.RESTARTED if alive else Fate.PARKED
    # Any one of the conditions is enough.
    on_success, on_crash = alive.get("SuccessfulExit"), alive.get("Crashed")
    if isinstance(on_success, bool) and (code == 0) is on_success:
        return Fate.RESTARTED
    if isinstance(on_crash, bool) and not on_crash and code >= 0:
        return Fate.RESTARTED
    # SIGKILL is no crash to it in each of its versions, and other conditions depend on the machine.
    known = alive.keys() <= {"SuccessfulExit", "Crashed"} and not (on_crash is True and code < 0)
    return Fate.PARKED if known else None


def _s6(text: str, finish: str | None) -> Unit:
    script = _COMMENT.sub("", text)
    fates: dict[int, Fate | None] = dict.fromkeys(CODES, Fate.RESTARTED)
    if finish is None:
        fates = dict.fromkeys(CODES, None)
    elif re.search(r"\b125\b", rest := _COMMENT.sub("", finish)):
        # Numbers but those that it exits with itself.
        asked = re.sub(r"\bexit\s+\d+", "", rest)
        named = [code for code in CODES if re.search(rf"(?<![\w${{-]){code}(?!\w)", asked)]
        if named == [PERMANENT]:
            fates[PERMANENT] = Fate.PARKED
        elif "$" not in rest:
            fates = dict.fromkeys(CODES, Fate.PARKED)  # whatever it exited with
        else:
            fates |= dict.fromkeys(named, None)
    if finish is None:
        # s6 keeps whatever it runs alive; only which codes it stops at is in the other file.
        fates[TRY_AGAIN] = Fate.RESTARTED
    home = re.search(r"\bHERMES_HOME=(\"[^\"$]*\"|'[^']*'|[^\s\"'$;]+)", script)
    return _judged(
        Supervisor.S6, fates, words=script, keeps="s6, which keeps what it runs alive",
        home=None if home is None else home[1].strip("\"'"),
        again=f"Have the finish script exit 125 for {PERMANENT} only.",
        parks=f"Add a finish script that exits 125 for {PERMANENT}.",
    )


def _unreadable(finding: Finding) -> Unit:
    return Unit(supervisor=None, fates=dict.fromkeys(CODES, None), home=None, findings=(finding,))
