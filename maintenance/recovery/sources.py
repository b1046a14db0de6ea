"""Which files a recovery reads: a store with its sidecars, a bare file, a folder of quarantined files, or a capture.

Invariant: only names, sizes and the first bytes are looked at here; nothing is written, and nothing is opened by
SQLite, whose first open and close would throw away a WAL that it cannot read to its end (measured). In a folder every
candidate is listed, with what it looks like, and the one that was taken is marked.

Not for: copying (`copying.py`). Opening each candidate to see which has most rows was rejected: it would take a private
copy of each; whoever knows better names the file itself.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from hermes_state.errors import InvalidInput, NotAStore, NotFound
from maintenance.recovery.records import Candidate, Source

MAGIC = b"SQLite format 3\0"
WAL_MAGICS = (0x377F0682, 0x377F0683)
SIDECARS = ("-wal", "-shm", "-journal")
MANIFEST = "manifest.json"
# How good a file looks, for choosing among several.
_RANK = {"sqlite": 3, "headerless": 2, "wal": 1}
_LOOKED_AT = 1 << 20


def find_source(given: Path) -> Source:
    """What `given` names. Raises `NotFound`, `InvalidInput`, and `NotAStore` when nothing in it can hold rows."""
    given = given.expanduser().absolute()
    if not given.exists():
        raise NotFound(f"There is no file or folder {given}.", hint="Name it with --source.", path=given)
    if given.is_dir():
        return _of_folder(given)
    if not stat.S_ISREG(given.stat().st_mode):
        raise InvalidInput(f"{given} is not a regular file.", hint="Name the file itself.", path=given)
    if given.name.endswith("-wal") and _looks(given) == "wal" and not _main_of(given).exists():
        return Source(given=given, kind="bare file", main=None, wal=given, journal=None)
    main = _main_of(given) if given.name.endswith(("-wal", "-journal")) and _main_of(given).exists() else given
    source = _family(given, main)
    if all(_looks(path) in ("zeroed", "empty") for _part, path in source.files):
        raise NotAStore(
            f"{main} holds nothing but zeros, and no WAL with content is beside it: there are no rows in it.",
            hint="Recover from another file: `hermes-state sessions leftovers` lists the copies beside a store.",
            path=main,
        )
    return source


def _family(given: Path, main: Path) -> Source:
    beside = {ending: main.with_name(main.name + ending) for ending in ("-wal", "-journal")}
    wal, journal = (path if path.is_file() and path.stat().st_size else None for path in beside.values())
    return Source(
        given=given, kind="store" if wal or journal else "bare file", main=main, wal=wal, journal=journal
    )


def _of_folder(folder: Path) -> Source:
    capture = (folder / MANIFEST).is_file()
    found = list(_candidates(folder))
    usable = [candidate for candidate in found if candidate.looks in _RANK]
    if not usable:
        raise NotAStore(
            f"No file in {folder} is a database or a WAL with content ({len(found)} files were looked at).",
            hint="Name the folder that holds the quarantined files, or the file itself.", path=folder,
        )
    best = max(usable, key=lambda candidate: (_RANK[candidate.looks], candidate.mtime_ns, candidate.size_bytes))
    listed = tuple(
        Candidate(
            path=candidate.path, size_bytes=candidate.size_bytes, mtime_ns=candidate.mtime_ns, looks=candidate.looks,
            beside=candidate.beside, chosen=candidate.path == best.path,
        )
        for candidate in found
    )
    kind = "capture" if capture else "directory"
    if best.looks == "wal":
        return Source(given=folder, kind=kind, main=None, wal=best.path, journal=None, candidates=listed)
    family = _family(folder, best.path)
    return Source(
        given=folder, kind=kind, main=family.main, wal=family.wal, journal=family.journal, candidates=listed
    )


def _candidates(folder: Path) -> Iterator[Candidate]:
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.is_symlink() or path.name == MANIFEST or path.name.endswith(("-shm", ".json")):
            continue
        sidecar = path.name.endswith(SIDECARS)
        if sidecar and _main_of(path).exists():
            continue  # goes with its database
        state = path.stat()
        looks = _looks(path)
        if sidecar and looks != "wal":
            continue
        beside = {
            ending[1:]: path.with_name(path.name + ending).stat().st_size
            for ending in ("-wal", "-journal") if path.with_name(path.name + ending).is_file()
        }
        yield Candidate(
            path=path, size_bytes=state.st_size, mtime_ns=state.st_mtime_ns, looks=looks, beside=beside, chosen=False
        )


def _main_of(path: Path) -> Path:
    for ending in SIDECARS:
        if path.name.endswith(ending):
            return path.with_name(path.name.removesuffix(ending))
    return path


def _looks(path: Path) -> str:
    """What the bytes say: see `Candidate.looks`."""
    size = path.stat().st_size
    if size == 0:
        return "empty"
    with path.open("rb") as file:
        first = file.read(_LOOKED_AT)
        if first.startswith(MAGIC):
            return "sqlite"
        if len(first) >= 32 and int.from_bytes(first[:4], "big") in WAL_MAGICS:
            return "wal"
        if path.name.endswith("-wal") and first.strip(b"\0"):
            return "wal"  # its header may be gone; its frames may not be
        zeroed = not first.strip(b"\0")
        while zeroed and (more := file.read(_LOOKED_AT)):
            first, zeroed = more, not more.strip(b"\0")
    if zeroed:
        return "zeroed"
    return "headerless" if _has_leaves(first) or _middle_has_leaves(path, size) else "other"


def _has_leaves(data: bytes) -> bool:
    """Whether a page of a b-tree begins at some 512-byte boundary."""
    from maintenance.recovery.format.header import plausible_tree_page

    return any(
        data[at] in (2, 5, 10, 13)
        and any(plausible_tree_page(data[at : at + size], 0, size) for size in (4096, 1024, 512, 8192, 16384, 32768))
        for at in range(0, len(data) - 512, 512)
    )


def _middle_has_leaves(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        for share in (0.25, 0.5, 0.75):
            file.seek(int(size * share) // 65536 * 65536)
            if _has_leaves(file.read(_LOOKED_AT)):
                return True
    return False
