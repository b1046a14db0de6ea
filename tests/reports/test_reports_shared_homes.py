"""Report 49: a home that two users share by a group stays shared, whichever of them runs whichever verb."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lockowners.holding import OTHER_USER, USER, needs_linux, needs_root
from tests.support.cli import Result, RunCli
from tests.support.stores import unpack

pytestmark = [pytest.mark.slow, needs_linux, needs_root]

SESSION = "20260121_000009_f2bd79"
OTHER_SESSION = "20260604_000001_0ed0c6"
GROUP = 200_001
FOLDER_MODE, FILE_MODE = 0o2770, 0o660


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of USER, shared with OTHER_USER by a group that is neither's own; others have no access."""
    outer = Path(tempfile.mkdtemp(prefix="reports-"))
    outer.chmod(0o755)
    db = unpack("0.19.0", outer / "home" / "state.db")
    os.chown(db, USER, GROUP)
    db.chmod(FILE_MODE)
    os.chown(db.parent, USER, GROUP)
    db.parent.chmod(FOLDER_MODE)
    yield db.parent
    shutil.rmtree(outer)


def run_as(user: int, home: Path, *args: object) -> Result:
    """A verb run by `user`, whose own group is another one than that of the home."""
    as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={GROUP}", "--inh-caps=-all")
    return RunCli(home.parent)(*args, "--home", home, wrapper=() if user == 0 else as_user)


VERBS: tuple[tuple[object, ...], ...] = (
    ("sessions", "list"), ("sessions", "stats", "--sizes"), ("sessions", "show", SESSION), ("doctor", "--deep"),
    ("locks",), ("sessions", "export", "-"), ("sessions", "pin", SESSION), ("sessions", "rename", SESSION, "a title"),
    ("sessions", "archive", OTHER_SESSION), ("sessions", "archive", "--undo", OTHER_SESSION),
    ("sessions", "delete", OTHER_SESSION, "--yes"),
    ("sessions", "prune", "--older-than", "150d", "--yes", "--allow-large"),
    ("sessions", "optimize", "--reclaim", "always"), ("sessions", "optimize", "--via-copy", "--reclaim", "always"),
    ("sessions", "optimize-storage"), ("sessions", "unpin", SESSION),
)


@pytest.mark.parametrize("first", [USER, 0], ids=["a user", "root"])
def test_every_verb_keeps_modes_and_group_and_the_other_user_can_run_them_too(home: Path, first: int) -> None:
    db = home / "state.db"
    for verb in VERBS:
        mine = run_as(first, home, *verb)
        assert mine.exit_code == 0, f"{verb} as {first}: {mine.stderr}"
        assert stat.S_IMODE(home.stat().st_mode) == FOLDER_MODE, verb
        assert (home.stat().st_uid, home.stat().st_gid) == (USER, GROUP), verb
        assert (stat.S_IMODE(db.stat().st_mode), db.stat().st_uid, db.stat().st_gid) == (FILE_MODE, USER, GROUP), verb
        for path in home.iterdir():
            if path.is_file():
                shared = (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid)
                assert shared == (FILE_MODE, GROUP), f"{verb} left {path.name} as {oct(shared[0])} {shared[1]}"
        seen = run_as(OTHER_USER, home, "sessions", "list")
        assert seen.exit_code == 0, f"the other user after {verb}: {seen.stderr}"
    for verb in (
        ("sessions", "pin", SESSION),
        ("sessions", "archive", SESSION),
        ("sessions", "delete", SESSION, "--yes"),
        ("sessions", "optimize", "--reclaim", "always"),
    ):
        theirs = run_as(OTHER_USER, home, *verb)
        assert theirs.exit_code == 0, f"{verb} as the other user: {theirs.stderr}"
    back = run_as(USER, home, "sessions", "list")
    assert back.exit_code == 0, back.stderr


def test_a_private_home_stays_private(home: Path) -> None:
    db = home / "state.db"
    db.chmod(0o600)
    home.chmod(0o700)
    for verb in (("sessions", "pin", SESSION), ("sessions", "delete", OTHER_SESSION, "--yes")):
        assert run_as(0, home, *verb).exit_code == 0
    beside = {path.name: (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in home.iterdir()}
    assert {name for name in beside if "hermes-state" in name} >= {
        "state.db.hermes-state.json", "state.db.hermes-state.ledger.jsonl"
    }
    assert set(beside.values()) == {(0o600, USER)}
