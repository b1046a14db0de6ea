"""A systemd unit as text: its assignments, and when systemd starts the service again.

Invariant: as systemd.syntax(7) and systemd.service(5) say: a list grows with each assignment and an empty one clears
it, of a single value the last counts, a line that ends in a backslash goes on. Drop-ins are text behind the unit's.

Not for: judging (see `units`). configparser was rejected: of two assignments to a list it keeps one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hermes_state.host.exits import PERMANENT, TRY_AGAIN

# Names of sysexits.h that systemd takes for numbers, those that matter here.
_NAMES = {"SUCCESS": 0, "FAILURE": 1, "TEMPFAIL": TRY_AGAIN, "CONFIG": PERMANENT, "SIGKILL": -9, "KILL": -9}
# For each Restart=: whether a clean end, a bad exit code and a signal start it again.
_POLICIES: Mapping[str, tuple[bool, bool, bool]] = {
    "no": (False, False, False), "always": (True, True, True), "on-success": (True, False, False),
    "on-failure": (False, True, True), "on-abnormal": (False, False, True), "on-abort": (False, False, True),
    "on-watchdog": (False, False, False),
}
_SECONDS = {
    "us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0,
    "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86_400.0,
    "day": 86_400.0, "days": 86_400.0,
}
# systemd-system.conf(5): what counts where a unit says nothing.
_DELAY_SECONDS, _LIMIT_SECONDS, _LIMIT_BURST = 0.1, 10.0, 5


@dataclass(frozen=True, kw_only=True)
class UnitText:
    """The assignments of a unit in their order."""

    assigned: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)  # (section, key) -> values

    def last(self, section: str, key: str) -> str | None:
        """A single value; None when it is not set."""
        return next((value for value in reversed(self.assigned.get((section, key), ())) if value), None)

    def all(self, section: str, key: str) -> list[str]:
        """A list: what was said since it was cleared last."""
        found: list[str] = []
        for value in self.assigned.get((section, key), ()):
            found = [*found, value] if value else []
        return found


@dataclass(frozen=True, kw_only=True)
class StartLimit:
    """How often systemd starts a unit before it gives up."""

    interval: float  # seconds
    burst: int  # starts within them
    delay: float  # seconds before each

    @property
    def gives_up(self) -> bool:
        """Whether a service that ends at once every time comes to the limit."""
        return self.burst * self.delay < self.interval


def parse(text: str) -> UnitText:
    """The assignments of a unit; lines that are none are left out, as systemd does."""
    assigned: dict[tuple[str, str], list[str]] = {}
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and "=" in line:
            key, _, value = line.partition("=")
            assigned.setdefault((section, key.strip()), []).append(value.strip())
    return UnitText(assigned=assigned)


def restarts(unit: UnitText, code: int) -> bool:
    """Whether systemd starts the service again after that exit code; below 0, after a signal that is no clean end."""
    if code in _statuses(unit, "RestartPreventExitStatus"):
        return False
    if code in _statuses(unit, "RestartForceExitStatus"):
        return True
    clean, failure, signal = _POLICIES.get(unit.last("Service", "Restart") or "no", (False, False, False))
    if code == 0 or code in _statuses(unit, "SuccessExitStatus"):
        return clean
    return failure if code > 0 else signal


def start_limit(unit: UnitText) -> StartLimit | None:
    """The limit that counts; None when there is none, or it cannot be read."""
    said = (
        unit.last("Unit", "StartLimitIntervalSec") or unit.last("Unit", "StartLimitInterval")
        or unit.last("Service", "StartLimitInterval")
    )
    interval = _LIMIT_SECONDS if said is None else _seconds(said)
    pause = unit.last("Service", "RestartSec")
    delay = _DELAY_SECONDS if pause is None else _seconds(pause)
    often = unit.last("Unit", "StartLimitBurst") or unit.last("Service", "StartLimitBurst") or str(_LIMIT_BURST)
    if interval is None or delay is None or not often.isdigit() or interval == 0 or int(often) == 0:
        return None
    return StartLimit(interval=interval, burst=int(often), delay=delay)


def environment(unit: UnitText) -> dict[str, str]:
    """What the unit itself puts into the environment of its service."""
    found = {}
    for line in unit.all("Service", "Environment"):
        try:
            words = shlex.split(line)
        except ValueError:
            continue  # an open quote: systemd leaves that line out as well
        found.update(dict(word.split("=", 1) for word in words if "=" in word))
    return found


def command_line(unit: UnitText) -> str:
    """What it starts, with what the unit's own environment puts into it."""
    words, known = " ".join(unit.all("Service", "ExecStart")), environment(unit)
    return re.sub(
        r"\$(?:\{(\w+)\}|(\w+))", lambda found: known.get(found[1] or found[2], found[0]), words
    )


def _statuses(unit: UnitText, key: str) -> set[int]:
    words = " ".join(unit.all("Service", key)).split()
    return {_NAMES[word] if word in _NAMES else int(word) for word in words if word in _NAMES or word.isdigit()}


def _seconds(text: str) -> float | None:
    """A time span such as `5`, `100ms` or `1min 30s`; None for `infinity` and what is none."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if not parts or any(unit not in _SECONDS for _, unit in parts) or re.sub(r"[\d.\sa-z]", "", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
