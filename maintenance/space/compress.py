"""Compressing the bodies of messages that nobody reads any more, beside whoever uses the store.

Invariant: a body is replaced only after the same transaction read it back from its frame and every message of the
batch matched its own check; a mismatch rolls the batch back and stops the run. A message whose check failed before is
left alone and counted. A row that became small is taken out and put back as it is, because SQLite leaves the rest of
its page empty otherwise (measured on rows of 3.9 KB: 81 % of the room unused). Each transaction stays near 10 ms, and
what it did is not done again, so a run that was killed goes on where it stopped.

Not for: choosing the codec (`hermes_state.conversation.bodies`). Compressing on the hot path was rejected: an append
would pay for what may never be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hermes_state.conversation.bodies import COMPRESS_BYTES, compress_rows
from hermes_state.engine import frames
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.checks import failed_rows
from maintenance.quoting import quoted
from maintenance.space.copy_back import keep_short

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Store, Transaction

Compress = Literal["cold", "always", "never"]

# How far `active_at` may be behind the newest message.
ACTIVITY_SLACK_SECONDS = 60.0
# About 10 ms of compression, reading back and checking together (measured: 1 MB takes 13 to 17 ms).
FIRST_BYTES = 64 * 1024
LEAST_BYTES = 16 * 1024
MOST_BYTES = 4 * 1024 * 1024
MOST_ROWS = 200
BUDGET_SECONDS = 0.010
LONGEST_REST_SECONDS = 1.0
SHOWN = 20  # messages that are named; all are counted


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What a run compressed."""

    rows: int = 0  # messages whose body became a frame, or joined one
    raw_bytes: int = 0  # bytes of those bodies before
    stored_bytes: int = 0  # bytes of their frames
    left_alone: tuple[int, ...] = ()  # messages whose check failed before anything was done; the first 20 ids
    failed: int = 0  # how many such messages there are
    transactions: int = 0  # transactions that it took
    longest_seconds: float = 0.0  # longest time that one of them held the write lock

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "message_count": self.rows,
            "raw_bytes": self.raw_bytes,
            "stored_bytes": self.stored_bytes,
            "failed_check_count": self.failed,
            "failed_check_messages": list(self.left_alone),
            "transaction_count": self.transactions,
            "longest_hold_seconds": round(self.longest_seconds, 4),
        }


def cutoff(mode: Compress, days: float, now: float) -> float | None:
    """Sessions last active before this are compressed: epoch seconds, or None for nothing at all."""
    if mode == "never":
        return None
    return float("inf") if mode == "always" else now - days * 86_400.0


def compressible(reader: Reader, before: float, after_id: int, limit: int) -> list[tuple[int, int]]:
    """Id and bytes of up to `limit` messages above `after_id` whose body is plain, large enough and cold; by id."""
    rows = reader.rows(
        "SELECT m.id, coalesce(b.raw_bytes, octet_length(m.content)) FROM messages AS m"
        " JOIN sessions AS s ON s.no = m.session_no LEFT JOIN bodies AS b ON b.no = m.body_no"
        " WHERE m.id > ? AND s.active_at < ? AND m.content_type IN ('text', 'json', 'bytes')"
        f" AND CASE WHEN m.body_no IS NULL THEN octet_length(m.content) >= {COMPRESS_BYTES}"
        f" ELSE b.codec = 'plain' AND b.raw_bytes >= {COMPRESS_BYTES} END ORDER BY m.id LIMIT ?",
        (after_id, before - ACTIVITY_SLACK_SECONDS, limit),
    )
    return [(int(key), int(size)) for key, size in rows]


def how_much(reader: Reader, before: float) -> tuple[int, int]:
    """Messages that `compressible` would give, and bytes of their bodies; one pass over the messages."""
    count = total = after = 0
    while found := compressible(reader, before, after, 5000):
        count += len(found)
        total += sum(size for _key, size in found)
        after = found[-1][0]
    return count, total


def compress(
    store: Store, before: float, clock: Clock, *, advance: Callable[[int], None] = lambda _bytes: None
) -> Compressed:
    """Compress everything that is cold. `advance` hears of the raw bytes of each batch that was looked at."""
    done = Compressed()
    after, budget = 0, FIRST_BYTES
    # Loads the compressor, which takes as long as a whole transaction should.
    frames.compress(b"")
    while True:
        candidates = compressible(store, before, after, MOST_ROWS)
        if not candidates:
            return done
        batch = _batch(candidates, budget)
        after = batch[-1][0]
        ids = [key for key, _size in batch]
        with store.snapshot():
            damaged = set(failed_rows(store, ids))
        sound = [key for key in ids if key not in damaged]
        if damaged:
            left = (*done.left_alone, *sorted(damaged))[:SHOWN]
            done = replace(done, left_alone=left, failed=done.failed + len(damaged))
        if sound:
            asked = clock.monotonic()
            # Either form of a body is whole, so nothing is lost when a power cut takes the last batches back.
            with store.transaction(durability="process") as tx:
                began = clock.monotonic()
                inside = _in_their_rows(tx, sound)
                result = compress_rows(tx, sound)
                _pack(tx, inside)
                _require_same(tx, sound)
            held = clock.monotonic() - began
            done = replace(
                done,
                rows=done.rows + result.rows,
                raw_bytes=done.raw_bytes + result.raw_bytes,
                stored_bytes=done.stored_bytes + result.stored_bytes,
                transactions=done.transactions + 1,
                longest_seconds=max(done.longest_seconds, held),
            )
            keep_short(store)
            budget = _next_budget(budget, sum(size for _key, size in batch), held)
            # Who waited while the lock was held gets it for as long; our own wait shows how busy the others are.
            clock.sleep(min(LONGEST_REST_SECONDS, held + (began - asked)))
        advance(sum(size for _key, size in batch))


def _batch(candidates: Sequence[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    """The first of them that together stay within the budget; one that is larger by itself goes alone."""
    batch: list[tuple[int, int]] = []
    total = 0
    for key, size in candidates:
        if batch and total + size > budget:
            break
        batch.append((key, size))
        total += size
    return batch


def _next_budget(budget: int, size: int, held: float) -> int:
    """At most double, so that one lucky transaction does not make the next one long."""
    if held <= 0 or size <= 0:
        return budget
    return int(max(LEAST_BYTES, min(MOST_BYTES, 2 * budget, size * BUDGET_SECONDS / held)))


def _in_their_rows(tx: Transaction, ids: Sequence[int]) -> list[int]:
    marks = ", ".join("?" * len(ids))
    return [int(key) for (key,) in tx.rows(f"SELECT id FROM messages WHERE id IN ({marks}) AND body_no IS NULL", ids)]


def _pack(tx: Transaction, ids: Sequence[int]) -> None:
    """Put the rows among these whose body left them where they take no more room than they need."""
    if not ids:
        return
    columns = ", ".join(quoted(str(row[1])) for row in tx.rows("PRAGMA table_info(messages)"))
    marks = ", ".join("?" * len(ids))
    rows = tx.rows(f"SELECT {columns} FROM messages WHERE id IN ({marks}) AND body_no IS NOT NULL ORDER BY id", ids)
    if rows:
        tx.execute(f"DELETE FROM messages WHERE id IN ({marks}) AND body_no IS NOT NULL", ids)
        tx.executemany(f"INSERT INTO messages ({columns}) VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _require_same(tx: Transaction, ids: Sequence[int]) -> None:
    marks = ", ".join("?" * len(ids))
    here = {int(key) for (key,) in tx.rows(f"SELECT id FROM messages WHERE id IN ({marks})", ids)}
    failed = sorted(set(ids) - here) or failed_rows(tx, ids)
    if failed:
        raise Corrupt(
            f"Message {failed[0]} of {tx.path} did not come back from its frame as it was; the batch was undone.",
            hint=f"Report this, and run `hermes-state doctor --deep --db {shell_word(tx.path)}`.",
            path=tx.path,
            messages=tuple(failed),
            search_index=False,
        )
