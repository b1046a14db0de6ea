"""Which homes an installation has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maintenance.context import Context


def homes_of(ctx: Context) -> list[Path]:
    """The stores of the installation that a home belongs to: the root's own, then its profiles'. Only what exists."""
    from hermes_state.location import PROFILES, STORE_NAME, profiles_of, root_of

    root = root_of(ctx.home, os.environ)
    folders = [root, *(root / PROFILES / name for name in profiles_of(root))]
    found = [Path(os.path.realpath(folder / STORE_NAME)) for folder in folders if (folder / STORE_NAME).is_file()]
    return list(dict.fromkeys([*found, ctx.db]))
