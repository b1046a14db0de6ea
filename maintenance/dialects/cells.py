"""One cell of a foreign file, read so that nothing in it can break the reader.

Invariant: no text column is fetched as text. SQLite hands over its bytes and its type, and this module decodes them:
bad UTF-8 becomes U+FFFD, a BLOB where text belongs is named by its size and never printed, and a time that is text,
infinite or outside the years 1 to 9999 is "not known" (None).

Not for: message content, which has an encoding of its own (`content.py`). Fetching text and catching the decoding error
was rejected: one bad cell would then hide its whole row, or the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# The seconds that `datetime` can show: 0001-01-01 to 9999-12-31 UTC.
EARLIEST = -62_135_596_800.0
LATEST = 253_402_300_799.0

# SQLite builds of old releases allow 999 bound values in a statement; a file may be read by one of those triggers too.
MAX_BOUND = 500


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes found in a cell where text belongs."""

    data: bytes

    def __str__(self) -> str:
        return f"<blob {len(self.data)} bytes>"


def cell(expression: str) -> str:
    """SQL for one cell as (type, value): text as its bytes, everything else as itself."""
    kind = f"typeof({expression})"
    return f"{kind}, CASE {kind} WHEN 'text' THEN CAST({expression} AS BLOB) ELSE {expression} END"


def text_cell(expression: str) -> str:
    """SQL for one cell that should be text: its bytes when it is text, NULL for NULL, else a short description."""
    return (
        f"CASE typeof({expression}) WHEN 'text' THEN CAST({expression} AS BLOB) WHEN 'null' THEN NULL"
        f" WHEN 'blob' THEN CAST('<blob ' || octet_length({expression}) || ' bytes>' AS BLOB)"
        f" ELSE CAST({expression} AS BLOB) END"
    )


def plain_text(expression: str) -> str:
    """SQL for a text cell inside a condition: NULL unless it really is text."""
    return f"CASE WHEN typeof({expression}) = 'text' THEN {expression} END"


def time_sql(expression: str) -> str:
    """SQL for a time in seconds: NULL unless it is a number that a calendar can show."""
    return (
        f"CASE WHEN typeof({expression}) IN ('real', 'integer')"
        f" AND {expression} BETWEEN {EARLIEST} AND {LATEST} THEN CAST({expression} AS REAL) END"
    )


def number_sql(expression: str) -> str:
    """SQL for a finite number, NULL for everything else."""
    return (
        f"CASE WHEN typeof({expression}) = 'integer' OR (typeof({expression}) = 'real'"
        f" AND {expression} BETWEEN -1e300 AND 1e300) THEN {expression} END"
    )


def newest_sql(*times: str) -> str:
    """SQL for the newest of several times that may each be NULL; NULL when all are."""
    if len(times) == 1:
        return times[0]
    floor = EARLIEST - 1
    return f"nullif(max({', '.join(f'coalesce({time}, {floor})' for time in times)}), {floor})"


def decode_text(value: object) -> str | None:
    """Text of a `text_cell`."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value)


def decode_key(value: object) -> str:
    """Text of an id. Bytes that are not UTF-8 survive a round trip through `key_bytes`."""
    return value.decode("utf-8", errors="surrogateescape") if isinstance(value, bytes) else str(value)


def key_bytes(key: str) -> bytes:
    """The bytes of an id, to be bound where the SQL says `CAST(? AS TEXT)`."""
    return key.encode("utf-8", errors="surrogateescape")


def decode_cell(kind: object, value: object) -> Any:
    """The value of a `cell` pair: str, Blob, int, float or None."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace") if kind == "text" else Blob(data=value)
    return value


def key_list(count: int) -> str:
    """SQL for an IN list of `count` ids bound as bytes."""
    return "(" + ", ".join(["CAST(? AS TEXT)"] * count) + ")"


def chunks(ids: Sequence[str], size: int = MAX_BOUND) -> Iterator[Sequence[str]]:
    """`ids` in pieces that fit into one statement's bound values."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
