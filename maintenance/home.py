"""Which store a command means: `--db`, or `state.db` of a home, or of a profile of it.

Invariant: the answer names one existing regular file by its real path, so that the sidecars and the files that we keep
beside a store are found where SQLite looks for them. Nothing is created and nothing is opened here.

Not for: other files of a home. Falling back to another store when the named one is missing was rejected: a person who
mistypes a profile would then prune the wrong one.

The order is hermes-agent's: the options; else HERMES_HOME when it is itself a profile's folder; else the profile that
`<root>/active_profile` names; else the root itself (HERMES_HOME, or ~/.hermes).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_state.errors import CannotOpen, InvalidInput, NotFound

STORE_NAME = "state.db"
PROFILES = "profiles"
STICKY_PROFILE = "active_profile"
HOME_VARIABLE = "HERMES_HOME"


class Location(NamedTuple):
    """Where a command works."""

    home: Path  # the folder that holds the store
    profile: str | None  # the profile's name, None for the root's own store and for --db
    db: Path  # the store's real path


def default_root(environ: Mapping[str, str]) -> Path:
    """The folder of an installation when nothing says otherwise."""
    if sys.platform == "win32":
        local = environ.get("LOCALAPPDATA", "").strip()
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hermes"
    return Path.home() / ".hermes"


def root_of(home: Path, environ: Mapping[str, str]) -> Path:
    """The installation that `home` belongs to: `<root>` of `<root>/profiles/<name>`, else `home` itself."""
    if home.parent.name == PROFILES:
        return home.parent.parent
    native = default_root(environ)
    if home != native and native in home.parents:
        return native
    return home


def locate(
    *, home: str | None, profile: str | None, db: str | None, environ: Mapping[str, str], must_exist: bool = True
) -> Location:
    """Resolve the options of a command to one store. With `must_exist=False` the store itself may be missing."""
    for option, value in (("--home", home), ("--profile", profile), ("--db", db)):
        if value is not None and (not value or "\0" in value):
            raise InvalidInput(f"{option} needs a value.", option=option)
    if db is not None:
        if profile is not None:
            raise InvalidInput("--db names a file and --profile names a home: give only one of them.", option="--db")
        if home is not None:
            raise InvalidInput("--db names a file and --home names a folder: give only one of them.", option="--db")
        path = _store(Path(db).expanduser(), must_exist=must_exist)
        return Location(path.parent, None, path)
    folder, name = _folder(home, profile, environ)
    return Location(folder, name, _store(folder / STORE_NAME, must_exist=must_exist))


def _folder(home: str | None, profile: str | None, environ: Mapping[str, str]) -> tuple[Path, str | None]:
    said = home if home is not None else environ.get(HOME_VARIABLE, "").strip()
    base = Path(said).expanduser() if said else default_root(environ)
    if home is not None and not base.is_dir():
        kind = "is not a folder" if base.exists() else "does not exist"
        raise InvalidInput(f"--home {base} {kind}.", option="--home", path=base)
    root = root_of(base, environ)
    if profile is not None:
        return _profile_folder(root, profile, "--profile")
    if base.parent.name == PROFILES:
        return base, base.name
    sticky = None if home is not None else _sticky_profile(root)
    if sticky is not None:
        return _profile_folder(root, sticky, str(root / STICKY_PROFILE))
    return base, None


def _sticky_profile(root: Path) -> str | None:
    """The profile that `hermes profile use` chose; none when the file is missing or cannot be read."""
    try:
        name = (root / STICKY_PROFILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if name and name != "default" else None


def _profile_folder(root: Path, name: str, said_by: str) -> tuple[Path, str | None]:
    if name == "default":
        return root, None
    if "/" in name or "\\" in name or name.startswith(".") or not name.isprintable():
        raise InvalidInput(
            f"{said_by} says {name!r}, which is not the name of a profile: it is one word without path separators.",
            option="--profile", profile=name,
        )
    folder = root / PROFILES / name
    if not folder.is_dir():
        known = profiles_of(root)
        raise NotFound(
            f"There is no profile {name} in {root / PROFILES}.",
            hint=f"Profiles there: {', '.join(known)}." if known else "That installation has only the default profile.",
            profile=name, path=folder,
        )
    return folder, name


def profiles_of(root: Path) -> list[str]:
    """The named profiles of an installation that have a folder."""
    try:
        with os.scandir(root / PROFILES) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def _store(path: Path, *, must_exist: bool) -> Path:
    real = Path(os.path.realpath(path))
    try:
        kind = os.stat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not must_exist:
            return real
        raise NotFound(f"There is no store at {path}.", hint=_where_else(path), path=path) from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise CannotOpen(f"{path} cannot be reached: {reason}.", path=path) from problem
    if stat.S_ISDIR(kind):
        raise InvalidInput(
            f"{path} is a folder, not a store.", hint=f"--home {path} names the store in that folder.", path=path
        )
    if not stat.S_ISREG(kind):
        raise InvalidInput(f"{path} is not a regular file.", path=path)
    return real


def _where_else(path: Path) -> str:
    root = path.parent.parent.parent if path.parent.parent.name == PROFILES else path.parent
    known = profiles_of(root)
    if known:
        return f"Name the profile with --profile ({', '.join(known)}), or the file with --db."
    return "Name the folder with --home, the profile with --profile, or the file with --db."
