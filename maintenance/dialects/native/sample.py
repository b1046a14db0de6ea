"""What kinds of content take the room of a native store, told from a sample of its messages.

Invariant: at most SAMPLE messages are looked at, spread over all ids, and only their record headers: the cost
is the same for a store of any size. Up to SAMPLE messages the figures are exact. Not for: sizes of tables and indexes,
which need a walk over every page.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from maintenance.dialects.base import ChannelSize

if TYPE_CHECKING:
    from hermes_state.engine import Reader

SAMPLE = 2_000
GOLDEN = 0.6180339887498949

# Bytes as kept: of a body that several messages share, each has its part.
_KEPT = (
    "coalesce(octet_length(m.content), 0) + coalesce((SELECT octet_length(b.frame) / max(1, (SELECT count(*) FROM"
    " messages AS o WHERE o.body_no = b.no)) FROM bodies AS b WHERE b.no = m.body_no), 0)"
)
_COLUMNS = (
    f"m.role, {_KEPT}, coalesce(octet_length(m.tool_calls), 0), coalesce(octet_length(m.reasoning), 0),"
    " coalesce(octet_length(m.extra), 0)"
)


def channels(reader: Reader) -> tuple[ChannelSize, ...]:
    """Bytes by kind of content as the file keeps them, largest first. Call it inside a snapshot."""
    total, low, high = reader.rows("SELECT count(*), min(id), max(id) FROM messages")[0]
    kept: Counter[str] = Counter()
    looked_at = 0
    for role, content, calls, reasoning, extra in _rows(reader, int(total), low, high):
        looked_at += 1
        kept[f"{role} content"] += content
        kept["tool calls"] += calls
        kept["reasoning"] += reasoning
        kept["other fields"] += extra
    factor = int(total) / looked_at if looked_at else 0.0
    sizes = {name: round(size * factor) for name, size in kept.items() if size}
    shared = reader.row("SELECT total(octet_length(body)) FROM shared_texts")
    if shared is not None and shared[0]:
        sizes["prompts and tool schemas"] = int(shared[0])
    everything = sum(sizes.values()) or 1
    exact = looked_at == int(total)
    return tuple(
        ChannelSize(name=name, bytes=size, share=size / everything, exact=exact or name == "prompts and tool schemas")
        for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    )


def spread(low: int, high: int, count: int) -> list[int]:
    """`count` ids from `low` to `high`, the same each time and in no step with anything that repeats in a conversation.

    Multiples of the golden ratio: every stretch gets its share. Even steps were rejected: every second message is of
    the same role.
    """
    return sorted({low + int((high - low + 1) * (number * GOLDEN % 1.0)) for number in range(1, count + 1)})


def _rows(reader: Reader, total: int, low: int, high: int) -> list[tuple[str, int, int, int, int]]:
    if total <= SAMPLE:
        return [(str(row[0]), *row[1:]) for row in reader.rows(f"SELECT {_COLUMNS} FROM messages AS m")]
    found: dict[int, tuple[str, int, int, int, int]] = {}
    for start in spread(low, high, SAMPLE):
        row = reader.row(f"SELECT m.id, {_COLUMNS} FROM messages AS m WHERE m.id >= ? ORDER BY m.id LIMIT 1", (start,))
        if row is not None:
            found[int(row[0])] = (str(row[1]), row[2], row[3], row[4], row[5])
    return list(found.values())
