"""Whether a native store has the tables of compaction yet, and its generations as rows.

Invariant: a file of an earlier schema step is read as one in which nothing was ever compacted; it is never changed for
the sake of reading it.

Not for: what a generation makes of a view (`hermes_state.compaction`), which one function computes for everybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maintenance.dialects.cells import chunks, key_bytes, key_list

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hermes_state.engine import Reader

TABLES = ("compactions", "compaction_heads", "compaction_clips", "model_windows", "token_factors")
# Columns of `compactions` that are facts about a pass, in the order of the schema; keys and the lease are not.
PASS_COLUMNS = (
    "generation", "state", "cut_at", "watermark", "edit_mark", "anchors", "source_rows", "source_digest", "summary",
    "form", "summarizer", "prompt_digest", "window", "tokenizer", "tokens_fixed", "tokens_reserved", "tokens_before",
    "tokens_after", "policy", "reason", "turn", "model", "error", "owner", "started_at", "ended_at",
)

# Codes in the `error` of a finished generation whose messages are known not to be those that its digest was made of: a
# recovery found only some of them; a scrub that replaces some is at work, or was killed.
SOURCE_LOST, SCRUBBING = "source_lost", "scrubbing"
NOTED = frozenset({SOURCE_LOST, SCRUBBING})


def has_compactions(reader: Reader) -> bool:
    """Whether the file has these tables: they came with schema step 2."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'compaction_heads'") is not None


def count(reader: Reader, ids: Sequence[str]) -> int:
    """How many rows these sessions have, of any state."""
    if not has_compactions(reader):
        return 0
    return sum(
        int(reader.rows(
            "SELECT count(*) FROM compactions AS c JOIN sessions AS s ON s.no = c.session_no"
            f" WHERE s.id IN {key_list(len(part))}", [key_bytes(key) for key in part],
        )[0][0])
        for part in chunks(ids)
    )


def compactions_lacking(copy: Any, live: Reader, deleted: Collection[str]) -> int:
    """How many summaries of a copy of the store the store lacks, those of deleted sessions left out."""
    if not has_compactions(copy):
        return 0
    sql = (
        "SELECT s.id, c.generation, c.started_at FROM compactions AS c JOIN sessions AS s ON s.no = c.session_no"
        " WHERE c.summary IS NOT NULL"
    )
    here = set(live.rows(sql)) if has_compactions(live) else set()
    return sum(row[0] not in deleted and tuple(row) not in here for row in copy.rows(sql))


def taken_out(reader: Reader, session_no: int, positions: Iterable[int]) -> dict[int, int]:
    """Which of these positions of a session's view a compaction summarises: the number of the generation that did."""
    if not has_compactions(reader) or reader.row(
        "SELECT 1 FROM compaction_heads WHERE session_no = ? AND compaction_id IS NOT NULL", (session_no,)
    ) is None:
        return {}
    from hermes_state.compaction.generations import hidden_by

    return hidden_by(reader, session_no, positions)


def generations(reader: Reader, session_no: int) -> list[dict[str, Any]]:
    """The rows of one session, oldest first, each with `id`, `parent_id` and the columns of `PASS_COLUMNS`."""
    return _rows(reader, "session_no = ?", (session_no,))


def chain(reader: Reader, compaction_id: int) -> list[dict[str, Any]]:
    """A row and those that it was made from, newest first; ends in a circle too. Each has `session_no` as well."""
    found: list[dict[str, Any]] = []
    seen: set[int] = set()
    current: int | None = compaction_id
    while current is not None and current not in seen:
        seen.add(current)
        rows = _rows(reader, "id = ?", (current,))
        if not rows:
            break
        found += rows
        current = rows[0]["parent_id"]
    return found


def clips(reader: Reader, compaction_id: int) -> list[tuple[int, str]]:
    """Positions and JSON of what a generation shows shortened, in order."""
    return [
        (int(position), str(clip)) for position, clip in reader.rows(
            "SELECT position, clip FROM compaction_clips WHERE compaction_id = ? ORDER BY position", (compaction_id,)
        )
    ]


def head(reader: Reader, session_no: int) -> tuple[int | None, int] | None:
    """(generation's id or None, moves) of a session; None when it was never compacted."""
    row = reader.row("SELECT compaction_id, moves FROM compaction_heads WHERE session_no = ?", (session_no,))
    return None if row is None else (row[0], int(row[1]))


def _rows(reader: Reader, where: str, params: Sequence[Any]) -> list[dict[str, Any]]:
    names = ("id", "session_no", "parent_id", *PASS_COLUMNS)
    rows = reader.rows(
        f"SELECT {', '.join(names)} FROM compactions WHERE {where} ORDER BY session_no, generation", params
    )
    return [dict(zip(names, row, strict=True)) for row in rows]
