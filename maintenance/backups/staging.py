"""Getting the database out of a backup, verified, into a private file beside where it will be needed.

Invariant: what comes out is one database file without sidecars whose pages are sound and whose content is that of the
manifest, when there is one; the backup itself is only read, as bytes, and nothing is made beside it. A file without a
manifest is checked as far as it can be, and said to be so.

Not for: deciding whether it fits a store. Working on the backup in place was rejected: it may lie on a medium that can
only be read, and opening it would leave files beside it.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermes_state.engine.frames import FrameDamaged, unpack
from hermes_state.engine.whole_file import settle_private
from hermes_state.errors import BackupDamaged, Corrupt, InvalidInput, NotFound, Refused, StorageError
from hermes_state.shell_words import shell_word
from maintenance.backups.catalog import remove_killed, removed_after, working_name
from maintenance.backups.content import Content
from maintenance.backups.making import sha256_of, verified_content
from maintenance.backups.manifest import Manifest, read_manifest
from maintenance.backups.sealing import is_sealed, unseal
from maintenance.replacement.child import run
from maintenance.replacement.replace import Progress
from maintenance.space.disk import Need, require_room, rooms

_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The database of one backup."""

    backup: Path  # the file that it came from
    path: Path  # the private file, gone when the block ends
    manifest: Manifest | None  # None when there is none; then only the file itself speaks for it
    content: Content  # what is in it
    foreign_key_problems: int  # rows that refer to a row that is not there


@contextmanager
def staged(
    backup: Path, near: Path, *, passphrase: str | Callable[[], str] | None, say: Progress
) -> Iterator[Staged]:
    """The verified database of `backup` as a private file beside `near`, which need not exist.

    `passphrase` may be a function, which is called only for an encrypted backup. Raises `BackupDamaged`,
    `WrongPassphrase`, `Refused` (no passphrase), `NotFound`, `Corrupt`, `NotAStore`, `InsufficientSpace`.
    """
    if not backup.is_file():
        raise NotFound(f"There is no backup {backup}.", hint="Name the file itself.", path=backup)
    if os.path.realpath(backup) == os.path.realpath(near):
        raise InvalidInput(f"{backup} is the store itself.", hint="Name a backup of it.", path=backup)
    # A link to a backup: the manifest lies beside the file itself.
    manifest = read_manifest(backup) or read_manifest(Path(os.path.realpath(backup)))
    size = manifest.plain_bytes if manifest is not None else backup.stat().st_size
    require_room(
        rooms([Need(directory=near.parent, bytes=size, what="a copy of the backup")]), what=f"Restoring {backup}"
    )
    _require_file_of(manifest, backup)
    remove_killed(near.parent, near.stem)
    working = working_name(near.with_name(f"{near.stem}-restoring.db"))
    with removed_after(working):
        _take_out(backup, working, manifest, passphrase, say)
        content, problems = _checked(backup, working, manifest, say)
        yield Staged(
            backup=backup, path=working, manifest=manifest, content=content, foreign_key_problems=problems
        )


def _require_file_of(manifest: Manifest | None, backup: Path) -> None:
    if manifest is not None and backup.stat().st_size != manifest.bytes:
        raise BackupDamaged(
            f"{backup} is not what its manifest says: it has {backup.stat().st_size} bytes instead of "
            f"{manifest.bytes}.",
            hint="Use another backup; a cut one is not restored.", path=backup,
        )


def _take_out(
    backup: Path, working: Path, manifest: Manifest | None, passphrase: str | Callable[[], str] | None, say: Progress
) -> None:
    """Copy, decrypt or unpack into the working file, and compare its hash with the manifest."""
    total = backup.stat().st_size
    with open(backup, "rb") as file:
        head = file.read(4)
    if is_sealed(backup):
        secret = passphrase() if callable(passphrase) else passphrase
        if secret is None:
            raise Refused(
                f"{backup} is encrypted, and no passphrase was given.",
                hint="Give it with --passphrase-file, in HERMES_BACKUP_PASSPHRASE, or at the question.", path=backup,
            )
        with _new(working) as write:
            unseal(backup, secret, write, lambda done: say("decrypting", done, total))
    elif head == _ZSTD or head[:2] == _GZIP:
        _unpack(backup, working, zstd=head == _ZSTD)
    else:
        # The files of a database that was not closed belong together; a backup of ours is one file.
        for ending in ("", "-wal", "-journal"):
            if ending == "" or Path(f"{backup}{ending}").exists():
                names, target = [f"{backup.name}{ending}"], f"{working.name}{ending}"
                run(
                    "copy", backup, lambda done: say("copying the backup", done, total), names=names,
                    source=str(backup.parent), to=str(working.parent), target=target,
                )
    if manifest is not None and sha256_of(working) != manifest.plain_sha256:
        raise BackupDamaged(
            f"{backup} is not what its manifest says: its content was altered.",
            hint="Use another backup; this one may have lost or changed rows.", path=backup,
        )


@contextmanager
def _new(path: Path) -> Iterator[Callable[[bytes], object]]:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        yield out.write
        out.flush()
        os.fsync(out.fileno())


def _unpack(backup: Path, working: Path, *, zstd: bool) -> None:
    try:
        with open(backup, "rb") as packed, _new(working) as write:
            if zstd:
                unpack(packed, write)
            else:
                with gzip.open(packed) as reading:
                    while piece := reading.read(1 << 20):
                        write(piece)
    except (FrameDamaged, EOFError, gzip.BadGzipFile) as error:
        raise BackupDamaged(
            f"{backup} cannot be unpacked: {error}.", hint="Use another backup.", path=backup
        ) from error


def _checked(backup: Path, working: Path, manifest: Manifest | None, say: Progress) -> tuple[Content, int]:
    try:
        settle_private(working)
        content, problems = verified_content(working, say, what="checking the backup")
    except StorageError as error:
        if error.exit_code != 65:
            raise
        raise Corrupt(
            f"{backup} cannot be restored: {str(error).replace(str(working), 'its database')}",
            hint=f"Use another backup, or `hermes-state sessions recover --source {shell_word(backup)}`.", path=backup,
            search_index=False,
        ) from error
    if manifest is not None and (difference := manifest.content.differs(content)):
        raise BackupDamaged(
            f"{backup} is not what its manifest says: {difference}.", hint="Use another backup.", path=backup
        )
    return content, problems


