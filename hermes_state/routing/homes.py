"""Homes: the one name that each has, and what may be written to its store.

Invariant: a home is its canonical folder and the id of the store in it, both taken at the same moment. A write names
its home; the store that it reaches must be that very store, at work, and there: a home that was removed, or made anew
under the same name, is refused, and nothing here makes a folder. Where the process was started, and what its
environment says, decide nothing.

Not for: finding a home when nobody names one (see `location`). The path alone was rejected: a profile that was deleted
and made again has the same one, and late work of the old one would be written to the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state import deletions
from hermes_state.errors import HomeRemoved, InvalidInput, WrongHome
from hermes_state.location import PROFILES, STORE_NAME
from hermes_state.outbox.inputs import text
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core

DEFAULT = "default"  # the profile of the root itself, always spelled out
# The namespace of the default profile's session keys; a profile of that name would share them.
DEFAULT_NAMESPACE = "main"


@dataclass(frozen=True, kw_only=True)
class Home:
    """One profile home. Make it with `home_of`, from an open store; keep it wherever work for that home is deferred."""

    path: Path  # canonical folder, see `canonical_home`
    store_id: str  # of the store in it, for life
    # the profile as it was addressed, where that is known: a folder that is reached through a link has another name
    name: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, Path) or not self.path.is_absolute():
            raise InvalidInput(
                f"A home is the absolute path of a folder, not {str(self.path)!r:.80}.",
                hint="Use home_of(store).", argument="path",
            )
        text("store_id", self.store_id, of=" of a home")
        if self.name is not None:
            text("name", self.name, of=" of a home")

    def __str__(self) -> str:
        return str(self.path)

    @property
    def profile(self) -> str:
        """The name of its profile: the folder's where it is one of `profiles/`, else "default".

        As it was addressed: `profiles/work` is "work" wherever a link leads. A root that is itself in a folder of that
        name counts as a profile (see `location`).
        """
        return self.name or (self.path.name if self.path.parent.name == PROFILES else DEFAULT)


def home_of(core: Core, *, profile: str | None = None) -> Home:
    """The home of an open store, as it is now. `profile`: its name as it was addressed, see `addressed_profile`."""
    return Home(path=canonical_home(core.path.parent), store_id=core.store_id, name=profile)


def addressed_profile(folder: str | os.PathLike[str]) -> str | None:
    """The name of a home's profile by the path that somebody gave, links not followed; None where that says none."""
    given = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    above, name = os.path.split(given)
    parents, parent = os.path.split(above)
    if _spelled(parents, parent, os.listdir, os.path.samefile) != PROFILES or not name:
        return None
    return _spelled(above, name, os.listdir, os.path.samefile)


def canonical_home(
    folder: str | os.PathLike[str], *, entries: Callable[[str], Iterable[str]] = os.listdir,
    same: Callable[[str, str], bool] = os.path.samefile,
) -> Path:
    """One path for one home: without links, "..", trailing separators, and as the file system itself spells it.

    Where a file system takes both spellings of a name (upper and lower case, composed and decomposed), the one that its
    folder lists is used. `entries` and `same` look at folders and files; for tests. Raises `InvalidInput` for no path.
    """
    given = os.fspath(folder)
    if not given or "\0" in given:
        raise InvalidInput(f"A home is a folder, not {given!r}.", hint="Name it.", argument="folder")
    real = os.path.realpath(os.path.expanduser(given))
    spelled = Path(real).anchor
    for name in Path(real).parts[1:]:
        spelled = os.path.join(spelled, _spelled(spelled, name, entries, same))
    return Path(spelled)


def _spelled(
    folder: str, name: str, entries: Callable[[str], Iterable[str]], same: Callable[[str, str], bool]
) -> str:
    try:
        listed = list(entries(folder))
    except OSError:
        return name  # it may not be listed: then nobody can tell
    if name in listed:
        return name
    wanted = os.path.join(folder, name)
    for other in listed:
        if other.casefold() == name.casefold() or len(os.fsencode(other)) != len(os.fsencode(name)):
            try:
                if same(os.path.join(folder, other), wanted):
                    return other
            except OSError:
                continue
    return name


def valid_profile(name: str, value: object) -> str:
    """The name of a profile, "default" spelled out. Raises `InvalidInput`."""
    given = text(name, value, of="")
    if given == DEFAULT_NAMESPACE or any(word in given for word in ("/", "\\", ":")) or given.startswith("."):
        raise InvalidInput(
            f"{name} is {given!r}, which cannot be a profile here: its session keys would be those of another one.",
            hint='Profiles are one word; the default one is "default", and no other may be called "main": rename it '
            "with `hermes profile rename`.",
            argument=name, profile=given,
        )
    return given


def valid_home(name: str, value: object) -> Home:
    """A home that must be there. Raises `InvalidInput` without one: nothing is written for nobody."""
    if not isinstance(value, Home):
        raise InvalidInput(
            f"{name} is the Home that it is for, not {value!r:.80}.",
            hint="Take it from the store of that profile with home_of(store) when the work begins.", argument=name,
        )
    return value


# --- what may be written -----------------------------------------------------------------------------------------


def refuse_other_home(core: Core, home: Home) -> None:
    """Before a write: the store is that home's, and the home is still there. Raises `WrongHome`, `HomeRemoved`."""
    valid_home("home", home)
    if home.store_id != core.store_id:
        raise WrongHome(
            f"A write for {home} (store {home.store_id}) reached {core.path} (store {core.store_id}).",
            hint="Open the store of the home that the work is for, and write there.",
            path=core.path, home=home, here=core.store_id,
        )
    folder = core.path.parent
    if folder != home.path and canonical_home(folder) != home.path and os.path.lexists(home.path / STORE_NAME):
        raise WrongHome(  # a home that was moved is not there any more
            f"A write for {home} reached {core.path}, which is a copy of it: both are store {home.store_id}.",
            hint="Give the copy an identity of its own: `hermes-state doctor --new-identity --db "
            f"{shell_word(core.path)}`.",
            path=core.path, home=home, here=core.store_id,
        )
    refuse_gone(core, home)


def refuse_gone(core: Core, home: Home | None = None) -> None:
    """Raises `HomeRemoved` when the file of the store is not there any more."""
    if not os.path.lexists(core.path):
        raise _removed(core.path, home or core.path.parent, None)


def guard(tx: Reader, home: Home) -> None:
    """First thing in a transaction that writes for `home`. Raises `WrongHome`, `HomeRemoved`; let it leave the block.

    `store_id` and the mark of removal are read inside the transaction, so that neither can change before the commit.
    """
    valid_home("home", home)
    row = tx.row("SELECT store_id FROM store")
    here = "" if row is None else str(row[0])
    if here != home.store_id:
        raise WrongHome(
            f"A write for {home} (store {home.store_id}) reached {tx.path} (store {here}).",
            hint="Open the store of the home that the work is for, and write there.",
            path=tx.path, home=home, here=here,
        )
    since = removed_at(tx)
    if since is not None:
        raise _removed(tx.path, home, since)


def removed_at(reader: Reader) -> float | None:
    """Since when nothing is written for this home any more (epoch seconds UTC); None while it is in use."""
    return deletions.home_removed_at(reader)


def removed_home(home: Home) -> HomeRemoved:
    """The error for a home whose store is not there."""
    return _removed(home.path / STORE_NAME, home, None)


def _removed(path: Path, home: Home | Path, since: float | None) -> HomeRemoved:
    return deletions.home_removed(path, home, since)


def served_homes(homes: Iterable[Home]) -> Mapping[str, Home]:
    """Homes by the names of their profiles. Raises `InvalidInput` when two have one name."""
    found: dict[str, Home] = {}
    for home in homes:
        other = found.setdefault(valid_profile("profile", valid_home("home", home).profile), home)
        if other != home:
            raise InvalidInput(
                f"{other} and {home} are both profile {home.profile!r}.", hint="Serve one of them.",
                argument="homes", profile=home.profile,
            )
    return found
