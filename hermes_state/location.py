"""Which folder a program means when it says nothing, a home, or a profile.

Invariant: resolved anew at every call, from the arguments and the environment given, never at import; an explicit
argument wins over the environment, and the environment over the sticky profile. Nothing is created and
nothing is opened here.

Not for: command line options (see `maintenance.home`). Falling back to another home when the named one is missing was
rejected: rows would land in the wrong profile.

The order is hermes-agent's: the home given; else HERMES_HOME when it is itself a profile's folder; else the profile
that `<root>/active_profile` names; else the root itself (HERMES_HOME, or ~/.hermes).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from hermes_state.errors import InvalidInput, NotFound

STORE_NAME = "state.db"
PROFILES = "profiles"
STICKY_PROFILE = "active_profile"
HOME_VARIABLE = "HERMES_HOME"


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


def home_folder(home: str | None, profile: str | None, environ: Mapping[str, str]) -> tuple[Path, str | None]:
    """The folder that holds the store, and its profile's name (None for the root's own)."""
    said = home if home is not None else environ.get(HOME_VARIABLE, "").strip()
    base = Path(said).expanduser() if said else default_root(environ)
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
    if not os.path.isdir(folder):  # which is False, and no error, where the folder cannot be reached
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
