"""The stage of the accident campaign: puppets, what they were told is committed, and the judgement at the end.

Invariant: an acknowledged row is one whose COMMIT answered without an error. At the end each must be in the file or in
a capture that a named error pointed to; nothing else counts as kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.children import PROJECT

PROGRAM = Path(__file__).with_name("puppet.py")
OURS = ("ours", "reader", "exclusive")


@dataclass
class Verdict:
    """What became of a scene."""

    lost: list[str] = field(default_factory=list)  # acknowledged rows found nowhere
    captured: list[str] = field(default_factory=list)  # acknowledged rows found only in a named capture
    named: list[str] = field(default_factory=list)  # error classes that our engine raised
    unnamed: list[str] = field(default_factory=list)  # errors of our engine that are not of hermes_state.errors
    script: list[str] = field(default_factory=list)  # every step with its answer, to play it again
    integrity: str = ""  # verdict of the standard library's SQLite on the file


class Player:
    """One puppet process."""

    def __init__(self, stage: Stage, name: str, kind: str) -> None:
        self.stage, self.name, self.kind = stage, name, kind
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("HERMES", "PYTHON"))}
        environment["PYTHONPATH"] = str(PROJECT)
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), kind, str(stage.db), str(stage.patience), stage.way],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pending: list[str] = []
        self.second_pending: list[str] = []

    def do(self, *command: str) -> dict[str, Any]:
        """One step; acknowledged commits go to the stage's books."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line and self.kind in ("apsw", "stdlib") and self.stage.may_die:
            line = json.dumps({"error": "Died", "named": False, "text": f"status {self.process.wait(timeout=30)}"})
        if not line:
            raise AssertionError(f"{self.name} died at {command}: {self.process.stderr and self.process.stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        self.stage.note(self, command, answer)
        return answer

    def put(self, count: int = 1) -> None:
        """`count` rows, a transaction each."""
        for _ in range(count):
            self.do("put", self.stage.key(self.name))

    def insert(self) -> None:
        """A row inside the open transaction."""
        self.do("insert", self.stage.key(self.name))

    def insert_big(self) -> None:
        """A row and eight megabytes inside the open transaction."""
        self.do("insert_big", self.stage.key(self.name))

    def twin_put(self, count: int = 1) -> None:
        """`count` rows through the second store object of this process."""
        for _ in range(count):
            self.do("twin_do", "put", self.stage.key(self.name + "t"))

    def second_put(self) -> None:
        """A whole transaction of the second library in this process."""
        self.do("second_do", "begin")
        self.second_insert()
        self.do("second_do", "commit")

    def second_insert(self) -> None:
        """A row inside the open transaction of the second library in this process."""
        self.do("second_do", "insert", self.stage.key(self.name + "2"))

    def end(self) -> None:
        """Leave without closing anything, as a process that is killed."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it may have died
            if self.process.poll() is None:
                self.process.stdin.write('["end"]\n')
            self.process.stdin.close()
        self.process.wait(timeout=30)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Stage:
    """One scene: a store, players, books."""

    def __init__(self, db: Path, *, way: str = "block") -> None:
        self.db = db
        self.way = way  # how the engine's transactions are made: in a "block" or through "write"
        self.players: list[Player] = []
        self.acknowledged: list[str] = []
        self.captures: list[Path] = []
        self.verdict = Verdict()
        self.patience = 2.0  # seconds that every player waits for a lock
        self.may_die = False  # a plain connection may crash when others tear its files apart
        self._count = 0

    def player(self, name: str, kind: str, *, opened: bool = True) -> Player:
        """A new process; `opened` connects it at once."""
        player = Player(self, name, kind)
        self.players.append(player)
        if opened:
            player.do("open")
        return player

    def key(self, name: str) -> str:
        """A key that no other row has."""
        self._count += 1
        return f"{name}:{self._count};"

    def note(self, player: Player, command: tuple[str, ...], answer: dict[str, Any]) -> None:
        """Keep the books after a step."""
        self.verdict.script.append(f"{player.name} ({player.kind}) {' '.join(command)} -> {json.dumps(answer)}")
        good = answer.get("ok", False)
        if command[0] == "put" and good:
            self.acknowledged.append(command[1])
        elif command[:2] == ("twin_do", "put") and good:
            self.acknowledged.append(command[2])
        elif command[0] in ("insert", "insert_big") and good:
            player.pending.append(command[1])
        elif command[0] in ("commit", "rollback"):
            if good and command[0] == "commit":
                self.acknowledged += player.pending
            player.pending = []
        elif command[:2] == ("second_do", "insert") and good:
            player.second_pending.append(command[2])
        elif command[:2] == ("second_do", "commit"):
            self.acknowledged += player.second_pending if good else []
            player.second_pending = []
        judged = not good and answer["error"] != "NothingOpen"
        if judged and player.kind in OURS and command[0] not in ("second_do", "second_touch", "second_open", "raw"):
            (self.verdict.named if answer["named"] else self.verdict.unnamed).append(answer["error"])
            if answer["named"] and answer["capture"]:
                self.captures.append(Path(answer["capture"]))

    def ask_only_for(self, name: str) -> None:
        """Only rows of this player and its twin are asked for at the end; the others look after themselves."""
        self.acknowledged = [key for key in self.acknowledged if key.split(":")[0] in (name, f"{name}t")]

    def did(self, what: str) -> None:
        """Write an accident of the world outside into the script."""
        self.verdict.script.append(what)

    def unlink(self, *suffixes: str) -> None:
        """Remove sidecars under everybody, as an overzealous program does."""
        for suffix in suffixes:
            Path(f"{self.db}{suffix}").unlink(missing_ok=True)
        self.did(f"unlinked {' '.join(suffixes)}")

    def destroyed(self, what: str) -> None:
        """What is acknowledged so far was destroyed by somebody's own hand and is not asked for any more."""
        self.acknowledged.clear()
        self.did(what)

    def replace_main(self, with_file: Path) -> None:
        """Rename another file over the store."""
        os.replace(with_file, self.db)
        self.did("renamed a copy over the main file")

    def close(self) -> Verdict:
        """Judge: every player is gone, then a fresh process looks for the acknowledged rows."""
        for player in self.players:
            player.end()
        present, self.verdict.integrity = _keys(self.db)
        kept: set[str] = set()
        for capture in self.captures:
            kept |= _captured_keys(capture, set(self.acknowledged))
        for key in self.acknowledged:
            if key in present:
                continue
            (self.verdict.captured if key in kept else self.verdict.lost).append(key)
        return self.verdict

    def abandon(self) -> None:
        """For teardown after a failure."""
        for player in self.players:
            if player.process.poll() is None:
                player.process.kill()
                player.process.wait(timeout=30)


def _keys(db: Path) -> tuple[set[str], str]:
    """Keys in the store as a fresh process of the standard library sees them, and its verdict on the pages."""
    program = (
        "import sqlite3, sys, json; c = sqlite3.connect(sys.argv[1]);"
        "print(json.dumps([[r[0] for r in c.execute('SELECT key FROM state_meta')],"
        "c.execute('PRAGMA integrity_check(3)').fetchone()[0]]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(db)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return set(), done.stderr.strip().splitlines()[-1]
    keys, integrity = json.loads(done.stdout)
    return set(keys), integrity


def _captured_keys(capture: Path, wanted: set[str]) -> set[str]:
    """Which of these keys a capture holds: in its whole copy, or else as text in the WAL that it kept.

    When only the -wal was unlinked, the generations share a WAL index, and once the new one has written, the old one
    cannot be read through SQLite any more; its frames are still whole.
    """
    files = json.loads((capture / "manifest.json").read_text(encoding="utf-8"))["files"]
    kept: set[str] = set()
    for name, facts in files.items():
        if facts["source"] == "backup API":
            private = capture.parent / f"look-{capture.name}.db"
            shutil.copyfile(capture / name, private)
            con = sqlite3.connect(private)
            with suppress(sqlite3.DatabaseError):
                kept |= {row[0] for row in con.execute("SELECT key FROM state_meta")}
            con.close()
        else:
            frames = (capture / name).read_bytes()
            # The value of every row is the one character behind its key.
            kept |= {key for key in wanted if f"{key}1".encode() in frames}
    return kept & wanted
