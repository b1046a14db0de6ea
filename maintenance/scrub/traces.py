"""Where the bytes of a secret may still be: the files of a store, and the copies beside it.

Invariant: the proof reads bytes, not rows: what is not in a file's bytes is in no free page, no index and no WAL frame
of it. It is made when no SQLite of this process has the store open. What cannot be looked into (a compressed or
encrypted copy) is said and never called clean.

Not for: taking bytes out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_state.flushing import sync_folder

CHUNK = 4 << 20
_SIDECARS = ("-wal", "-journal")
# Compressed or encrypted by their first bytes: gzip, zstd, age, zip.
_CLOSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"age-encryption.org/", b"PK\x03\x04")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one file says."""

    # the file
    path: Path
    # "holds" a secret, "clean", or "unreadable" (compressed, encrypted, or not to be opened)
    state: str
    # different secrets found in it
    secrets: int


def files_of(store: Path, search: Path | None) -> list[Path]:
    """The store's files and those of its search index that are there."""
    mains = [store] if search is None else [store, search]
    return [path for main in mains for path in (main, *(Path(f"{main}{end}") for end in _SIDECARS)) if path.exists()]


def forms(found: Iterable[str]) -> list[bytes]:
    """The byte strings that a secret may be stored as: as it is, as JSON writes it, in UTF-16, and without case."""
    said: set[bytes] = set()
    for secret in found:
        for text in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            said.add(text.encode("utf-8", "surrogateescape"))
            said.add(text.encode("utf-16-le", "surrogatepass"))
    # Shorter ones are in any file by chance.
    return sorted(form for form in said if len(form) >= 4)


def look_into(paths: Sequence[Path], found: Iterable[str]) -> list[Trace]:
    """Search the bytes of files for secrets, each file once, in portions. Folders are searched file by file."""
    needles = forms(found)
    files = [file for path in paths for file in ([path] if not path.is_dir() else sorted(path.rglob("*")))]
    return [_trace(file, needles) for file in files if file.is_file()]


def _trace(path: Path, needles: Sequence[bytes]) -> Trace:
    longest = max(map(len, needles), default=0)
    hits: set[bytes] = set()
    try:
        with open(path, "rb") as file:
            tail = b""
            first = True
            while portion := file.read(CHUNK):
                if first and portion.startswith(_CLOSED):
                    return Trace(path=path, state="unreadable", secrets=0)
                first = False
                window = tail + portion
                hits.update(needle for needle in needles if needle not in hits and needle in window)
                tail = window[-longest:] if longest else b""
    except OSError:
        return Trace(path=path, state="unreadable", secrets=0)
    return Trace(path=path, state="holds" if hits else "clean", secrets=len(hits))


def destroy(search: Path) -> None:
    """Take a search index away for good: its bytes are overwritten before its names go. Nobody may have it open."""
    for path in (search, *(Path(f"{search}{end}") for end in (*_SIDECARS, "-shm"))):
        if not path.exists():
            continue
        with open(path, "r+b") as file:
            left = os.fstat(file.fileno()).st_size
            while left > 0:
                left -= file.write(bytes(min(CHUNK, left)))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    sync_folder(search.parent)


def copies_beside(store: Path) -> list[Path]:
    """Files and folders beside a store that may be copies of it or of its rows, by their names."""
    from hermes_state.conversation.search.layout import index_path
    from maintenance.leftovers.names import listed

    own = {store, index_path(store)}
    folders = {path for path in store.parent.iterdir() if _FOLDERS.fullmatch(path.name) and path not in own}
    named = {
        part for one in listed(store) for part in one.parts
        if one.kind not in ("search_index", "owners") and part.parent not in folders
    }
    return sorted(folders | named)


# What may hold rows without being called after the store.
_FOLDERS = re.compile(r"(backups|state-snapshots|sessions|logs|exports?)|state.*\.(db|bak|gz|zst|age)|.*backup.*")
