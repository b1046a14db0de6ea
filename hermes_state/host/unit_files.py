"""The service files of gateways: where they lie, and what is wrong with each.

Invariant: files are read and nothing else is done. What cannot be read is a finding of its own, never fine; a folder
that cannot be listed is one as well. A unit is read with its drop-ins, a run script with its finish script.

Not for: the judgement of one text (see `units`). Asking systemctl or launchctl was rejected: they answer for one
session of one user, and the files are what the next boot goes by.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hermes_state.host.exits import Fate
from hermes_state.host.units import CODES, Finding, Unit, read

_MOST_BYTES = 1 << 20  # no service file is larger
S6_FOLDER = "/run/service"  # where hermes-agent's container has its gateways


@dataclass(frozen=True, kw_only=True)
class UnitFile:
    """One service file."""

    path: Path
    masked: bool  # it leads to /dev/null: it is never started
    unit: Unit


def find(environ: Mapping[str, str], *, root: Path = Path("/")) -> tuple[list[Path], list[UnitFile]]:
    """Service files of gateways of this user and machine by their names, sorted; and folders that cannot be listed.

    `root` is put before the machine's own folders; for tests.
    """
    home = Path(environ.get("HOME") or Path.home())
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    s6 = environ.get("S6_PROFILE_GATEWAY_SCANDIR")
    places = [
        (config / "systemd" / "user", ".service"), (root / "etc/systemd/user", ".service"),
        (root / "etc/systemd/system", ".service"), (home / "Library/LaunchAgents", ".plist"),
        (root / "Library/LaunchAgents", ".plist"), (root / "Library/LaunchDaemons", ".plist"),
        (Path(s6) if s6 else root / S6_FOLDER.strip("/"), ""),
    ]
    found, failed = set(), []
    for folder, ending in places:
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failed.append(_cannot(folder, f"The folder cannot be listed ({error.strerror})."))
            continue
        for name in names:
            if ending:
                if "hermes" in name and name.endswith(ending):
                    found.add(folder / name)
            elif name.startswith(("gateway", "hermes")) and (folder / name / "run").exists():
                found.add(folder / name / "run")
    return sorted(found), failed


def read_all(paths: Iterable[Path]) -> list[UnitFile]:
    """What is wrong with each of these files, and with them together."""
    files = [_read_one(path) for path in paths]
    starting: dict[str, list[Path]] = {}
    for one in files:
        if one.unit.home is not None and not one.masked and Fate.RESTARTED in one.unit.fates.values():
            starting.setdefault(os.path.realpath(one.unit.home), []).append(one.path)
    return [_with_conflict(one, starting) for one in files]


def _with_conflict(one: UnitFile, starting: Mapping[str, list[Path]]) -> UnitFile:
    home = one.unit.home
    same = [] if home is None else starting.get(os.path.realpath(home), [])
    if one.path not in same or len(same) < 2:
        return one
    others = " and ".join(str(path) for path in same if path != one.path)
    finding = Finding(
        code="same_home", sentence=f"{home} is started by {others} as well.",
        fix="Keep one of them, disable the others.",
    )
    return replace(one, unit=replace(one.unit, findings=(*one.unit.findings, finding)))


def _read_one(path: Path) -> UnitFile:
    if os.path.realpath(path) == os.devnull:
        silent = Unit(supervisor=None, fates=dict.fromkeys(CODES, Fate.PARKED), home=None, findings=())
        return UnitFile(path=path, masked=True, unit=silent)
    try:
        text = _text(path)
        if path.name == "run":
            finish = path.parent / "finish"
            unit = read(text, finish=_text(finish) if os.path.lexists(finish) else "")
        else:
            unit = read("\n".join([text, *_drop_ins(path)]))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        return _cannot(path, f"It cannot be read ({why}).")
    return UnitFile(path=path, masked=False, unit=unit)


def _drop_ins(path: Path) -> list[str]:
    folder = path.with_name(f"{path.name}.d")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".conf"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [_text(folder / name) for name in names]


def _text(path: Path) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "it is no file")  # opening a pipe would wait for somebody to write
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8")


def _cannot(path: Path, sentence: str) -> UnitFile:
    finding = Finding(code="cannot_read", sentence=sentence, fix="Run this as a user who may read it.")
    unit = Unit(supervisor=None, fates=dict.fromkeys(CODES, None), home=None, findings=(finding,))
    return UnitFile(path=path, masked=False, unit=unit)
