"""Whatever happens to the file of the search index: no append fails, no search fails or misses anything, and it heals.

Each test damages real files. Where the store is open meanwhile, another process does the damage, as it would be.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.store import Store

PAGE = 4096
WORDS = [f"word{number}" for number in range(40)]

DAMAGE = """
import os, random, sys
path, kind, page = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = os.path.getsize(path) if os.path.isfile(path) else 0
if kind in ("garbage", "zeros", "flips", "header"):
    with open(path, "r+b") as file:
        file.seek(page * 4096)
        old = file.read(4096)
        chance = random.Random(page)
        new = {"garbage": chance.randbytes(len(old)), "zeros": bytes(len(old)), "header": bytes(100) + old[100:],
               "flips": bytes(byte ^ (chance.random() < 0.02) for byte in old)}[kind]
        file.seek(page * 4096)
        file.write(new)
elif kind == "empty":
    os.truncate(path, 0)
elif kind == "half":
    os.truncate(path, size // 2 + 777)
elif kind == "delete":
    os.unlink(path)
elif kind == "delete all":
    for name in (path, path + "-wal", path + "-shm"):
        os.unlink(name)
elif kind == "delete sidecars":
    for name in (path + "-wal", path + "-shm"):
        os.unlink(name)
elif kind == "text":
    open(path, "w").write("this is not a database")
elif kind == "folder":
    for name in (path, path + "-wal", path + "-shm"):
        os.path.exists(name) and os.unlink(name)
    os.mkdir(path)
"""


def damage(path: Path, kind: str, page: int = 0) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", DAMAGE, str(path), kind, str(page)], check=True, env=environment)


def filled(store: Store, clock: FakeClock) -> dict[str, set[int | None]]:
    """A store with every word in several messages, all indexed; which word is where."""
    chance = random.Random(3)
    truth: dict[str, set[int | None]] = {word: set() for word in WORDS}
    session = store.sessions.create(source="cli").id
    for start in range(0, 240, 60):
        texts = [[*chance.sample(WORDS, 6), *(f"x{chance.randrange(10**6)}" for _ in range(20))] for _ in range(60)]
        made = store.messages.append_many(session, [{"role": "user", "content": " ".join(text)} for text in texts])
        for number, text in zip(made, texts, strict=True):
            for word in text[:6]:
                truth[word].add(number)
        assert start >= 0 and store.search.index_idle(10).degraded == ""
    return truth


def misses(store: Store, truth: dict[str, set[int | None]]) -> tuple[list[str], list[str]]:
    """Words whose messages were not exactly found, and the reasons that searches gave."""
    wrong, reasons = [], []
    for word, numbers in truth.items():
        result = store.search(word, limit=1000)
        if {hit.message_id for hit in result} != numbers or not result.complete:
            wrong.append(word)
        if result.degraded:
            reasons.append(result.degraded)
    return wrong, reasons


def append(store: Store, truth: dict[str, set[int | None]]) -> None:
    session = store.sessions.list()[0].id
    truth[WORDS[0]].add(store.messages.append(session, role="user", content=WORDS[0]))


def heals(store: Store, truth: dict[str, set[int | None]]) -> None:
    """Every search is right, and soon they go through a whole index again. Damage is found when it is met."""
    for _ in range(4):
        append(store, truth)
        wrong, _ = misses(store, truth)
        assert wrong == []
        append(store, truth)
        store.search.optimize_index()
        wrong, reasons = misses(store, truth)
        assert wrong == []
        newest = max(number for numbers in truth.values() for number in numbers if number is not None)
        if not reasons and store.search(WORDS[0]).indexed_to == newest:
            break
    else:
        raise AssertionError(reasons)
    check = store.search.verify()
    assert (check.sound, check.entries) == (True, check.messages)


KINDS = ["empty", "half", "delete", "delete all", "delete sidecars", "text", "header"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_index_that_is_damaged_is_made_anew(tmp_path: Path, fake_clock: FakeClock, kind: str) -> None:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        truth = filled(store, fake_clock)
    damage(tmp_path / "search.db", kind)
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        heals(store, truth)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_is_damaged_while_it_is_open_is_made_anew(
    tmp_path: Path, fake_clock: FakeClock, kind: str
) -> None:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        truth = filled(store, fake_clock)
        assert misses(store, truth) == ([], [])
        damage(tmp_path / "search.db", kind)
        heals(store, truth)
        assert not list(tmp_path.glob("*retired*"))


def pages_of(path: Path) -> int:
    return os.path.getsize(path) // PAGE


def one_page_at_a_time(tmp_path: Path, fake_clock: FakeClock, kinds: list[str], most: int | None) -> None:
    original = tmp_path / "original"
    original.mkdir()
    with open_store(path=original / "state.db", clock=fake_clock) as store:
        truth = filled(store, fake_clock)
        # Through SQLite, so that the pages are in the database file and not in the WAL.
        with store.search._index.writer() as writer:
            while writer.checkpoint("passive").busy:
                pass
    count = pages_of(original / "search.db")
    assert count >= 8
    pages = range(count) if most is None else [*random.Random(1).sample(range(1, count), most - 1), 0]
    seen = 0
    for kind in kinds:
        for page in pages:
            home = tmp_path / f"{kind}-{page}"
            shutil.copytree(original, home)
            for name in ("search.db-wal", "search.db-shm"):
                (home / name).unlink()
            damage(home / "search.db", kind, page)
            mine = {word: set(numbers) for word, numbers in truth.items()}
            with open_store(path=home / "state.db", clock=fake_clock) as store:
                append(store, mine)
                wrong, reasons = misses(store, mine)
                assert wrong == [], (kind, page)
                seen += bool(reasons)
                store.search.optimize_index()
                assert misses(store, mine)[0] == [], (kind, page)
                heals(store, mine)
            shutil.rmtree(home)
    assert seen >= len(kinds)


@pytest.mark.slow
def test_five_pages_of_the_index_damaged_in_turn_lose_nothing(tmp_path: Path, fake_clock: FakeClock) -> None:
    one_page_at_a_time(tmp_path, fake_clock, ["garbage"], most=5)


@pytest.mark.campaign
def test_every_page_of_the_index_damaged_in_turn_loses_nothing(tmp_path: Path, fake_clock: FakeClock) -> None:
    one_page_at_a_time(tmp_path, fake_clock, ["garbage", "zeros"], most=None)


def test_a_folder_in_the_place_of_the_index_degrades_the_search(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        truth = filled(store, fake_clock)
        damage(store.search.path, "folder")
        append(store, truth)
        wrong, reasons = misses(store, truth)
        assert wrong == []
        where = store.search.path
        assert reasons[0] == f"{where} cannot be used: {where} is not a regular file."
        where.rmdir()
        fake_clock.advance(6.0)
        heals(store, truth)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_under_the_index_degrades_the_search(
    tmp_path: Path, fake_clock: FakeClock, small_disk: Path
) -> None:
    (tmp_path / "search.db").symlink_to(small_disk / "search.db")
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        session = store.sessions.create(source="cli").id
        chance = random.Random(1)
        rows = [
            {"role": "user", "content": f"apple {' '.join(f'{chance.randrange(10**9)}' for _ in range(60))}"}
            for _ in range(900)
        ]
        numbers = store.messages.append_many(session, rows)
        result = store.search("apple", limit=1000)
        assert {hit.message_id for hit in result} == set(numbers)
        assert result.complete
        work = store.search.index_idle(100)
        assert work.degraded == f"the disk of {tmp_path / 'search.db'} is full"
        assert work.pending > 0
        numbers.append(store.messages.append(session, role="user", content="apple"))
        result = store.search("apple", limit=1000)
        assert {hit.message_id for hit in result} == set(numbers)
        subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
        fake_clock.advance(6.0)
        assert store.search.index_idle(100).pending == 0
        result = store.search("apple", limit=1000)
        assert {hit.message_id for hit in result} == set(numbers)
        assert (result.degraded, result.scanned) == ("", 0)


def test_a_read_only_disk_under_the_index_degrades_the_search(
    tmp_path: Path, fake_clock: FakeClock, small_disk: Path
) -> None:
    (tmp_path / "search.db").symlink_to(small_disk / "search.db")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        session = store.sessions.create(source="cli").id
        numbers = store.messages.append_many(session, [{"role": "user", "content": "apple"}] * 100)
        result = store.search("apple", limit=1000)
        assert {hit.message_id for hit in result} == set(numbers)
        assert result.complete
        assert result.degraded == f"{tmp_path / 'search.db'} cannot be made: Read-only file system"
        store.messages.append(session, role="user", content="pear")
        assert len(store.search("pear")) == 1
