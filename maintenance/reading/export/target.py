"""Where an export goes: a file that appears whole, or standard output.

Invariant: the named file is either the old one or the new one, complete and verified; a failed export leaves nothing.
Existing files need `force`. No store that is in use is ever a target, nor the files beside the one that is read. New
files are private (0600).

Not for: what is written. Writing in place was rejected: a full disk would leave half an export under its final name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_state.engine.translate import system_error
from hermes_state.errors import InvalidInput, Refused
from hermes_state.file_lock import CLOSE_ON_EXEC
from hermes_state.flushing import sync_folder

_STORE_ENDINGS = ("", "-wal", "-shm", "-journal", ".hermes-state.json", ".hermes-state.ledger.jsonl")


def refuse_target(target: Path, db: Path, *, force: bool) -> None:
    """Raise when an export may not be written to `target`."""
    real, store = Path(os.path.realpath(target)), os.path.realpath(db)
    if str(real) in {store + ending for ending in _STORE_ENDINGS}:
        raise Refused(
            f"{target} belongs to the store itself and is not written to.", hint="Name another file.", path=str(target)
        )
    sidecars = (f"{real}{ending}" for ending in ("-wal", "-shm", "-journal"))
    if (beside := next(filter(os.path.lexists, sidecars), None)) is not None:
        # A file that is renamed over a live store splits it in two: those who have it open go on with the old one.
        raise Refused(
            f"{target} is a store in use, or was one: {beside} is beside it.",
            hint="Name another file.",
            path=str(target),
        )
    if real.is_dir():
        raise InvalidInput(f"{target} is a folder; this format is one file.", hint="Name a file.", path=str(target))
    if real.exists() and not real.is_file():
        raise InvalidInput(f"{target} is not an ordinary file.", hint="Name a file, or -.", path=str(target))
    if real.exists() and not force:
        raise Refused(f"{target} already exists.", hint="Name another file, or add --force.", path=str(target))
    if not real.parent.is_dir():
        raise InvalidInput(f"The folder {real.parent} does not exist.", hint="Create it first.", path=str(real.parent))


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A private file beside `target` that takes its place when the block ends well.

    What the system says meanwhile (`OSError`) comes out as an error of the tree that names `target`: `DiskFull`,
    `ReadOnlyStore`, `CannotOpen`, `IOFailure`.
    """
    real = Path(os.path.realpath(target))
    partial = working_name(real)
    with writing(target):
        try:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, 0o600))
            yield partial
            sync(partial)
            os.replace(partial, real)
            sync_folder(real.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what the system says in the block into an error that names `target`. A reader that went away is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise system_error(target, error, "writing") from error


def working_name(real: Path) -> Path:
    """A name beside `real` for what is not whole yet."""
    return real.with_name(f".{real.name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.partial")


def sha256_of(path: Path) -> str:
    """The hash of a finished export file."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_name(session_id: str, ending: str) -> str:
    """A file name for a session: its id, made harmless where an id of a foreign file is not."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", session_id).lstrip(".")[:120]
    if plain != session_id or not plain:
        mark = hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        plain = f"{plain or 'session'}-{mark}"
    return plain + ending


def sync(path: Path) -> None:
    """Wait until a private file is on the disk."""
    # Windows syncs only what is open for writing.
    descriptor = os.open(path, os.O_RDWR | CLOSE_ON_EXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
