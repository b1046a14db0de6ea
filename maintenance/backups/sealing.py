"""Encrypted backups: one file that opens with a passphrase.

Invariant: what is encrypted is an age file (https://age-encryption.org), made by the library pyrage in authenticated
pieces of 64 KiB, for the key that scrypt makes of the passphrase and a salt of this file's own. A line in front has the
salt, scrypt's numbers and the public half of the key, so that a wrong passphrase is told from altered bytes. Memory
stays below 100 MB however large the backup is.

Not for: the live store, or keeping the passphrase. The library's own passphrase mode was rejected: it encrypts only
what is in memory, and measures how much scrypt this machine can bear, which took 1 GB here and would not open on a
smaller one. A format of our own making was rejected too.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from hermes_state.errors import BackupDamaged, Refused, WrongPassphrase

MAGIC = b"hermes-state sealed backup 1 "
HEAD_BYTES = 512  # the line is filled up with spaces
# scrypt: 2**16 * 8 * 128 bytes = 64 MiB, twice; about half a second.
LOG_N, R, P = 16, 8, 2
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


def is_sealed(path: Path) -> bool:
    """Whether a file is an encrypted backup, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def seal(plain: Path, target: Path, passphrase: str, say: Callable[[int], None]) -> str:
    """Encrypt `plain` into the new private file `target`, synced; returns the SHA-256 of `target`."""
    age = library()
    salt = secrets.token_bytes(16)
    key = age.x25519.Identity.from_str(secret_key(passphrase, salt, LOG_N, R, P))
    words = f"scrypt {LOG_N} {R} {P} {salt.hex()} {key.to_public()} "
    said = MAGIC + words.encode("ascii")
    head = (said + hashlib.sha256(said).hexdigest().encode("ascii")).ljust(HEAD_BYTES - 1) + b"\n"
    with (
        open(plain, "rb") as source,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out,
    ):
        hashing = Hashing(out.write)
        hashing.write(head)
        age.encrypt_io(_Counted(source, say), hashing, [key.to_public()])
        out.flush()
        os.fsync(out.fileno())
    return hashing.hexdigest()


def unseal(sealed: Path, passphrase: str, write: Callable[[bytes], object], say: Callable[[int], None]) -> None:
    """Decrypt a backup piece by piece. Raises `WrongPassphrase`, and `BackupDamaged` when bytes were altered."""
    age = library()
    with open(sealed, "rb") as source:
        log_n, r, p, salt, public = _read_head(sealed, source.read(HEAD_BYTES))
        key = age.x25519.Identity.from_str(secret_key(passphrase, salt, log_n, r, p))
        if str(key.to_public()) != public:
            raise WrongPassphrase(
                f"{sealed} does not open with this passphrase.",
                hint="Give the passphrase that it was made with; without it nothing can be read.", path=sealed,
            )
        out = Hashing(write)
        try:
            age.decrypt_io(_Counted(source, say), out, [key])
        except (age.DecryptError, OSError) as error:
            if out.failed is not None:
                raise out.failed from error
            raise _altered(sealed, "bytes of it were altered or are missing") from error


def secret_key(passphrase: str, salt: bytes, log_n: int, r: int, p: int) -> str:
    """The age identity that belongs to a passphrase and a salt: scrypt's 32 bytes as age writes keys (Bech32)."""
    raw = hashlib.scrypt(
        passphrase.encode("utf-8"), salt=salt, n=1 << log_n, r=r, p=p, dklen=32, maxmem=(128 * r << log_n) * 2
    )
    prefix = "age-secret-key-"
    number = int.from_bytes(raw, "big") << 4  # 256 bits in 52 groups of five, the last one filled up
    values = [number >> 5 * place & 31 for place in reversed(range(52))]
    spread = [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]
    check = _polymod([*spread, *values, 0, 0, 0, 0, 0, 0]) ^ 1
    checked = [*values, *(check >> 5 * (5 - place) & 31 for place in range(6))]
    return f"{prefix}1{''.join(_BECH32[value] for value in checked)}".upper()


class Hashing:
    """A writer for the library that also hashes."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        # What writing raised: the library says of every failure that it is one of the data.
        self.failed: BaseException | None = None

    def write(self, piece: bytes) -> int:
        """Pass a piece on."""
        self._digest.update(piece)
        try:
            self._write(piece)
        except BaseException as error:
            self.failed = error
            raise
        return len(piece)

    def flush(self) -> None:
        """Nothing is kept back here."""

    def hexdigest(self) -> str:
        """Of all that was written."""
        return self._digest.hexdigest()


class _Counted:
    """A reader for the library that says how much was read."""

    def __init__(self, source: BinaryIO, say: Callable[[int], None]) -> None:
        self._source = source
        self._say = say
        self._done = 0

    def read(self, size: int = -1) -> bytes:
        """The next piece."""
        piece = self._source.read(size)
        before, self._done = self._done, self._done + len(piece)
        if before >> 26 != self._done >> 26:
            self._say(self._done)
        return piece


def library() -> Any:
    """The library, which is an extra. Raises `Refused` without it."""
    try:
        import pyrage
    except ImportError as error:
        raise Refused(
            "Encrypted backups need the library pyrage, which is not installed.",
            hint='Install it with `pip install "hermes-state[encryption]"`.',
        ) from error
    return pyrage


def _read_head(path: Path, head: bytes) -> tuple[int, int, int, bytes, str]:
    """scrypt's numbers, salt and public key, once the line is known to be as it was written."""
    said, _space, digest = head.rstrip().rpartition(b" ")
    said += b" "
    if len(head) != HEAD_BYTES or hashlib.sha256(said).hexdigest().encode("ascii") != digest:
        raise _altered(path, "its head is not whole")
    _kind, log_n, r, p, salt, public = said.removeprefix(MAGIC).decode("ascii").split()
    return int(log_n), int(r), int(p), bytes.fromhex(salt), public


def _polymod(values: list[int]) -> int:
    """Bech32's checksum (BIP 173)."""
    check = 1
    for value in values:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for bit, term in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= term if top >> bit & 1 else 0
    return check


def _altered(path: Path, what: str) -> BackupDamaged:
    return BackupDamaged(
        f"{path} cannot be decrypted: {what}.", hint="Use another backup; this one gives nothing back.", path=path
    )
