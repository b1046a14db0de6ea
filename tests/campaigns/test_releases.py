"""Every verb on a file of every release; after each change the same release and the next one live with the file.

What to know first: one file goes through all verbs in the order of a long life, so that a later verb meets what the
earlier ones left. After each verb that changes something, each release gets a copy of its own and does with it what a
gateway does in a day (`use` in `peer_program.py`): check, append, flip a flag, search old and new text,
CJK and a part of a word, delete a session with NUL content, check again with its own sqlite3 library. The file as the
release itself wrote it goes through the same first, as the control.

Needs HERMES_PEERS (see `tests/support/peers.py`); `./dev releases` runs it and prints one line for each verb.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.cli import Result, RunCli
from tests.support.peers import Peer
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.campaign

CJK = "\u8bf7\u7a0d\u5019\u7247\u523b"
# A list is structured content, which hermes-agent stores behind a NUL.
TEXTS = ["quokka migration plan", f"{CJK} reply", [{"type": "text", "text": "wombat behind a NUL"}], "third"]
FIRST_CONVERTIBLE = "0.17.0"
PRUNED, DELETED, STAYING = "nul_pruned", "nul_deleted", "nul_staying"
PRUNE = ("sessions", "prune", "--end-reason", "cli_close", "--yes", "--allow-large")


@dataclass
class Life:
    """One file on its way through the verbs."""

    version: str  # the release that wrote it
    db: Path  # the file
    cli: RunCli  # our command line
    lines: list[str] = field(default_factory=list)  # the table
    problems: list[str] = field(default_factory=list)  # everything that is not as it should be
    number: int = 0  # verbs that changed something so far

    @property
    def writer(self) -> Peer:
        """The release that wrote the file."""
        peer = peers.find(self.version)
        assert peer is not None
        return peer

    def run(self, *arguments: str | Path, allowed: tuple[int, ...] = (0,)) -> Result:
        """One verb; any other exit status than the allowed ones is a problem."""
        done = self.cli(*arguments, home=self.db.parent)
        if done.exit_code not in allowed:
            said = (done.stderr or done.stdout).strip()
            self.problems.append(f"{self.version}: {' '.join(map(str, arguments))} ended with {done.exit_code}: {said}")
        return done

    def read(self, name: str, *arguments: str | Path, allowed: tuple[int, ...] = (0,)) -> Result:
        """A verb that may change nothing."""
        before = self.writer.contents(self.db)
        done = self.run(*arguments, allowed=allowed)
        if self.writer.contents(self.db) != before:
            self.problems.append(f"{self.version}: {name} changed messages")
        self.lines.append(f"{self.version:<8} {name:<28} exit {done.exit_code}")
        return done

    def change(self, name: str, *arguments: str | Path, gone: tuple[str, ...] = (), substrings: bool = True) -> Result:
        """A verb that changes something: exactly the `gone` sessions lose their messages, then the releases use it."""
        before = self.writer.contents(self.db)
        done = self.run(*arguments)
        expected = {session: digest for session, digest in before.items() if session not in gone}
        if self.writer.contents(self.db) != expected:
            self.problems.append(f"{self.version}: {name} changed messages of other sessions, or left some of these")
        self.let_releases_use_it(name, substrings=substrings)
        return done

    def let_releases_use_it(self, name: str, *, substrings: bool = True) -> None:
        """The same release and the next, each on a copy of its own."""
        self.number += 1
        verdicts = []
        for peer in peers.same_and_next(self.version):
            problems = self.use(peer, substrings=substrings)
            verdicts.append(f"{peer.version} {'ok' if not problems else 'PROBLEM'}")
            self.problems += [f"{self.version}: {name}, used by {peer.version}: {text}" for text in problems]
        self.lines.append(f"{self.version:<8} {name:<28} {', '.join(verdicts)}")

    def use(self, peer: Peer, *, substrings: bool) -> list[str]:
        """What is wrong with a copy of the file in the hands of `peer`."""
        folder = self.db.parent.with_name(f"used-{self.number}-{peer.version}")
        folder.mkdir()
        for suffix in ("", "-wal"):
            if Path(f"{self.db}{suffix}").exists():
                shutil.copy(f"{self.db}{suffix}", folder / f"state.db{suffix}")
        try:
            seen = peer.ask(
                "use",
                db=folder / "state.db",
                session="a_day_later",
                texts=TEXTS,
                queries=["quokka", CJK],
                pieces=["uokk"],
                victim=STAYING,
            )
        except peers.PeerFailed as failure:
            return [str(failure)]
        finally:
            shutil.rmtree(folder)
        return list(wrong(seen, substrings=substrings))


def wrong(seen: dict[str, Any], *, substrings: bool) -> list[str]:
    """Judge what a release saw."""
    ids, picked = seen["ids"], seen["picked"]
    by_search = {"quokka": ids[0], CJK: ids[1]} | {
        picked[kind][1]: picked[kind][0] for kind in ("word", "cjk") if picked[kind]
    }
    if not substrings:
        by_search = {query: row for query, row in by_search.items() if query.isascii()}
    by_piece = {"uokk": ids[0]} | ({picked["piece"][1]: picked["piece"][0]} if picked["piece"] else {})
    problems = [
        f"search for {query!r} misses row {row}" for query, row in by_search.items() if row not in seen["found"][query]
    ]
    for piece, row in by_piece.items():
        if substrings != (row in seen["within"][piece]):
            problems.append(f"substring {piece!r} {'misses' if substrings else 'unexpectedly finds'} row {row}")
    if picked["word"] is None or not any(picked.values()):
        problems.append("the file has no old text to search for, so the search proves nothing")
    if not seen["deleted"] or seen["left"]:
        problems.append(f"its own delete gave {seen['deleted']} and left {seen['left']} messages")
    if "a_day_later" not in seen["listed"]:
        problems.append("it does not list the session that it made")
    for when in ("before", "after"):
        check = seen[when]
        bad = {name: text for name, text in check["verdicts"].items() if text not in ("ok", "absent")}
        if bad or check["triggers"] != 6:
            problems.append(f"{when} use, its SQLite {check['sqlite']} says {bad}, {check['triggers']} triggers")
    return problems


def read_everything(life: Life, folder: Path, when: str) -> list[str]:
    """All verbs that only read; gives what a prune would remove."""
    life.read(f"list, {when}", "sessions", "list", "--all")
    for session in life.read(f"list --json, {when}", "sessions", "list", "--all", "--json").json["sessions"][:3]:
        life.read("show", "sessions", "show", session["id"])
    life.read(f"stats, {when}", "sessions", "stats")
    life.read(f"export jsonl, {when}", "sessions", "export", folder / f"{when}.jsonl", "--include-archived")
    life.read(f"export md, {when}", "sessions", "export", folder / f"{when}-md", "--format", "md", "--include-archived")
    plan = life.read(f"prune --dry-run, {when}", *PRUNE[:-2], "--dry-run", "--json").json
    life.read(f"optimize --dry-run, {when}", "sessions", "optimize", "--dry-run")
    doctor = life.read(f"doctor, {when}", "doctor", "--json", allowed=(0, 3)).json
    if doctor["damaged_objects"] or doctor["damaged_search_indexes"]:
        life.problems.append(
            f"{life.version}: doctor, {when}: {doctor['damaged_objects']} {doctor['damaged_search_indexes']}"
        )
    life.read(f"locks, {when}", "locks")
    return [session for conversation in plan["conversations"] for session in conversation["sessions"]]


def add_content_behind_nul(life: Life) -> None:
    """Sessions with NUL content for prune, delete and the releases' own delete; the writer's own code makes them."""
    for session in (PRUNED, DELETED, STAYING):
        life.writer.open_and_append(
            life.db, session=session, texts=[f"{session} text", *TEXTS[2:]], end=session == PRUNED
        )
    marked = {session for _id, session, nul in life.writer.rows(life.db).messages if nul}
    assert marked >= {PRUNED, DELETED, STAYING}


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_each_release_lives_on_with_what_each_verb_left(
    version: str, store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if peers.find(version) is None:
        pytest.skip(f"hermes-agent {version} is not installed (HERMES_PEERS)")
    life = Life(version=version, db=store_copy(version), cli=run_cli)
    add_content_behind_nul(life)
    life.let_releases_use_it("(control: nothing done)")

    doomed = read_everything(life, tmp_path, "at first")
    assert PRUNED in doomed and not {DELETED, STAYING} & set(doomed)
    for name, arguments in (
        ("rename", ("sessions", "rename", STAYING, "A title with \u8bf7 in it")),
        ("pin", ("sessions", "pin", STAYING)),
        ("unpin", ("sessions", "unpin", STAYING)),
        ("archive", ("sessions", "archive", STAYING)),
        ("archive --undo", ("sessions", "archive", "--undo", STAYING)),
    ):
        life.change(name, *arguments)
    life.change("delete --online", "sessions", "delete", DELETED, "--yes", "--online", gone=(DELETED,))
    life.change("optimize --online", "sessions", "optimize", "--online")
    life.change("prune", *PRUNE, gone=tuple(doomed))
    life.change("optimize", "sessions", "optimize")
    life.change("optimize --via-copy", "sessions", "optimize", "--via-copy", "--reclaim", "always")
    convert(life)
    read_everything(life, tmp_path, "at last")

    with capsys.disabled():
        print("\n" + "\n".join(life.lines))
    assert life.problems == []


def convert(life: Life) -> None:
    """The search layout: converted where the file is new enough, otherwise refused with the release to open it with."""
    storage = ("sessions", "optimize-storage", "--yes")
    if tuple(map(int, life.version.split("."))) < tuple(map(int, FIRST_CONVERTIBLE.split("."))):
        refused = life.run(*storage, allowed=(1,))
        life.lines.append(f"{life.version:<8} {'optimize-storage':<28} exit 1: {refused.stderr.splitlines()[0]}")
        return
    steps = (
        ("optimize-storage", storage, True),
        ("optimize-storage --trigram off", (*storage, "--trigram", "off"), False),
        ("optimize-storage --trigram on", (*storage, "--trigram", "on"), True),
    )
    for name, arguments, substrings in steps:
        life.change(name, *arguments, substrings=substrings)
    life.change("optimize, converted", "sessions", "optimize", "--reclaim", "always")
