"""Prune and optimize of a native store, killed at random moments beside programs that write, again and again.

Run by `pytest -m campaign`. HERMES_ROUNDS says how many rounds (100).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.maintenance.native_stores import DAY, NOW, add_session, new_store, problems, rows, value
from tests.support.children import child_environment

ROUNDS = int(os.environ.get("HERMES_ROUNDS", "100"))
RunCli = Callable[..., Any]

# Appends and branches all the time; what was acknowledged is on its stdout.
WRITER = """
import random, sys
from hermes_state import open_store
store = open_store(path=sys.argv[1])
rng = random.Random(int(sys.argv[2]))
session = store.sessions.create(source="telegram")
number = 0
while True:
    number += 1
    text = f"{sys.argv[2]}-{number} " + "kept words " * rng.choice((1, 20, 300))
    print(store.messages.append(session.id, role="user", content=text), text.split()[0], flush=True)
    if number % 40 == 0:
        branch = store.sessions.branch(session.id)
        store.messages.append(branch.id, role="user", content="on the branch")
    if number % 7 == 0:
        store.search("kept", limit=3)
"""


@pytest.mark.campaign
def test_nothing_is_lost_and_nothing_comes_back(run_cli: RunCli, tmp_path: Path, fake_clock: Any) -> None:
    rng = random.Random(20_26)
    db = new_store(tmp_path)
    environment = child_environment(own_packages=True)
    removed: set[str] = set()
    for number in range(ROUNDS):
        for index in range(8):
            bodies = [f"old {index} {line} " + "output line\n" * rng.choice((1, 60, 400)) for line in range(40)]
            add_session(db, f"r{number}s{index}", bodies=bodies, days_old=200 + index)
        add_session(db, f"r{number}fresh", bodies=["fresh\n" * 500] * 5, days_old=40)
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(db), str(number * 10 + index)], env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for index in range(2)
        ]
        verbs = [["prune", "--yes", "--allow-large", "--older-than", "90d"], ["optimize"]]
        for verb in rng.sample(verbs, 2):
            command = [sys.executable, "-c", PROGRAM, "sessions", *verb, "--db", str(db)]
            run = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            try:
                _out, said = run.communicate(timeout=rng.uniform(0.15, 0.9))
                assert run.returncode == 0, said
            except subprocess.TimeoutExpired:
                run.kill()
                run.communicate()
        acknowledged: dict[int, str] = {}
        for writer in writers:
            writer.kill()
            out, said = writer.communicate()
            assert "Error" not in said, said
            # The last line may be cut by the kill.
            acknowledged |= {int(key): mark for key, mark in (line.split() for line in out.split("\n")[:-1])}
        kept = dict(rows(db, "SELECT m.id, m.content FROM messages AS m JOIN sessions AS s ON s.no = m.session_no"
                             " WHERE s.source = 'telegram'"))
        assert [key for key, mark in acknowledged.items() if not kept.get(key, "").startswith(f"{mark} ")] == []
        # What is listed is whole; what was deleted is in the ledger and never comes back.
        for key, count in rows(db, "SELECT s.id, count(*) FROM sessions AS s JOIN messages AS m ON m.session_no = s.no"
                                   " WHERE s.id GLOB 'r*s[0-9]' GROUP BY 1"):
            assert (count, key in removed) == (40, False)
        removed |= {key for (keys,) in rows(db, "SELECT keys FROM deletions") for key in json.loads(keys)}
        if number % 10 == 9:
            assert problems(db) == []
    for verb in (["prune", "--yes", "--allow-large", "--older-than", "90d", "--json"], ["optimize"]):
        done = run_cli("sessions", *verb, "--db", str(db))
        assert done.exit_code == 0, done.stderr
    doctor = run_cli("doctor", "--deep", "--json", "--db", str(db))
    assert doctor.exit_code == 0, doctor.stdout
    assert value(db, "SELECT count(*) FROM sessions WHERE id GLOB 'r*s[0-9]'") == 0
    assert value(db, "SELECT count(*) FROM sessions WHERE id LIKE 'r%fresh'") == ROUNDS
    assert value(db, "SELECT min(active_at) FROM sessions WHERE hidden = 0 AND active_at > 0") >= NOW - 90 * DAY
    assert removed | {key for (keys,) in rows(db, "SELECT keys FROM deletions") for key in json.loads(keys)} == {
        f"r{number}s{index}" for number in range(ROUNDS) for index in range(8)
    }


PROGRAM = """
import sys
from maintenance.entry import hermes_state
sys.argv[0] = "hermes-state"
sys.exit(hermes_state())
"""
