"""The folder `<store>.hermes-state.spool`: what waits, what is being replayed, what cannot be written at all.

Invariant: `put` returns only when the item is on the disk. Items are read in the order in which they were put,
whichever processes put them. A file is taken away only after everything in it was committed to the store or
quarantined, so a kill at any moment leaves each item in the spool, in the store, or in both, and its id then says that
it is there.

Files: `items.jsonl` takes new items; a replay renames it to `replaying-<number>.jsonl` first, so that others go on
putting meanwhile; `quarantine/<id>.json` holds an item that can never be written, with the reason. `items.lock` and
`replay.lock` are locked for the one and the other. Nothing here opens the store.

Not for: bringing items into a store (see `conversation.spooling`). A queue in memory was rejected: it ends with its
process, and one with a limit loses its oldest turns, as users report.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import CannotOpen, DiskFull, InvalidInput, IOFailure, LockTimeout, StateError, TornItem
from hermes_state.file_lock import BINARY, CLOSE_ON_EXEC, NO_LINK, lock_alone, try_lock_alone
from hermes_state.flushing import sync_folder
from hermes_state.spool.lines import Item, item_of, line_of

SUFFIX = ".hermes-state.spool"
_NEW = "items.jsonl"
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """An item that cannot be written, kept for a person to look at."""

    # the file that holds it
    path: Path
    # code of the error, e.g. "session_deleted"; "torn_item" for a line that was never acknowledged or was altered
    code: str
    # what kept it out, a whole sentence
    reason: str
    # epoch seconds UTC
    at: float


def spool_folder(store: Path | str) -> Path:
    """Where the items of the store at this path wait."""
    return Path(f"{os.path.realpath(store)}{SUFFIX}")


class Spool:
    """The spool of one store. Needs no open store, and no store that can be opened. Safe for threads and processes."""

    def __init__(self, store: Path | str, *, clock: Clock = SYSTEM) -> None:
        """`store`: path of the store's file, which need not be there."""
        self.folder = spool_folder(store)
        self._clock = clock

    def put(self, kind: str, payload: dict[str, Any], *, cause: str, store_id: str | None = None) -> Item:
        """Keep one item, on the disk when this returns.

        Raises `InvalidInput` for what JSON cannot say, `DiskFull`, `IOFailure` and `CannotOpen`; then nothing is kept.
        """
        item = Item(
            id=secrets.token_hex(16), kind=kind, at=self._clock.now(), store_id=store_id, cause=cause, payload=payload
        )
        try:
            line = line_of(item)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"The payload of a spooled item cannot be written as JSON: {error}.") from error
        with self._named("kept"):
            self._make_folder()
            with self._locked("items.lock"):
                self._append(line)
        return item

    def is_empty(self) -> bool:
        """True when nothing waits. One look at the folder; reads nothing. Raises `CannotOpen` and `IOFailure`."""
        with self._named("looked for"):
            return not any(name == _NEW or _is_being_replayed(name) for name in self._names())

    def items(self) -> Iterator[Item]:
        """What waits, oldest first, without lines that are not whole. Memory: one item. Raises as `is_empty`."""
        with self._named("read"):
            for path in [*self._replaying(), self.folder / _NEW]:
                for line in lines_of(path):
                    try:
                        yield item_of(line)
                    except ValueError:
                        continue  # a replay says so and quarantines it

    def quarantined(self) -> list[Quarantined]:
        """What cannot be written, oldest first. Raises as `is_empty`."""
        found = []
        folder = self.folder / "quarantine"
        for name in self._names(folder):
            if not name.endswith(".json"):
                continue
            path = folder / name
            with self._named("read"):
                told = json.loads(path.read_bytes())
            found.append(Quarantined(path=path, code=told["code"], reason=told["reason"], at=told["at"]))
        return sorted(found, key=lambda one: (one.at, one.path.name))

    # --- for a replay ----------------------------------------------------------------------------------------

    @contextmanager
    def replaying(self) -> Iterator[list[Path]]:
        """The files to replay, oldest first, for one process at a time. Raises `LockTimeout` at once for a second one.

        What an earlier replay left comes alone; what was put since, in the next round. A store that takes nothing for
        days is then tried at every turn without a file for each. What is put from now on goes to another file.
        """
        if self.is_empty():
            yield []
            return
        with self._named("replayed"), self._locked("replay.lock", wait=False):
            with self._locked("items.lock"):
                taken = self._replaying()
                if not taken and os.path.exists(self.folder / _NEW):
                    os.rename(self.folder / _NEW, self.folder / "replaying-00000001.jsonl")
                    sync_folder(self.folder)
                    taken = self._replaying()
            yield taken

    def done(self, path: Path) -> None:
        """Take away a file of `replaying`: all of it is in the store, or quarantined."""
        with self._named("taken away"):
            os.unlink(path)
            sync_folder(self.folder)

    def quarantine(self, item: Item | bytes, error: StateError) -> Quarantined:
        """Keep what cannot be written under its reason; on the disk when this returns. The same again changes nothing.

        `item`: an item, or the bytes of a line that is none.
        """
        told: dict[str, Any] = {"code": error.code, "reason": error.message, "at": self._clock.now()}
        if isinstance(item, Item):
            name = item.id
            told["item"] = json.loads(line_of(item))
        else:
            import hashlib

            name = hashlib.sha256(item).hexdigest()[:32]
            told["line"] = item.decode("latin-1")
        folder = self.folder / "quarantine"
        target = folder / f"{name}.json"
        with self._named("quarantined"):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not target.exists():
                staged = folder / f"{name}.new"
                descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY | CLOSE_ON_EXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(json.dumps(told, indent=1).encode("ascii"))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(staged, target)
                sync_folder(folder)
                sync_folder(self.folder)
        return Quarantined(path=target, code=error.code, reason=error.message, at=told["at"])

    def requeue(self, kept: Quarantined) -> Item:
        """Put a quarantined item at the end of what waits; then it is no longer in quarantine.

        Raises `TornItem` for a line that is no item.
        """
        with self._named("put back"):
            told = json.loads(kept.path.read_bytes())
        if "item" not in told:
            raise TornItem(f"{kept.path} holds a line that is no item: it cannot be put back.", path=kept.path)
        fields = {name: value for name, value in told["item"].items() if name not in ("format", "check")}
        item = Item(**fields)
        with self._named("put back"):
            with self._locked("items.lock"):
                self._append(line_of(item))
            os.unlink(kept.path)
            sync_folder(kept.path.parent)
        return item

    # --- inside ----------------------------------------------------------------------------------------------

    def _replaying(self) -> list[Path]:
        return [self.folder / name for name in sorted(self._names()) if _is_being_replayed(name)]

    def _names(self, folder: Path | None = None) -> list[str]:
        """What is in the folder. Not by `glob`, to which a folder that may not be read is an empty one."""
        with self._named("looked for"):
            try:
                return os.listdir(folder or self.folder)
            except (FileNotFoundError, NotADirectoryError):
                return []  # a file in the place of the folder holds no items; `put` says what is wrong

    def _make_folder(self) -> None:
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            return
        sync_folder(self.folder.parent)

    def _append(self, line: bytes) -> None:
        path = self.folder / _NEW
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY | CLOSE_ON_EXEC | NO_LINK
        descriptor = os.open(path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # whoever wrote before was stopped in its line, which was never acknowledged
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
                if not size:
                    sync_folder(self.folder)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self, name: str, *, wait: bool = True) -> Iterator[None]:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC | NO_LINK, 0o600)
        try:
            if wait:
                lock_alone(descriptor)
            elif not try_lock_alone(descriptor):
                raise LockTimeout(
                    f"Another process is replaying {self.folder}.",
                    hint="Wait until it is done; nothing is lost meanwhile.", path=self.folder,
                )
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Errors of the system as ours, with the folder in them."""
        try:
            yield
        except OSError as error:
            denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            kind: type[StateError] = CannotOpen if denied else IOFailure
            hint = "Check who owns that folder, and whether its file system can be written."
            if error.errno in _FULL:
                kind, hint = DiskFull, "Free space on that file system; the turn is in memory only until then."
            elif error.errno in _NO_DESCRIPTOR:
                kind, hint = CannotOpen, "Find what keeps files open (`ls -l /proc/PID/fd`), or raise their limit."
            raise kind(
                f"Items of {self.folder} cannot be {what}: {error.strerror}.",
                hint=hint, path=self.folder, errno=error.errno or 0,
            ) from error


def _is_being_replayed(name: str) -> bool:
    return name.startswith("replaying-") and name.endswith(".jsonl")


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a spool file, each with its end, empty ones left out; none when there is no such file."""
    try:
        file = open(path, "rb")  # noqa: SIM115, closed below
    except FileNotFoundError:
        return
    with file:
        yield from (line for line in file if line != b"\n")

