"""Eight processes append to one store, half of them are killed at random and started again: nothing may be missing.

What is acknowledged is there, once, in its process's order; a killed process leaves at most the one row whose
acknowledgement was lost, and its repetition adds nothing; no session has a gap; `doctor` finds nothing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes_state import open_store
from tests.support.children import PROJECT, child_environment
from tests.support.cli import RunCli

PROCESSES = 8
SHARED = "shared"


def start(db: Path, folder: Path, number: int, count: int) -> subprocess.Popen[str]:
    name = f"writer-{number}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.campaigns.appender", str(db), str(folder / name), name, str(count), SHARED],
        cwd=PROJECT, env=child_environment(own_packages=True), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def play(folder: Path, seed: int, count: int) -> tuple[Path, int]:
    """One round; gives the store and how many processes were really killed."""
    chance = random.Random(seed)
    db = folder / "home" / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id=SHARED, source="cli")
    running = {number: start(db, folder, number, count) for number in range(PROCESSES)}
    for process in running.values():
        assert process.stdout is not None and process.stdout.readline() == "started\n"
    killed = 0
    # Each is killed when it has come so far, which is a different place in the code each time.
    doomed = {number: chance.randrange(count * 3 // 4) for number in chance.sample(range(PROCESSES), PROCESSES // 2)}
    for number, wanted in sorted(doomed.items(), key=lambda item: item[1]):
        log = folder / f"writer-{number}"
        until = time.monotonic() + 120
        while running[number].poll() is None and (log.stat().st_size if log.exists() else 0) < wanted * 21:
            assert time.monotonic() < until, f"writer {number} stands still"
        killed += running[number].poll() is None
        running[number].kill()
        running[number].communicate()
        running[number] = start(db, folder, number, count)
    for number, process in running.items():
        _out, err = process.communicate(timeout=300)
        assert process.returncode == 0, f"writer {number}, seed {seed}:\n{err}"
    return db, killed


def judge(db: Path, folder: Path, count: int) -> None:
    """Compare the acknowledgements with the rows."""
    with open_store(path=db, read_only=True) as store, store.core.reader() as reader:
        rows = reader.rows(
            "SELECT m.client_key, m.id, s.id, m.seq FROM messages m JOIN sessions s ON s.no = m.session_no"
            " ORDER BY m.id"
        )
        gaps = reader.rows("SELECT session_no FROM messages GROUP BY session_no HAVING count(*) <> max(seq)")
    ids = {key: (row, session) for key, row, session, _seq in rows}
    assert len(ids) == len(rows) == PROCESSES * count
    assert gaps == []
    for number in range(PROCESSES):
        lines = (folder / f"writer-{number}").read_text().split("\n")[:-1]
        said = [line.split() for line in lines]
        assert [key for _row, key in said] == [f"writer-{number}-{place:05}" for place in range(count)]
        assert all(ids[key][0] == int(row) for row, key in said)
        order = [int(row) for row, _key in said]
        assert order == sorted(order)


def rounds(tmp_path: Path, run_cli: RunCli, seeds: range, count: int) -> None:
    started, killed = time.monotonic(), 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        db, dead = play(folder, seed, count)
        killed += dead
        judge(db, folder, count)
        checked = run_cli("doctor", "--db", str(db))
        assert checked.exit_code == 0, f"seed {seed}: {checked.stdout}{checked.stderr}"
        for found in sorted(folder.rglob("*"), reverse=True):
            found.rmdir() if found.is_dir() else found.unlink()
    wall = time.monotonic() - started
    print(
        f"\n{len(seeds)} rounds from seed {seeds.start}, {PROCESSES} processes x {count} appends, {killed} processes "
        f"killed while they wrote, {wall:.0f} s: every acknowledged row is there once, in order"
    )
    assert killed > 0


@pytest.mark.slow
def test_no_acknowledged_row_is_lost_in_five_rounds(tmp_path: Path, run_cli: RunCli) -> None:
    rounds(tmp_path, run_cli, range(5), 300)


@pytest.mark.campaign
def test_no_acknowledged_row_is_lost_in_a_campaign(tmp_path: Path, run_cli: RunCli) -> None:
    count = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))
    first = int(os.environ.get("HERMES_STATE_SEED", "1000"))
    rounds(tmp_path, run_cli, range(first, first + count), 5_000)
