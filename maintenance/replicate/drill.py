"""Restoring a replica to a temporary place, and proof that it is the store.

Invariant: what was restored is opened, its pages and everything else examined by `doctor`, and every table compared by
count and hash with a read snapshot of the live store. While others write, the two are never of one moment: then every
message that both should have is compared one by one, and what the replica lacks must be the newest messages only, no
older than the lag that is allowed. The restored copy is gone afterwards.

Not for: the store itself, which is only read. Believing Litestream's status was rejected: after a swap of the file it
said ok for a replica that had lost rows (measured).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine import open_read
from hermes_state.errors import ReplicationFailed, StateError
from maintenance.backups.content import Content, content_of
from maintenance.dialects.native.shape import native_identity
from maintenance.gate.doors import look as scan_of
from maintenance.gate.doors import require_file
from maintenance.output.text import human_bytes, plural
from maintenance.quoting import quoted
from maintenance.recovery.captures.foreign import SAID
from maintenance.replicate.config import Config, require_names, usable
from maintenance.replicate.program import query, require_program
from maintenance.replicate.refusing import running, works_here
from maintenance.space.disk import Need, require_room, rooms

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore
    from maintenance.store_context import Context

# Litestream's own tables change when it copies.
LITESTREAMS = ("_litestream_seq", "_litestream_lock")
MAX_LAG_SECONDS = 60.0
# How long a running Litestream gets to bring what was committed before the drill.
WAIT_SECONDS = 15.0
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Messages of the live store and of the replica, told apart by id."""

    # ids up to the replica's newest that only the live store has
    holes: int
    # ids of both with another content
    differing: int
    # messages newer than the replica's newest
    behind: int
    # time of the oldest and newest of those, epoch seconds UTC
    behind_since: float | None
    behind_until: float | None
    # newest id of each side, None without messages
    newest_live: int | None
    newest_replica: int | None


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """What the drill showed."""

    # the store
    store: Path
    # whether the replica gives the store back
    sound: bool
    # whether every table is the same, by count and hash
    equal: bool
    # what is wrong, whole sentences; empty when it is sound
    problems: tuple[str, ...]
    # what doctor says of the restored copy beyond damage
    findings: tuple[str, ...]
    # sessions and messages that came back; None when it cannot be opened
    sessions: int | None
    messages: int | None
    # messages that the replica lacks, and how old the oldest of them is
    behind: int
    lag_seconds: float
    newest_live_id: int | None
    newest_replica_id: int | None
    # processes of Litestream that have the store open
    litestream: tuple[int, ...]
    # how often it was restored, and seconds in all
    rounds: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """0, or 65 when the replica does not give the store back."""
        return 0 if self.sound else 65


def drill(
    ctx: Context, config: Config, *, max_lag_seconds: float = MAX_LAG_SECONDS, wait_seconds: float = WAIT_SECONDS,
    say: Callable[[str], None] = lambda _line: None,
) -> Drilled:
    """Restore the replica beside the store and compare. Waits while a running Litestream may still bring the rest.

    Raises `Refused` without the extra, `InsufficientSpace`, `ReplicationFailed` when Litestream does not take the
    configuration, and what reading the store raises. A replica that cannot be restored is a result, not an error.
    """
    require_program()
    require_file(ctx.db)
    began = time.monotonic()
    size = sum(path.stat().st_size for path in (ctx.db, Path(f"{ctx.db}-wal")) if path.exists())
    require_room(
        rooms([Need(directory=ctx.db.parent, bytes=2 * size + _SPARE_BYTES, what="the restored copy")]),
        what=f"A drill of the replica of {ctx.db}",
    )
    with usable(config) as told:
        require_names(told, ctx.db)
        rounds = 0
        while True:
            rounds += 1
            others = running(scan_of(ctx.db))
            say("restoring the replica")
            found = _once(ctx, told, max_lag_seconds, say)
            over = time.monotonic() - began > wait_seconds
            may_follow = others or works_here(ctx.db)
            if found.equal or over or not may_follow or (found.sound and not found.behind):
                break
            # What is missing may be on its way: Litestream copies once a second.
            time.sleep(1.0)
    return _said(ctx, found, others, rounds, time.monotonic() - began)


@dataclass(frozen=True, kw_only=True)
class _Found:
    content: Content | None
    equal: bool
    sound: bool
    problems: tuple[str, ...]
    findings: tuple[str, ...]
    messages: Messages | None
    behind: int
    lag_seconds: float


def _said(ctx: Context, found: _Found, others: tuple[int, ...], rounds: int, seconds: float) -> Drilled:
    problems = found.problems
    if problems and not others:
        problems = (*problems, "No Litestream runs on the store now, as far as can be seen.")
    return Drilled(
        store=ctx.db, sound=found.sound, equal=found.equal, problems=problems, findings=found.findings,
        sessions=found.content.sessions if found.content else None,
        messages=found.content.messages if found.content else None, behind=found.behind,
        lag_seconds=found.lag_seconds, newest_live_id=found.messages.newest_live if found.messages else None,
        newest_replica_id=found.messages.newest_replica if found.messages else None, litestream=others, rounds=rounds,
        seconds=seconds,
    )


def _once(ctx: Context, config: Config, max_lag: float, say: Callable[[str], None]) -> _Found:
    before = _content(ctx)
    with tempfile.TemporaryDirectory(prefix=f".drill-{os.getpid()}-", dir=ctx.db.parent) as folder:
        copy = Path(folder) / ctx.db.name
        try:
            query(["restore", *config.arguments(), "-o", str(copy), str(ctx.db)], ctx.db, timeout=None)
        except ReplicationFailed as error:
            return _nothing(f"Litestream cannot restore it: {_without(error.message, copy)}")
        if not copy.exists():
            return _nothing("Litestream restored nothing: there may be no replica yet.")
        say(f"checking {human_bytes(copy.stat().st_size)}")
        damage, findings = _examined(ctx, copy)
        try:
            with open_read(copy, search_modules=False, clock=ctx.clock) as replica:
                return _compare(ctx, before, replica, damage, findings, max_lag)
        except StateError as error:
            if error.exit_code != 65:
                raise
            problems = damage or (f"The restored copy cannot be read: {_without(error.message, copy)}",)
            return _nothing(*problems, findings=findings)


def _nothing(*problems: str, findings: tuple[str, ...] = ()) -> _Found:
    """A replica that gives nothing back."""
    return _Found(
        content=None, equal=False, sound=False, problems=problems, findings=findings, messages=None, behind=0,
        lag_seconds=0.0,
    )


def _compare(
    ctx: Context, before: Content, replica: ReadStore, damage: tuple[str, ...], findings: tuple[str, ...],
    max_lag: float,
) -> _Found:
    theirs = _ours(content_of(replica))
    with open_read(ctx.db, search_modules=False, clock=ctx.clock) as live, live.snapshot():
        after = _ours(content_of(live))
        equal = not before.differs(theirs) or not after.differs(theirs)
        messages = _messages(live, replica)
    still = not before.differs(after)
    problems = list(damage)
    lag = 0.0
    if not equal:
        if messages.behind_since is not None:
            lag = max(0.0, ctx.clock.now() - messages.behind_since)
        if messages.holes:
            problems.append(f"The replica lacks {plural(messages.holes, 'message')} between others that it has.")
        if messages.differing:
            problems.append(f"{plural(messages.differing, 'message')} came back with another content.")
        if messages.behind and lag > max_lag:
            problems.append(
                f"The replica lacks the newest {plural(messages.behind, 'message')}, the oldest of them "
                f"{lag:.0f} s old."
            )
        if still and not messages.behind and not problems:
            # Nobody wrote during the drill, so there is nothing that could explain it.
            problems.append(f"The replica is not what the store is: {after.differs(theirs)}.")
    return _Found(
        content=theirs, equal=equal, sound=not problems, problems=tuple(problems), findings=findings,
        messages=messages, behind=0 if equal else messages.behind, lag_seconds=lag,
    )


def _content(ctx: Context) -> Content:
    with open_read(ctx.db, search_modules=False, clock=ctx.clock) as live, live.snapshot():
        return _ours(content_of(live))


def _ours(content: Content) -> Content:
    from dataclasses import replace

    return replace(content, tables={name: one for name, one in content.tables.items() if name not in LITESTREAMS})


def _examined(ctx: Context, copy: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What doctor calls damage in the restored copy, and its warnings."""
    from maintenance.doctor.examine import Options, examine
    from maintenance.doctor.findings import Severity

    found = examine(copy, copy.parent, Options(), clock=ctx.clock)
    said = [(finding.severity, _without(finding.sentence, copy)) for finding in found.findings]
    return (
        tuple(sentence for severity, sentence in said if severity is Severity.DAMAGE),
        tuple(sentence for severity, sentence in said if severity is Severity.WARNING),
    )


def _without(sentence: str, copy: Path) -> str:
    return sentence.replace(str(copy), "the restored copy")


def _messages(live: Reader, replica: Reader) -> Messages:
    """Compare messages id by id, in memory of two rows."""
    newest = replica.row("SELECT max(id) FROM messages")
    last = newest[0] if newest and isinstance(newest[0], int) else None
    holes = differing = behind = 0
    since: float | None = None
    until: float | None = None
    highest: int | None = None
    theirs = _marks(replica)
    other = next(theirs, None)
    for number, at, mark in _marks(live):
        highest = number
        while other is not None and other[0] < number:
            other = next(theirs, None)
        if other is not None and other[0] == number:
            differing += other[2] != mark
        elif last is not None and number <= last:
            holes += 1
        else:
            behind += 1
            if isinstance(at, (int, float)):
                since = float(at) if since is None else min(since, float(at))
                until = float(at) if until is None else max(until, float(at))
    return Messages(
        holes=holes, differing=differing, behind=behind, behind_since=since, behind_until=until, newest_live=highest,
        newest_replica=last,
    )


def _marks(reader: Reader) -> Iterator[tuple[int, Any, bytes]]:
    """Id, time and a hash of what was said, of each message in the order of ids."""
    if native_identity(reader) is not None:
        yield from (
            (number, at, repr((session, role, check)).encode()) for number, at, session, role, check in reader.iterate(
                "SELECT id, created_at, session_no, role, row_check FROM messages ORDER BY id"
            )
        )
        return
    there = {str(row[1]) for row in reader.rows("PRAGMA table_info(messages)")}
    # Text as bytes: it may not be UTF-8.
    cells = ", ".join(f"CAST({quoted(name)} AS BLOB)" for name in SAID if name in there)
    for number, at, *said in reader.iterate(f"SELECT id, timestamp, {cells} FROM messages ORDER BY id"):
        yield number, at, hashlib.blake2b(repr(said).encode(), digest_size=16).digest()
