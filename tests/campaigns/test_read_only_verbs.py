"""No read-only verb disturbs a gateway that is writing: judged from the kernel's record of its system calls.

What to know first: a reader of a WAL store takes a read lock on a read-mark byte and may take a write lock on such a
byte for a moment; that is SQLite's own protocol and harmless. Forbidden are write locks on the writer, checkpointer
and recovery bytes, RESERVED, PENDING and EXCLUSIVE on the main file, any write to the main file or the WAL, and any
unlink, rename or truncation of a store's files.

The default suite runs a few rounds; `./dev read-only` runs 1,000 (HERMES_CAMPAIGN_ROUNDS and HERMES_CAMPAIGN_SEED
change count and order).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance import verbs
from tests.campaigns.gateway import Gateway
from tests.support import peers, stores, strace
from tests.support.cli import RunCli

SESSION = "20260121_000009_f2bd79"
ROUNDS_PER_STORE = 100
SUFFIXES = ("", "-wal", "-shm")
VERBS: dict[str, tuple[str, ...]] = {
    "list": ("sessions", "list"),
    "list --all --json": ("sessions", "list", "--all", "--json"),
    "show": ("sessions", "show", SESSION),
    "stats": ("sessions", "stats"),
    "export": ("sessions", "export", "-"),
    "export html": ("sessions", "export", "sessions.html", "--format", "html", "--force"),
    "doctor": ("doctor",),
    "doctor --deep": ("doctor", "--deep"),
    "doctor --quick --sizes": ("doctor", "--quick", "--sizes"),
    "locks": ("locks",),
    "tail": ("sessions", "tail", "--limit", "5"),
    "adopt --dry-run": ("sessions", "adopt", "--dry-run"),
    "prune --dry-run": ("sessions", "prune", "--older-than", "1d", "--dry-run"),
    "archive --dry-run": ("sessions", "archive", "--older-than", "1d", "--dry-run"),
    "optimize --dry-run": ("sessions", "optimize", "--dry-run"),
    "optimize --online --dry-run": ("sessions", "optimize", "--online", "--dry-run"),
    "rename --dry-run": ("sessions", "rename", SESSION, "Another title", "--dry-run"),
    "pin --dry-run": ("sessions", "pin", SESSION, "--dry-run"),
    "unpin --dry-run": ("sessions", "unpin", SESSION, "--dry-run"),
    "optimize-storage --dry-run": ("sessions", "optimize-storage", "--dry-run"),
    "delete --dry-run": ("sessions", "delete", SESSION, "--dry-run"),
    "repair --check-only": ("sessions", "repair", "--check-only"),
    "captures": ("sessions", "captures"),
    "leftovers": ("sessions", "leftovers"),
    "scrub --dry-run": ("sessions", "scrub", "--pattern", "lighthouse", "--dry-run"),
    "spool": ("sessions", "spool"),
    "backup --dry-run": ("sessions", "backup", "--dry-run"),
    "window": ("sessions", "window", "model@http://127.0.0.1:1"),
    "replicate --dry-run": ("sessions", "replicate", "--to", "replica", "--dry-run"),
}
ALLOWED_EXITS = dict.fromkeys(("doctor", "doctor --deep", "doctor --quick --sizes", "window"), frozenset({0, 3}))
# With nothing beside the store, `leftovers` finds nothing to compare it with.
NEVER_OPENS = {"locks", "spool", "leftovers"}

pytestmark = pytest.mark.skipif(not strace.available(), reason="strace cannot trace here")


class Place:
    """A store with a gateway writing to it, and the command line under strace beside it."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder / f"store-{number}"
        self.db = stores.unpack("0.19.0", self.folder / "home" / "state.db")
        self.cli = RunCli(self.folder)
        self.gateway = Gateway(self.db, self.folder / "gateway", session=f"gateway_{number}", pause=0.01)
        self.gateway.wait_for_rows(3)

    def identities(self) -> list[tuple[int, int]]:
        """Device and inode of main, -wal and -shm."""
        return [(state.st_dev, state.st_ino) for state in (os.stat(f"{self.db}{suffix}") for suffix in SUFFIXES)]

    def run(self, verb: str) -> strace.Seen:
        """One verb, judged."""
        trace = self.folder / "trace"
        command = strace.under_strace(self.cli.command(*VERBS[verb]), trace)
        before = self.identities()
        done = subprocess.run(
            command,
            env=self.cli.environment(home=self.db.parent),
            capture_output=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
            cwd=self.folder,
        )
        allowed = ALLOWED_EXITS.get(verb, {0})
        assert done.returncode in allowed, f"{verb} ended with {done.returncode}: {done.stderr.decode()[-800:]}"
        assert self.identities() == before, f"{verb} changed an inode"
        seen = strace.read(trace.read_text(encoding="utf-8", errors="replace").splitlines(), self.db)
        if verb in NEVER_OPENS:
            assert seen.locks == 0, f"{verb} opened the store"
        else:
            assert seen.locks > 0, f"{verb}: the trace shows no lock call on the store at all, so it proves nothing"
        assert not seen.writable_opens, f"{verb} opened the main file for writing: {seen.writable_opens}"
        return seen

    def finish(self) -> int:
        """End the gateway; every acknowledged row must be in the file, and the file sound."""
        acknowledged = self.gateway.stop()
        peer = peers.find("0.19.0")
        if peer is not None:
            present = {row[0] for row in peer.rows(self.db).messages}
            assert peer.index_check(self.db).problems == {}
        else:
            answer = subprocess.run(
                ["sqlite3", str(self.db), "SELECT id FROM messages"], capture_output=True, text=True, check=True
            )
            present = {int(line) for line in answer.stdout.split()}
        missing = set(acknowledged) - present
        assert not missing, f"{len(missing)} rows that the gateway was told are committed are gone"
        return len(acknowledged)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    """The stores of a run; their gateways never outlive it."""
    opened: list[Place] = []
    yield opened
    for place in opened:
        place.gateway.kill()


def run_rounds(rounds: int, seed: int, places: list[Place], folder: Path) -> tuple[Counter[str], int, list[str]]:
    """Seeded rounds over all verbs: runs by verb, gateway rows, and every breach found."""
    chance = random.Random(seed)
    ran: Counter[str] = Counter()
    breaches: list[str] = []
    rows = 0
    order: list[str] = []
    for number in range(rounds):
        if number % ROUNDS_PER_STORE == 0:
            if places:
                rows += places[-1].finish()
            places.append(Place(folder, number // ROUNDS_PER_STORE))
        if not order:
            order = chance.sample(sorted(VERBS), len(VERBS))
        verb = order.pop()
        seen = places[-1].run(verb)
        breaches += [f"round {number}, {verb}: {text}" for text in seen.forbidden]
        ran[verb] += 1
    rows += places[-1].finish()
    return ran, rows, breaches


def test_every_verb_that_opens_a_store_is_among_them() -> None:
    played = {" ".join(words[:2]) if words[0] == "sessions" else words[0] for words in VERBS.values()}
    # An import has nothing to say to a file of hermes-agent: it writes into native stores only; so do compaction, the
    # outbox, the gateway's instances, routing, work and cron. A recovery is busy beside a writer, and a restore needs a
    # backup.
    opening = {
        name for name, verb in verbs.VERBS.items()
        if verb.access not in (verbs.Access.LOCAL, verbs.Access.HOST)
        and not name.startswith(("outbox ", "instances ", "routing ", "work ", "cron "))
    }
    native = {"sessions import", "sessions compact", "sessions view"}
    assert played == opening - native - {"sessions recover", "sessions restore"}


@pytest.mark.slow
def test_a_few_read_only_verbs_beside_a_writing_gateway_leave_no_trace(places: list[Place], tmp_path: Path) -> None:
    _ran, rows, breaches = run_rounds(5, seed=1, places=places, folder=tmp_path)

    assert breaches == []
    assert rows > 0


@pytest.mark.campaign
def test_a_thousand_read_only_verbs_beside_a_writing_gateway_leave_no_trace(
    places: list[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = int(os.environ.get("HERMES_CAMPAIGN_ROUNDS", "1000"))
    seed = int(os.environ.get("HERMES_CAMPAIGN_SEED", "20261129"))
    started = time.monotonic()

    ran, rows, breaches = run_rounds(rounds, seed, places, tmp_path)

    with capsys.disabled():
        print(f"\nread-only verbs: {sum(ran.values())} runs, seed {seed}, {time.monotonic() - started:.0f} s,")
        print(f"gateway: {places[-1].gateway.kind}, {rows} rows acknowledged, all present")
        for verb, count in sorted(ran.items()):
            print(f"  {verb:<28} {count}")
    assert not breaches, "\n".join(breaches)
