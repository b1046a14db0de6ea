"""`sessions backup`: a copy of the store as it is at one moment, compared with it before it counts.

Invariant: the copy is made in one pass of SQLite's backup API inside one read snapshot, beside writers, who wait for
nothing; it lies under a hidden name in the target's folder until its pages are checked, every table is compared with
that snapshot by count and hash, and it is synced. A damaged store gives no backup and costs none that exists. The
oldest are removed only after the new one is verified.

Not for: stores that are damaged (`recover`). Copying in steps of some hundred pages was rejected: beside a busy writer
it never came to its end (measured), because each commit of another process begins it anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_state import __version__
from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine import ReadStore, open_read
from hermes_state.engine.connection import page_verdict
from hermes_state.engine.create import publish
from hermes_state.engine.still import open_still
from hermes_state.engine.whole_file import settle_private
from hermes_state.errors import (
    BackupDamaged,
    BackupStopped,
    Corrupt,
    InvalidInput,
    NotAStore,
    ReadOnlyStore,
    Refused,
    StorageError,
)
from hermes_state.shell_words import shell_word
from maintenance.backups.catalog import (
    FOLDER,
    SEALED,
    new_name,
    remove_killed,
    removed_after,
    thin_out,
    working_name,
)
from maintenance.backups.content import Content, content_of
from maintenance.backups.gap import has_journal
from maintenance.backups.manifest import Manifest, write_manifest
from maintenance.marks import read_marks
from maintenance.replacement.where import Place
from maintenance.space.disk import Need, require_room, rooms
from maintenance.space.verify import foreign_key_problems

if TYPE_CHECKING:
    from maintenance.replacement.replace import Progress

VERB = "sessions backup"


@dataclass(frozen=True, kw_only=True)
class Backup:
    """One backup that was made."""

    path: Path  # the file
    manifest: Manifest  # what is in it
    removed: tuple[Path, ...]  # older ones that went by `keep`
    cleared: tuple[Path, ...]  # half written files of killed runs that went
    seconds: float  # in all

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "backup": str(self.path), "removed": [str(path) for path in self.removed],
            "cleared": [str(path) for path in self.cleared], "seconds": round(self.seconds, 3),
            "manifest": self.manifest.document(),
        }


@dataclass(frozen=True, kw_only=True)
class BackupPlan:
    """What a backup would be."""

    store: Path  # of what
    target: Path  # where, with the name that it would get now
    bytes: int  # about how large, before encryption
    keep: int | None  # how many are kept
    sealed: bool  # whether it is encrypted

    def document(self) -> dict[str, Any]:
        """The fields of `--json --dry-run`."""
        return {
            "store": str(self.store), "backup": str(self.target), "bytes": self.bytes, "keep": self.keep,
            "sealed": self.sealed,
        }


def make_plan(
    store: Path, to: Path | None = None, *, keep: int | None = None, sealed: bool = False, clock: Clock = SYSTEM
) -> BackupPlan:
    """What would be made, and whether there is room. Writes nothing. Raises `InsufficientSpace`, `InvalidInput`."""
    if keep is not None and keep < 1:
        raise InvalidInput("keep is 1 or more: the newest backup is never removed.", option="--keep")
    real = Path(os.path.realpath(store))
    folder = Path(os.path.realpath(to)) if to is not None else real.parent / FOLDER
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder.", hint="Name a folder with --to.", path=folder)
    if not folder.exists() and not folder.parent.is_dir():
        raise InvalidInput(f"The folder {folder.parent} does not exist.", hint="Create it first.", path=folder.parent)
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK | os.X_OK):
        raise InvalidInput(
            f"Nothing can be written to the folder {folder if folder.exists() else folder.parent}.",
            hint="Name another folder with --to.", option="--to", path=folder,
        )
    try:
        size = _size_of(real, clock)
    except ReadOnlyStore as error:
        if not has_journal(real):
            raise
        raise Refused(
            f"{real} has a rollback journal beside it: a change was never finished, and no backup is made of half of "
            "it. Nothing was changed.",
            hint="Start Hermes once, which undoes it, or run `hermes-state sessions recover --source "
            f"{shell_word(real)}`.",
            path=real,
        ) from error
    needs = [Need(directory=folder if folder.is_dir() else folder.parent, bytes=size, what="the backup")]
    if sealed:
        needs.append(Need(directory=real.parent, bytes=size, what="the copy that is encrypted"))
    require_room(rooms(needs), what=f"A backup of {real}", instead="Or name another folder with --to.")
    return BackupPlan(
        store=real, target=new_name(folder, real, clock, sealed=sealed), bytes=size, keep=keep, sealed=sealed
    )


def backup(
    store: Path | str, to: Path | str | None = None, *, keep: int | None = None, passphrase: str | None = None,
    progress: Progress | None = None, cancel: Callable[[], bool] | None = None, clock: Clock = SYSTEM,
    step: Callable[[str], None] = lambda _done: None,
) -> Backup:
    """Make a verified backup of `store` in the folder `to` (default: `backups` beside it, made with mode 0700).

    `keep`: afterwards only so many verified backups of this store stay there. `passphrase`: encrypt it. `progress`
    hears (what, done, total or None); `cancel` is asked in between. `step` hears the name of each step that is done.
    Raises `Corrupt` (the store is damaged; nothing was changed), `InsufficientSpace`, `NotFound`, `BackupStopped`,
    `BackupDamaged` (the copy is not the same), `MarksDamaged`, and what opening raises.
    """
    started = clock.monotonic()
    plan = make_plan(
        Path(store), None if to is None else Path(to), keep=keep, sealed=passphrase is not None, clock=clock
    )
    if passphrase is not None:
        from maintenance.backups.sealing import library

        library()
    require_visible_wal(plan.store, VERB, clock)
    marks = read_marks(plan.store)  # without its pin, prune deletes what was restored
    folder = plan.target.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    say = hearing(plan.store, progress, cancel)
    cleared = remove_killed(folder, plan.store.stem) + remove_killed(plan.store.parent, plan.store.stem)
    working = working_name(plan.target)
    # What is to be encrypted lies in clear only beside the store, which is in clear itself.
    plain = working if passphrase is None else working_name(plan.store.with_name(plan.target.name.removesuffix(SEALED)))
    with removed_after(plain, working):
        with open_read(plan.store, clock=clock) as reader, _one_moment(reader):
            # This first read is what begins the snapshot; the copy is made inside it.
            page_size, journal_mode, moment = reader.page_size, reader.journal_mode, clock.now()
            reader.row("SELECT count(*) FROM sqlite_schema")
            say("copying", 0, plan.bytes)
            reader.backup_to(plain)
            step("copied")
            source = _source(reader, say) if _compares(reader) else None
        content, problems = _verified(plan.store, plain, source, say)
        step("verified")
        digest = stored = sha256_of(plain)
        if passphrase is not None:
            stored = _sealed(plain, working, passphrase, digest, say)
            step("sealed")
        manifest = Manifest(
            file=plan.target.name, bytes=working.stat().st_size, sha256=stored, sealed=passphrase is not None,
            plain_bytes=plain.stat().st_size, plain_sha256=digest, created_at=moment, store=str(plan.store),
            page_size=page_size, journal_mode=journal_mode, foreign_key_problems=problems,
            compared=source is not None, tool_version=__version__, content=content,
            pinned=tuple(sorted(marks.pinned)), archived=tuple(sorted(marks.archived)),
        )
        if not publish(working, plan.target):
            raise Refused(f"{plan.target} exists already.", hint="Run it again.", path=plan.target)
        step("named")
        write_manifest(plan.target, manifest)
        step("manifest written")
    removed = thin_out(folder, manifest, keep) if keep is not None else ()
    return Backup(
        path=plan.target, manifest=manifest, removed=removed, cleared=cleared, seconds=clock.monotonic() - started
    )


def require_visible_wal(store: Path, verb: str, clock: Clock) -> None:
    """Raise `Corrupt` when the WAL holds commits that SQLite does not see: a copy would lack them without a word."""
    from maintenance.gate.doors import readable_wal

    readable_wal(cast("Any", Place(db=store, clock=clock)), verb)


def hearing(path: Path, progress: Progress | None, cancel: Callable[[], bool] | None) -> Progress:
    """Pass progress on, and stop when the caller wants to."""

    def say(what: str, done: int, total: int | None) -> None:
        if cancel is not None and cancel():
            raise BackupStopped(f"The work on {path} was cancelled; nothing was changed.", path=path)
        if progress is not None:
            progress(what, done, total)

    return say


def verified_content(path: Path, say: Progress, *, what: str = "comparing the backup") -> tuple[Content, int]:
    """Content and foreign key problems of a private file in rollback mode whose pages are sound. Raises `Corrupt`."""
    said = page_verdict(path)
    if said != "ok":
        raise Corrupt(
            f"{path} is damaged: {said}.", hint=f"Run `hermes-state doctor --db {shell_word(path)}`.", path=path,
            search_index=False, said=said,
        )
    with open_read(path) as copy:
        return content_of(copy, lambda rows: say(what, rows, None)), foreign_key_problems(copy)


def sha256_of(path: Path) -> str:
    """The hash of a private file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size_of(store: Path, clock: Clock) -> int:
    """Bytes of the store's pages. An ordinary open in WAL mode would make `-wal` and `-shm` where there are none."""
    if store.exists() and not any(Path(f"{store}{ending}").exists() for ending in ("-wal", "-shm", "-journal")):
        # Nobody has it open in WAL mode, and no change is half done: the file alone says how large it is.
        with open_still(store) as still:
            pages, page_size = (int((still.row(f"PRAGMA {name}") or (0,))[0]) for name in ("page_count", "page_size"))
            return pages * page_size
    with open_read(store, search_modules=False, clock=clock) as reader:
        return reader.page_count * reader.page_size


def _source(reader: ReadStore, say: Progress) -> Content:
    try:
        return content_of(reader, lambda rows: say("reading the store", rows, None))
    except (Corrupt, NotAStore) as error:
        raise _damaged(reader.path, error) from error


def _damaged(store: Path, error: StorageError) -> Corrupt:
    return Corrupt(
        f"No backup was made of {store}, which is damaged. Backups that exist were not touched. "
        f"{getattr(error, 'said', error.message)}",
        hint=f"Run `hermes-state doctor --db {shell_word(store)}`.", path=store, search_index=False,
    )


def _verified(store: Path, plain: Path, source: Content | None, say: Progress) -> tuple[Content, int]:
    try:
        settle_private(plain)
        content, problems = verified_content(plain, say)
    except (Corrupt, NotAStore) as error:
        raise _damaged(store, error) from error
    if source is not None and (difference := source.differs(content)):
        raise BackupDamaged(
            f"The backup of {store} is not the same as the store: {difference}. It was thrown away.",
            hint="Check the disk, and try again.", path=store,
        )
    return content, problems


def _sealed(plain: Path, working: Path, passphrase: str, digest: str, say: Progress) -> str:
    from maintenance.backups.sealing import Hashing, seal, unseal

    size = plain.stat().st_size
    stored = seal(plain, working, passphrase, lambda done: say("encrypting", done, size))
    again = Hashing(lambda _piece: None)
    unseal(working, passphrase, again.write, lambda done: say("decrypting it to compare", done, size))
    if again.hexdigest() != digest:
        raise BackupDamaged(
            f"The encrypted backup {working} does not give back what was encrypted. It was thrown away.",
            hint="Check the disk, and try again.", path=working,
        )
    return stored


def _compares(reader: ReadStore) -> bool:
    """Only beside a WAL: in rollback mode whoever reads for minutes keeps writers waiting."""
    return reader.journal_mode == "wal"


@contextmanager
def _one_moment(reader: ReadStore) -> Iterator[None]:
    if not _compares(reader):
        yield
        return
    with reader.snapshot():
        yield
