"""Time as an argument.

Invariant: nothing in the project reads the time but through a `Clock` it was given. Wall time (`now`) is for what
people see and for due times; `boottime` is for leases and goes on counting in suspend; `monotonic` is for deadlines.
Two boot times are comparable only within one `domain`: one boot of one machine, in one time namespace.

Not for: scheduling. A module-level clock was rejected: two tests in one process would share it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

CLOCK_FILE_VARIABLE = "HERMES_STATE_CLOCK"


@dataclass(frozen=True, kw_only=True)
class ClockDomain:
    """Within what `boottime` may be compared."""

    boot_id: str  # random for each boot of a machine; "" when the platform does not say
    time_namespace: str  # inode and boot-time offset of the time namespace; "" when unknown, "none" where there is none

    def comparable(self, other: ClockDomain) -> bool:
        """Whether boot times of both may be compared; what is unknown never may."""
        return self == other and bool(self.boot_id) and bool(self.time_namespace)


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC, as a float."""

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""

    def boottime(self) -> float:
        """Seconds since boot, suspend included where the system can tell."""

    def domain(self) -> ClockDomain:
        """Within what `boottime` may be compared."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._domain: tuple[int, ClockDomain] | None = None

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        # Linux has CLOCK_BOOTTIME; CLOCK_MONOTONIC of macOS and the ticks of Windows go on counting in sleep.
        name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
        clock_id = getattr(time, name, None)
        return time.monotonic() if clock_id is None else time.clock_gettime(clock_id)

    def domain(self) -> ClockDomain:
        # A child may be forked into another time namespace, and a process never changes its own.
        if self._domain is None or self._domain[0] != os.getpid():
            self._domain = os.getpid(), machine_domain()
        return self._domain[1]

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def machine_domain(*, proc_root: Path = Path("/proc")) -> ClockDomain:
    """The domain of this process's boot time, as the system tells it.

    Linux: `sys/kernel/random/boot_id`, and inode with offset of the time namespace, since inodes are used again. macOS:
    the boot session's UUID. Elsewhere unknown, so that no two boot times are ever compared.
    """
    if sys.platform == "darwin":
        return ClockDomain(boot_id=_mac_boot_session(), time_namespace="none")
    if not sys.platform.startswith("linux"):
        return ClockDomain(boot_id="", time_namespace="")
    try:
        boot_id = (proc_root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot_id = ""
    return ClockDomain(boot_id=boot_id, time_namespace=_time_namespace(proc_root / "self"))


def _time_namespace(me: Path) -> str:
    try:
        name = os.readlink(me / "ns" / "time")
        offsets = (me / "timens_offsets").read_text(encoding="ascii")
    except FileNotFoundError:
        # Kernels before 5.6 have no time namespaces; without /proc/self nothing is known.
        return "none" if (me / "ns").exists() else ""
    except OSError:
        return ""
    offset = next((row.split()[1:] for row in offsets.splitlines() if row.startswith("boottime")), [])
    return f"{name.removeprefix('time:').strip('[]')}+{'.'.join(offset)}"


def _mac_boot_session() -> str:
    import ctypes

    size = ctypes.c_size_t(64)
    answer = ctypes.create_string_buffer(size.value)
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(b"kern.bootsessionuuid", answer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return ""
    return answer.value.decode("ascii", "replace")


_MOVING = threading.Lock()


class FakeClock:
    """A clock that only moves when told to, shared with child processes through a small file.

    Every reader of the same file sees the same time; `sleep` advances it at once. The file holds
    `{"now": seconds, "monotonic": seconds}`, and `boot_id` and `time_namespace` when they are not the machine's own. A
    file made by `elsewhere` holds `{"of": the other file, "boottime_offset": seconds, ...}` instead.
    """

    def __init__(self, path: Path, *, now: float | None = None) -> None:
        self.path = path
        if now is not None:
            self._write(now=now, monotonic=0.0)

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return record

    def _read(self) -> tuple[float, float]:
        record = self._record()
        if "of" in record:
            return FakeClock(Path(record["of"]))._read()
        return float(record["now"]), float(record["monotonic"])

    def _write(self, **changes: Any) -> None:
        record = self._record() if self.path.exists() else {}
        if "of" in record and changes.keys() <= {"now", "monotonic"}:
            FakeClock(Path(record["of"]))._write(**changes)
            return
        staged = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}.new")
        staged.write_text(json.dumps(record | changes), encoding="utf-8")
        os.replace(staged, self.path)

    def now(self) -> float:
        return self._read()[0]

    def monotonic(self) -> float:
        return self._read()[1]

    def boottime(self) -> float:
        return self._read()[1] + float(self._record().get("boottime_offset", 0.0))

    def domain(self) -> ClockDomain:
        record, own = self._record(), machine_domain()
        return ClockDomain(
            boot_id=record.get("boot_id", own.boot_id), time_namespace=record.get("time_namespace", own.time_namespace)
        )

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        with _MOVING:  # of the threads of one process; processes take turns by gates
            now, monotonic = self._read()
            self._write(now=now + seconds, monotonic=monotonic + seconds)

    def step_wall(self, seconds: float) -> None:
        """Move only the wall clock, forwards or back, as an administrator would."""
        self._write(now=self._read()[0] + seconds)

    def reboot(self, *, boot_id: str, off_seconds: float = 30.0) -> None:
        """Start a new boot: another boot id, and boot time from 0; `off_seconds` pass on the wall.

        Of a clock that was not made by `elsewhere`; those that were keep their own boot id.
        """
        self._write(now=self._read()[0] + off_seconds, monotonic=0.0, boot_id=boot_id)

    def elsewhere(
        self, path: Path, *, time_namespace: str = "elsewhere", boot_id: str | None = None, boottime_offset: float = 0.0
    ) -> FakeClock:
        """The same time seen from another clock domain: another time namespace, or another boot id as well.

        `path` is the new clock's file, which a child process can be given. Moving one of the clocks moves both.
        """
        record = {"of": str(self.path), "time_namespace": time_namespace, "boottime_offset": boottime_offset}
        if boot_id is not None:
            record["boot_id"] = boot_id
        path.write_text(json.dumps(record), encoding="utf-8")
        return FakeClock(path)


SYSTEM: Clock = SystemClock()


def clock_from_environment() -> Clock:
    """The system's clock, or the shared fake one when `HERMES_STATE_CLOCK` names its file."""
    path = os.environ.get(CLOCK_FILE_VARIABLE)
    return FakeClock(Path(path)) if path else SYSTEM
