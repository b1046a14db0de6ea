"""Which homes there are.

Invariant: a home is a folder that has a store now; each is found once, by its canonical path, and nothing is made.
Which profiles are served by platforms decides nothing here: jobs of all of them are ticked.

Not for: what becomes of a home that is found (see `seats`). A list that is read once was rejected: profiles are made
and deleted while a gateway runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from hermes_state.location import PROFILES, STORE_NAME, profiles_of
from hermes_state.routing import canonical_home

Finder = Callable[[], Iterable[Path]]


def installation(root: str | os.PathLike[str]) -> Finder:
    """A finder of the default home of an installation and of its profiles."""
    base = Path(root)

    def find() -> list[Path]:
        return [base, *(base / PROFILES / name for name in profiles_of(base))]

    return find


def found(finder: Finder, known: dict[str, Path]) -> dict[str, Path]:
    """The homes that have a store, by their canonical path, in the finder's order.

    `known`: folders that were found before, with their canonical paths; those that are gone are dropped from it.
    """
    homes: dict[str, Path] = {}
    seen: dict[str, Path] = {}
    for folder in finder():
        said = os.fspath(folder)
        if not os.path.isfile(os.path.join(said, STORE_NAME)):
            continue
        home = seen[said] = known.get(said) or canonical_home(said)
        homes.setdefault(str(home), home)
    known.clear()
    known.update(seen)
    return homes
