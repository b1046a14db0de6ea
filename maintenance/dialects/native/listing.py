"""The first pages of a list of a large native store, read without looking at the rest of it.

Invariant: the entries and their order are those of `selection.select` for the same filters; what would need a pass over
every session (how many match, how many are left out) is not told. Used only above COUNTED sessions: below, the whole is
read in a few milliseconds and every figure is exact.

Not for: filters on a row's columns. Counting in the background was rejected: a figure that is sometimes there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maintenance.dialects.cells import key_bytes, key_list

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.selection import Filters

# Reading all facts takes about 15 microseconds a session.
COUNTED = 1_000


def fits(filters: Filters) -> bool:
    """Whether the bounded list can say what these filters mean: at most one source, and the usual things left out."""
    from dataclasses import replace

    plain = replace(filters, sources=())
    return plain.selects_everything and len(filters.sources) <= 1 and not (
        filters.include_delegates or filters.include_hidden
    )


def is_large(reader: Reader) -> bool:
    """Whether the store has more sessions than a page counts; `no` is never used twice, so this errs to the large."""
    row = reader.row("SELECT max(no) FROM sessions")
    return row is not None and row[0] is not None and int(row[0]) > COUNTED


def page(reader: Reader, filters: Filters, *, limit: int, offset: int) -> list[tuple[str, ...]]:
    """The segments of each entry, root first; one entry more than `limit` says that there are more."""
    from hermes_state.conversation import listing
    from hermes_state.conversation.lineage import chain_numbers

    wanted = listing.Filter.of(
        source=filters.sources[0] if filters.sources else None,
        exclude_sources=[name for name in filters.hidden_sources if name not in filters.sources],
        archived=None if filters.include_archived else False,
        include_children=False,
        cwd=None,
        title=None,
        search=None,
        before=None,
        after=None,
    )
    found: list[tuple[str, ...]] = []
    for summary in listing.page(reader, wanted, limit=limit + 1, offset=offset):
        if summary.sessions == 1:
            found.append((summary.id,))
            continue
        row = reader.row(f"SELECT no FROM sessions WHERE id IN {key_list(1)}", (key_bytes(summary.id),))
        numbers = chain_numbers(reader, int(row[0])) if row is not None else []
        found.append(tuple(str(reader.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0][0]) for no in numbers))
    return found
