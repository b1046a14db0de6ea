"""One capture: what its manifest says, and whether the files still are what it says.

Invariant: a capture is used only when it was finished (its folder is not `.partial`), its manifest can be read, every
file that the manifest names is there with that size and SHA-256, no file that we would use is unnamed, and the WAL in
it is whole from its header to its last commit. Anything else is refused by name, and nothing is guessed.

Our own captures hold `<db>-wal` and, when there was room, `copy.db`: the whole store as the losing process saw it.
Those of hermes-agent hold `state.db-wal` and the main file, or only its first 100 bytes when it was larger than 512
MiB. Manifests of other programs are read by what they must say: a mapping or list of files with name, size and
`sha256`.

Not for: what is in the rows (see `view`). Trusting sizes and times was rejected: report 11 lists an altered payload.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_state.errors import CaptureRefused
from maintenance.recovery.format.image import Image

MANIFEST = "manifest.json"
COPY = "copy.db"
PARTIAL = ".partial"
_SIZES = ("bytes", "size", "size_bytes", "length")
_TIMES = ("captured_at", "created_at", "timestamp", "time")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A verified capture."""

    # its folder
    folder: Path
    # when it was made, epoch seconds UTC; None when the manifest does not say
    captured_at: float | None
    # the whole store as it was seen, with everything in the WAL; None when none was kept
    copy: Path | None
    # the main file beside which the WAL was, None when it was not kept (or only its header)
    main: Path | None
    # the captured WAL, None when there was none
    wal: Path | None
    # the WAL's salts, and how often it was begun anew since the file was made; None without a WAL
    salts: tuple[int, int] | None
    checkpoints: int | None
    # commits in the WAL that SQLite itself would read
    commits: int
    # bytes a page
    page_size: int


def captures_beside(store: Path) -> list[Path]:
    """The folders of captures beside a store, finished or not, by name: oldest first."""
    return sorted(path for path in store.parent.glob(f"{store.name}.retired-wal-*") if path.is_dir())


def verify(folder: Path, store_name: str | None = None) -> Capture:
    """Check a capture; raises `CaptureRefused` with what is wrong. Reads every byte of it, changes nothing.

    `store_name`: name of the store's file, when the folder's own name does not begin with it.
    """
    if not folder.is_dir():
        raise _refused(folder, "it is no folder", "missing")
    if folder.name.endswith(PARTIAL):
        raise _refused(folder, "it was interrupted while it was made, so it may hold only a part", "partial")
    name = store_name or folder.name.partition(".retired-wal-")[0]
    told = _manifest(folder)
    files = dict(_files(told))
    if not files:
        raise _refused(folder, "its manifest names no file with a SHA-256", "manifest")
    for file, (size, digest) in files.items():
        _require_same(folder, file, size, digest)
    named = {entry: folder / entry for entry in files}
    copy = named.get(COPY)
    wal = named.get(f"{name}-wal")
    main = named.get(name)
    if main is not None and main.stat().st_size <= 512:
        main = None  # only its header
    for file in (COPY, name, f"{name}-wal"):
        if (folder / file).exists() and file not in named:
            raise _refused(folder, f"its manifest does not name {file}", "unnamed")
    if copy is None and wal is None and main is None:
        raise _refused(folder, "neither a WAL nor a copy is in it", "missing")
    return _with_wal(folder, told, copy, main, wal)


def _with_wal(folder: Path, told: dict[str, Any], copy: Path | None, main: Path | None, wal: Path | None) -> Capture:
    salts, checkpoints, commits = None, None, 0
    page_size = 0
    base = main or copy
    if base is not None:
        with Image.read(base) as image:
            page_size = image.page_size
            if not image.header_whole:
                raise _refused(folder, f"{base.name} has no whole header", "base")
    if wal is not None and wal.stat().st_size:
        # Leniently: frames behind a broken one are seen too, and then it is known that something is missing.
        with Image.read(None, wal, wal_rule="lenient") as image:
            if not image.wal.header_whole:
                raise _refused(folder, f"the header of {wal.name} is damaged", "wal_header")
            if page_size and image.page_size != page_size:
                raise _refused(
                    folder, f"{wal.name} has pages of {image.page_size} bytes, the store in it of {page_size}",
                    "page_size",
                )
            page_size = image.page_size
            newest = [generation for generation in image.generations if generation.newest]
            commits = sum(commit.visible for commit in image.commits)
            if newest and newest[0].commits and not all(commit.visible for commit in newest[0].commits):
                raise _refused(folder, f"a frame of {wal.name} before its last commit has a wrong checksum", "wal")
        with open(wal, "rb") as file:
            head = file.read(32)
        checkpoints = int.from_bytes(head[12:16], "big")
        salts = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    return Capture(
        folder=folder, captured_at=_time(told), copy=copy, main=main, wal=wal, salts=salts, checkpoints=checkpoints,
        commits=commits, page_size=page_size,
    )


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise _refused(folder, "it has no manifest", "manifest") from error
    except (ValueError, RecursionError) as error:
        raise _refused(folder, "its manifest is not JSON", "manifest") from error
    if not isinstance(told, dict):
        raise _refused(folder, "its manifest is no JSON object", "manifest")
    version = told.get("version", told.get("format_version", 1))
    if version != 1:
        raise _refused(folder, f"its manifest is of version {version!r}; this release reads version 1", "manifest")
    return told


def _files(told: Any, name: str | None = None) -> Iterator[tuple[str, tuple[int | None, str]]]:
    """Every file with a SHA-256 anywhere in a manifest."""
    if isinstance(told, dict):
        digest = told.get("sha256")
        said = told.get("name") or told.get("file") or told.get("path") or name
        if isinstance(digest, str) and isinstance(said, str):
            size = next((told[key] for key in _SIZES if isinstance(told.get(key), int)), None)
            yield said.replace("\\", "/").rpartition("/")[2], (size, digest.lower())
        for key, value in told.items():
            yield from _files(value, key)
    elif isinstance(told, list):
        for value in told:
            yield from _files(value)


def _require_same(folder: Path, name: str, size: int | None, digest: str) -> None:
    path = folder / name
    if not path.is_file():
        raise _refused(folder, f"{name} is missing, which its manifest names", "missing")
    if size is not None and path.stat().st_size != size:
        raise _refused(folder, f"{name} has {path.stat().st_size} bytes, its manifest says {size}", "altered")
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise _refused(folder, f"{name} was altered: its SHA-256 is not the manifest's", "altered")


def _time(told: dict[str, Any]) -> float | None:
    for key in _TIMES:
        value = told.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).timestamp()
            except ValueError:
                continue
    return None


def _refused(folder: Path, why: str, kind: str) -> CaptureRefused:
    return CaptureRefused(
        f"The capture {folder} cannot be used: {why}.",
        hint="Keep it as it is; `hermes-state sessions recover --source` can still look for rows in its bytes.",
        path=folder, kind=kind,
    )
