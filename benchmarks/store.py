"""Realistic stores for the benchmarks, the same bytes of content for the same recipe.

Invariant: a store is made from the schema of a file that hermes-agent 0.19.0 wrote, through plain SQL and the file's
own triggers, in a process of its own and by the standard library's SQLite, so that neither side of a comparison built
the input. The same `Recipe` gives the same rows.

Not for: correctness tests, which use the real files themselves. Enlarging a fixture by copying its rows was rejected:
repeated text makes search indexes unrealistically small.

The content follows what real stores hold: in number of rows 70 % chat, 15 % tool output of 2 to 20 KB, 15 % CJK
chat; one system prompt of 12 KB a session; some structured contents that begin with NUL.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).resolve().parents[1] / "tests/fixtures/hermes-agent/state-0.19.0.db.gz"
CACHE_VARIABLE = "HERMES_BENCH_CACHE"
PAGE_BYTES = 4096
# 2026-09-01T00:00:00Z: the newest session starts here; every older one an hour and a bit before the next.
NEWEST_SESSION_AT = 1788220800
SESSION_SPACING_SECONDS = 3900
SOURCES = ("telegram", "cli", "cron", "discord", "telegram", "cron", "slack", "subagent")
SYLLABLES = (  # noqa: SIM905 - sixty quoted words would hide what they are
    "ba be bi bo ca ce co da de di do fa fe fi ga ge go ha he hi jo ka ke ki la le li lo ma me mi mo na ne ni no "
    "pa pe pi po ra re ri ro sa se si so ta te ti to va ve vi za ze zo str cla tion ment pro con ex in ter sys net"
).split()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a store should look like."""

    # Size of the file before anything is deleted from it.
    megabytes: int
    # Share of free pages, reached by deleting the oldest ended sessions; 0 deletes nothing.
    free_share: float = 0.0
    # Messages in each session.
    messages: int = 100
    # Every random choice follows from it.
    seed: int = 1


def made(recipe: Recipe, target: Path, *, python: Path | None = None) -> Path:
    """A fresh copy of the recipe's store at `target`; built once, then kept in the cache folder.

    `python` is the interpreter whose SQLite fills the indexes; hermes-agent's own is the realistic one.
    """
    interpreter = str(python or sys.executable)
    key = hashlib.sha256(
        json.dumps([asdict(recipe), interpreter, Path(__file__).read_text(encoding="utf-8")]).encode()
    ).hexdigest()[:16]
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path(tempfile.gettempdir()) / "hermes-state-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"store-{recipe.megabytes}mb-{key}.db"
    if not kept.exists():
        staged = kept.with_suffix(f".{os.getpid()}.new")
        subprocess.run(
            [interpreter, __file__, "--target", str(staged), "--recipe", json.dumps(asdict(recipe))], check=True
        )
        staged.rename(kept)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept, target)
    return target


def facts(path: Path) -> dict[str, Any]:
    """Size and free pages of a store that nobody has open."""
    con = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        pages = con.execute("PRAGMA page_count").fetchone()[0]
        free = con.execute("PRAGMA freelist_count").fetchone()[0]
        sessions = con.execute("SELECT count(*) FROM sessions").fetchone()[0]
        messages = con.execute("SELECT count(*) FROM messages").fetchone()[0]
    finally:
        con.close()
    return {
        "bytes": pages * PAGE_BYTES,
        "free_share": round(free / pages, 4),
        "sessions": sessions,
        "messages": messages,
    }


class Words:
    """Text with the frequencies of language: few common words, many rare ones."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(20_000)]
        self.weights = [1.0 / (rank + 3) for rank in range(len(self.words))]
        self.cumulative = list(_running(self.weights))
        self.characters = [chr(chance.randint(0x4E00, 0x9FA5)) for _ in range(3_000)]
        self.character_cumulative = list(_running([1.0 / (rank + 8) for rank in range(3_000)]))

    def latin(self, count: int) -> str:
        """`count` words."""
        return " ".join(self.chance.choices(self.words, cum_weights=self.cumulative, k=count))

    def cjk(self, count: int) -> str:
        """Runs of Chinese characters with punctuation between them."""
        text = "".join(self.chance.choices(self.characters, cum_weights=self.character_cumulative, k=count))
        return "\uff0c".join(text[at : at + 9] for at in range(0, count, 9))

    def tool_output(self, size: int) -> str:
        """A listing, a log, a search result or a JSON document of about `size` characters."""
        kind, lines, length = self.chance.randrange(4), [], 0
        while length < size:
            number, words = self.chance.randint(1, 10**9), self.chance.choices(self.words, k=4)
            if kind == 0:
                line = f"-rw-r--r-- 1 user user {number % 10**6:>8} Jun {number % 28 + 1:>2} {words[0]}/{words[1]}.py"
            elif kind == 1:
                moment = f"2026-06-{number % 28 + 1:02} {number % 24:02}:{number % 60:02}"
                line = f"{moment} INFO {words[0]}.{words[1]}: {self.latin(6)}"
            elif kind == 2:
                line = f"src/{words[0]}/{words[1]}_{words[2]}.py:{number % 900}:    {words[3]} = {words[0]}({number})"
            else:
                fine = "true" if number % 2 else "false"
                line = f'{{"id": {number}, "{words[0]}": "{words[1]} {words[2]}", "ok": {fine}}}'
            lines.append(line)
            length += len(line) + 1
        return "\n".join(lines)


def _running(weights: list[float]) -> Iterator[float]:
    total = 0.0
    for weight in weights:
        total += weight
        yield total


def build(target: Path, recipe: Recipe) -> None:
    """Fill a new file; runs in a process of its own."""
    schema = _schema(target.parent)
    con = sqlite3.connect(target, isolation_level=None)
    con.execute("PRAGMA journal_mode=WAL").fetchall()
    con.execute("PRAGMA synchronous=OFF").fetchall()
    for sql in schema:
        con.execute(sql)
    con.execute("INSERT INTO schema_version VALUES (22)")
    words = Words(random.Random(recipe.seed))
    limit = recipe.megabytes * 1_000_000 // PAGE_BYTES
    number = 0
    while con.execute("PRAGMA page_count").fetchone()[0] < limit:
        con.execute("BEGIN IMMEDIATE")
        _session(con, words, number, recipe)
        con.execute("COMMIT")
        number += 1
    _make_recent(con, number)
    _delete_until_free(con, recipe.free_share)
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    con.close()


def _schema(folder: Path) -> list[str]:
    """Statements that make the tables, indexes and triggers of a real file, shadow tables left to FTS5."""
    with tempfile.TemporaryDirectory(dir=folder) as private:
        copy = Path(private) / "schema.db"
        copy.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
        con = sqlite3.connect(copy)
        rows = con.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        con.close()
    searches = [name for kind, name, sql in rows if kind == "table" and "USING fts5" in sql]
    shadows = {f"{name}_{part}" for name in searches for part in ("data", "idx", "content", "docsize", "config")}
    return [sql for _kind, name, sql in rows if name not in shadows and not name.startswith("sqlite_")]


def _session(con: sqlite3.Connection, words: Words, number: int, recipe: Recipe) -> None:
    """One session with its messages; nine of ten have ended."""
    chance = words.chance
    identity = f"bench_{number:06}"
    source = SOURCES[number % len(SOURCES)]
    # Started in the order of writing: the offset to NEWEST_SESSION_AT is applied when the number of sessions is known.
    started = float(number * SESSION_SPACING_SECONDS)
    ended = started + 1800.0 if number % 10 != 9 else None
    con.execute(
        "INSERT INTO sessions "
        "(id, source, model, system_prompt, started_at, ended_at, end_reason, message_count, title) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            identity,
            source,
            "model-a" if number % 3 else "model-b",
            words.latin(2000)[:12_000],
            started,
            ended,
            None if ended is None else "cli_close",
            recipe.messages,
            f"Session {number}: {words.latin(3)}" if number % 2 else None,
        ),
    )
    rows = []
    for index in range(recipe.messages):
        dice, calls, tool = chance.random(), None, None
        role = "user" if index % 2 == 0 else "assistant"
        if dice < 0.15:
            role, tool = "tool", "terminal"
            content = words.tool_output(chance.randint(2_000, 20_000))
        elif dice < 0.30:
            content = words.cjk(chance.randint(8, 80))
        elif dice < 0.31:
            content = "\x00json:" + json.dumps([{"type": "text", "text": words.latin(12)}])
        else:
            content = words.latin(chance.randint(4, 60))
        if role == "assistant" and dice > 0.85:
            calls = json.dumps(
                [{"id": f"call_{number}_{index}", "function": {"name": "terminal", "arguments": words.latin(4)}}]
            )
        rows.append((identity, role, content, tool, calls, started + index))
    con.executemany(
        "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp, active) "
        "VALUES (?,?,?,?,?,?,1)",
        rows,
    )


def _make_recent(con: sqlite3.Connection, count: int) -> None:
    """Move every session so that the newest starts at NEWEST_SESSION_AT. Messages keep their offsets: nothing here
    reads them, and an update of each row would rewrite both search indexes."""
    shift = NEWEST_SESSION_AT - (count - 1) * SESSION_SPACING_SECONDS
    con.execute("UPDATE sessions SET started_at = started_at + ?, ended_at = ended_at + ?", (shift, shift))


def _delete_until_free(con: sqlite3.Connection, share: float) -> None:
    """Delete ended sessions from the oldest on, as a prune does, until this share of the pages is free.

    Deletes leave postings behind until the indexes merge; hermes-agent merges them every thousand writes, so a large
    share is made with merges between the deletes, and the last deletes are left unmerged for the benchmark to find.
    """
    small = share < 0.1
    total = con.execute("SELECT count(*) FROM sessions").fetchone()[0]
    batch = 1 if small else max(1, int(total * share * 0.8))
    while share > 0:
        pages = con.execute("PRAGMA page_count").fetchone()[0]
        if con.execute("PRAGMA freelist_count").fetchone()[0] >= share * pages or not _delete_oldest(con, batch):
            break
        if not small:
            for index in ("messages_fts", "messages_fts_trigram"):
                con.execute(f"INSERT INTO {index}({index}) VALUES ('optimize')")
            batch = max(1, total // 50)
    if share > 0 and not small:
        _delete_oldest(con, max(1, total // 50))


def _delete_oldest(con: sqlite3.Connection, count: int) -> bool:
    """Delete `count` ended sessions; False when there is none left."""
    ids = con.execute(
        "SELECT id FROM sessions WHERE ended_at IS NOT NULL ORDER BY started_at LIMIT ?", (count,)
    ).fetchall()
    con.execute("BEGIN IMMEDIATE")
    con.executemany("DELETE FROM messages WHERE session_id = ?", ids)
    con.executemany("DELETE FROM sessions WHERE id = ?", ids)
    con.execute("COMMIT")
    return bool(ids)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build one store.")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--recipe", type=json.loads, required=True)
    asked = parser.parse_args()
    build(asked.target, Recipe(**asked.recipe))
