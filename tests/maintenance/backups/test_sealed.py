"""Encrypted backups: nothing readable in them, back with the passphrase, named errors without."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.errors import BackupDamaged, Refused, WrongPassphrase
from maintenance.backups import Backup, backup, drill
from maintenance.backups.sealing import is_sealed
from tests.maintenance.backups.making import copied, put_back, query, tidy
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

WORD = "a-sentence-nobody-may-read"


def made(db: Path) -> Backup:
    query(db, f"UPDATE messages SET content = '{WORD}' WHERE id = (SELECT min(id) FROM messages)")
    return backup(tidy(db), passphrase="opens it")


@pytest.mark.slow
def test_an_encrypted_backup_shows_nothing_and_gives_everything_back(store_copy: StoreCopy) -> None:
    db = store_copy()
    done = made(db)
    assert WORD.encode() in db.read_bytes()
    assert is_sealed(done.path) and done.path.name.endswith(".db.sealed")
    for path in done.path.parent.iterdir():
        assert WORD.encode() not in path.read_bytes() and path.stat().st_mode & 0o777 == 0o600
    query(db, "DELETE FROM messages")
    tidy(db)
    put_back(done.path, db, passphrase="opens it")
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    assert query(db, f"SELECT count(*) FROM messages WHERE content = '{WORD}'") == [(1,)]
    assert not list(db.parent.glob(".*"))  # nothing in clear stays beside the store


@pytest.mark.slow
def test_wrong_passphrase_altered_and_missing_bytes_are_told_apart(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = store_copy()
    done = made(db)
    before = db.read_bytes()
    with pytest.raises(WrongPassphrase) as wrong:
        put_back(done.path, db, passphrase="does not")
    assert str(wrong.value) == f"{done.path} does not open with this passphrase."
    with pytest.raises(Refused) as none:
        put_back(done.path, db)
    assert str(none.value) == f"{done.path} is encrypted, and no passphrase was given."
    raw = done.path.read_bytes()
    for place, said in (
        (60, "its head is not whole"),
        (len(raw) // 2, "bytes of it were altered or are missing"),
    ):
        bad = copied(done.path, tmp_path / "altered")
        changed = bytearray(raw)
        changed[place] ^= 1
        bad.write_bytes(changed)
        with pytest.raises(BackupDamaged) as altered:
            put_back(bad, db, passphrase="opens it")
        assert str(altered.value) == f"{bad} cannot be decrypted: {said}."
    bare = tmp_path / "bare.sealed"  # without a manifest nothing says how long it was
    bare.write_bytes(raw[: 1 << 18])
    with pytest.raises(BackupDamaged, match="bytes of it were altered or are missing"):
        put_back(bare, db, passphrase="opens it")
    assert db.read_bytes() == before


@pytest.mark.slow
def test_an_encrypted_backup_is_drilled_with_a_passphrase_file(
    store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("opens it\n")
    done = made(store_copy())
    assert drill(done.path, passphrase=lambda: "opens it").messages == 72
    good = run_cli("sessions", "restore", "--drill", done.path, "--passphrase-file", secret)
    assert good.exit_code == 0, good.stderr
    bad = run_cli("sessions", "restore", "--drill", done.path, env={"HERMES_BACKUP_PASSPHRASE": "no"})
    assert bad.exit_code == 1 and "does not open with this passphrase" in bad.stderr
    asked = run_cli("sessions", "restore", "--drill", done.path)
    assert asked.exit_code == 1 and "there is no terminal to ask on" in asked.stderr


@pytest.mark.slow
def test_what_lies_behind_the_first_line_is_an_age_file_for_the_key_of_the_passphrase(
    store_copy: StoreCopy, tmp_path: Path
) -> None:
    import hashlib

    import pyrage

    from maintenance.backups.sealing import secret_key

    done = made(store_copy())
    words = done.path.read_bytes()[:512].split()
    key = secret_key("opens it", bytes.fromhex(words[8].decode()), *(int(word) for word in words[5:8]))
    behind = tmp_path / "behind.age"
    behind.write_bytes(done.path.read_bytes()[512:])
    pyrage.decrypt_file(str(behind), str(tmp_path / "plain"), [pyrage.x25519.Identity.from_str(key)])
    assert hashlib.sha256((tmp_path / "plain").read_bytes()).hexdigest() == done.manifest.plain_sha256
