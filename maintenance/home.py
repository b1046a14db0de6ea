"""Which store a command means: `--db`, or `state.db` of a home, or of a profile of it.

Invariant: the answer names one existing regular file by its real path, so that the sidecars and the files that we keep
beside a store are found where SQLite looks for them. Nothing is created and nothing is opened here.

Not for: other files of a home. Falling back to another store when the named one is missing was rejected: a person who
mistypes a profile would then prune the wrong one.

What a home or a profile means when it is not said is `hermes_state.location`'s, the same for the library.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_state.errors import CannotOpen, InvalidInput, NotFound
from hermes_state.location import PROFILES, STORE_NAME, home_folder, profiles_of


class Location(NamedTuple):
    """Where a command works."""

    home: Path  # the folder that holds the store
    profile: str | None  # the profile's name, None for the root's own store and for --db
    db: Path  # the store's real path


def locate(
    *, home: str | None, profile: str | None, db: str | None, environ: Mapping[str, str], must_exist: bool = True,
    home_must_exist: bool = True,
) -> Location:
    """Resolve the options of a command to one store.

    With `must_exist=False` the store itself may be missing, with `home_must_exist=False` the folder of --home as well.
    """
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
    folder, name = _folder(home, profile, environ, home_must_exist)
    return Location(folder, name, _store(folder / STORE_NAME, must_exist=must_exist))


def _folder(
    home: str | None, profile: str | None, environ: Mapping[str, str], must_exist: bool
) -> tuple[Path, str | None]:
    base = Path(home).expanduser() if home is not None else None
    if base is not None and not base.is_dir() and (must_exist or os.path.lexists(base)):
        kind = "is not a folder" if base.exists() else "does not exist"
        raise InvalidInput(f"--home {base} {kind}.", option="--home", path=base)
    return home_folder(home, profile, environ)


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
    return (
        "Name the folder with --home, the profile with --profile, or the file with --db. The first program that opens a"
        " store there makes it, such as a gateway server."
    )
