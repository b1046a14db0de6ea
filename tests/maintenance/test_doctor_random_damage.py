"""Whatever bytes are wrong, the doctor ends with a verdict, and never calls a file healthy that SQLite rejects."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from tests.maintenance.damage import PAGE, examined
from tests.support.stores import StoreCopy


def damaged(content: bytes, chance: random.Random) -> bytes:
    found = bytearray(content)
    kind = chance.choice(["bytes", "page", "run"])
    if kind == "bytes":
        for _ in range(chance.randint(1, 40)):
            found[chance.randrange(len(found))] = chance.randrange(256)
    elif kind == "page":
        page = chance.randrange(len(found) // PAGE) * PAGE
        found[page : page + PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    else:
        start, length = chance.randrange(len(found) - 600), chance.randint(1, 600)
        found[start : start + length] = chance.randbytes(length)
    return bytes(found)


def sqlite_accepts(path: Path) -> bool:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.drop_modules([])
        return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    except apsw.Error:
        return False
    finally:
        connection.close()


def verdicts(store_copy: StoreCopy, many: int) -> None:
    chance = random.Random(20260917)
    path = store_copy("0.17.0")
    whole = path.read_bytes()
    for _ in range(many):
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(damaged(whole, chance))
        found = examined(path, sizes=True)
        assert found.exit_code in (0, 3, 65)
        assert found.exit_code != 0 or sqlite_accepts(path)


@pytest.mark.slow
def test_damaged_files_each_get_a_verdict_that_sqlite_does_not_contradict(store_copy: StoreCopy) -> None:
    verdicts(store_copy, 15)


@pytest.mark.campaign
def test_a_hundred_damaged_files_each_get_a_verdict(store_copy: StoreCopy) -> None:
    verdicts(store_copy, 100)
