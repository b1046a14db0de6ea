"""Private copies of real hermes-agent files.

Invariant: the committed fixtures are only read, always through gzip; a test gets a copy of its own.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "hermes-agent"


def versions() -> tuple[str, ...]:
    """The releases that a fixture exists for, oldest first."""
    names = (path.name.removeprefix("state-").removesuffix(".db.gz") for path in FOLDER.glob("state-*.db.gz"))
    return tuple(sorted(names, key=lambda name: tuple(int(part) for part in name.split("."))))


def unpack(version: str, target: Path) -> Path:
    """Write the fixture of `version` to `target`, which must not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(FOLDER / f"state-{version}.db.gz", "rb") as packed, target.open("xb") as out:
        shutil.copyfileobj(packed, out)
    return target


class StoreCopy:
    """What the `store_copy` fixture is: the first copy is `<tmp>/home/state.db`, the next `<tmp>/home-2/…`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, version: str = "0.19.0", *, home: str | None = None) -> Path:
        name, number = home or "home", 1
        while home is None and (self._directory / name / "state.db").exists():
            number += 1
            name = f"home-{number}"
        return unpack(version, self._directory / name / "state.db")
