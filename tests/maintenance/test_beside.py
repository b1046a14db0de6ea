"""Files that the program keeps beside a store have the readers and writers of the store."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from maintenance.beside import share_like_store
from tests.lockowners.holding import USER, needs_root


def made_beside(db: Path) -> os.stat_result:
    path = db.with_name("beside")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        share_like_store(descriptor, db)
    finally:
        os.close(descriptor)
    return path.stat()


@pytest.mark.parametrize(
    ("store", "beside"), [(0o600, 0o600), (0o660, 0o660), (0o644, 0o644), (0o4755, 0o644), (0o400, 0o600)]
)
def test_the_bits_are_those_of_the_store_without_execution(tmp_path: Path, store: int, beside: int) -> None:
    db = tmp_path / "state.db"
    db.touch()
    db.chmod(store)
    assert stat.S_IMODE(made_beside(db).st_mode) == beside


@needs_root
def test_root_gives_the_file_to_the_owner_and_the_group_of_the_store(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.touch()
    db.chmod(0o640)
    os.chown(db, USER, USER + 1)
    made = made_beside(db)
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (USER, USER + 1, 0o640)


def test_without_a_store_the_file_stays_private(tmp_path: Path) -> None:
    assert stat.S_IMODE(made_beside(tmp_path / "state.db").st_mode) == 0o600
