"""What is wrong with a service file of a gateway, before it is wrong every five minutes.

Invariant: pure: the text of a file in, findings out; nothing is read, run or changed. A file of a kind that is not
known gives one finding that says so, never none.

Not for: writing service files. Looking at running processes was rejected: the loop begins at the next update.
"""

from __future__ import annotations

import configparser
import plistlib
from dataclasses import dataclass
from xml.parsers.expat import ExpatError

from hermes_state.host.exits import PERMANENT, Supervisor

TAKEOVER_FLAGS = ("--replace", "--force")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    code: str  # for programs
    sentence: str  # for people
    fix: str  # what to change


def lint(text: str) -> list[Finding]:
    """Judge the text of a systemd unit, a launchd property list or an s6 run script."""
    if text.lstrip().startswith("<?xml") or "<plist" in text:
        return _launchd(text)
    if "[Service]" in text:
        return _systemd(text)
    if text.startswith("#!"):
        return _takeover(text.split(), "s6 keeps what it runs alive", Supervisor.S6)
    return [Finding(
        code="unknown_kind", sentence="This is neither a systemd unit, nor a property list, nor a run script.",
        fix="Give the file that starts the gateway.",
    )]


def _systemd(text: str) -> list[Finding]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        return [Finding(code="unreadable", sentence=f"The unit cannot be read: {error.message}.", fix="Correct it.")]
    service = dict(parser.items("Service")) if parser.has_section("Service") else {}
    again = (service.get("Restart") or "no").strip()
    if again == "no":
        return []
    found = _takeover((service.get("ExecStart") or "").split(), f"Restart={again}", Supervisor.SYSTEMD)
    parked = (service.get("RestartPreventExitStatus") or "").split()
    if str(PERMANENT) not in parked:
        found.append(Finding(
            code="permanent_not_parked",
            sentence=f"With Restart={again} a start that is refused for good is tried again for ever.",
            fix=f"Add RestartPreventExitStatus={PERMANENT}.",
        ))
    return found


def _launchd(text: str) -> list[Finding]:
    try:
        said = plistlib.loads(text.encode())
    except (plistlib.InvalidFileException, ExpatError, ValueError) as error:
        return [Finding(code="unreadable", sentence=f"The list cannot be read: {error}.", fix="Correct it.")]
    if not isinstance(said, dict) or not said.get("KeepAlive"):
        return []
    words = [str(word) for word in said.get("ProgramArguments") or ()]
    return _takeover(words, "KeepAlive", Supervisor.LAUNCHD)


def _takeover(words: list[str], keeps: str, supervisor: Supervisor) -> list[Finding]:
    flags = [flag for flag in TAKEOVER_FLAGS if flag in words]
    return [
        Finding(
            code="takeover_kept_alive",
            sentence=f"{flag} together with {keeps}: two that are started so by {supervisor} end each other for ever.",
            fix=f"Take {flag} out: a supervised start waits for its turn by itself.",
        )
        for flag in flags
    ]
