"""What is to be seen: ranges on one axis, with and without what a session shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.conversation.lineage import Segment
from hermes_state.conversation.view import Part, View, merged, view_of, without
from hermes_state.store import Store

LAST = 2**63 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with sessions 1, 2 and 3."""
    with open_store(path=tmp_path / "state.db") as opened:
        for name in "abc":
            opened.sessions.create(id=name, source="cli")
        yield opened


def view(store: Store, segments: Sequence[Segment], edits: Sequence[tuple[Any, ...]] = ()) -> View:
    """The view of `segments` with edits `(session_no, id, action, first, last, undoes)`."""
    store.core.write(lambda tx: tx.executemany(
        "INSERT INTO view_edits (session_no, id, action, from_seq, to_seq, undoes, made_at)"
        " VALUES (?, ?, ?, ?, ?, ?, 0)",
        edits,
    ))
    with store.core.reader() as reader:
        return view_of(reader, segments)


def test_shared_messages_stand_before_the_first_own_one(store: Store) -> None:
    found = view(store, [
        Segment(session_no=1, upto_seq=5), Segment(session_no=2, upto_seq=3), Segment(session_no=3)
    ])

    assert found.parts == (
        Part(session_no=1, first=-7, last=-3, offset=-8), Part(session_no=2, first=-2, last=0, offset=-3),
        Part(session_no=3, first=1, last=LAST, offset=0),
    )
    assert found.visible() == [(1, 1, 5, -8), (2, 1, 3, -3), (3, 1, LAST, 0)]


def test_an_edit_of_a_parent_counts_as_it_was_when_the_branch_began(store: Store) -> None:
    found = view(store, [Segment(session_no=1, upto_seq=5, upto_edit=2), Segment(session_no=2)], [
        (1, 1, "rewind", 2, 9, None),  # reaches past what is shared
        (1, 2, "compact", 1, 1, None),
        (1, 3, "rewind", 1, 1, None),  # made later than the branch
        (1, 4, "restore", None, None, 2),  # later than the branch too
        (2, 5, "rewind", -2, 1, None),  # of the branch, into what it shares
    ])

    assert (found.rewound, found.compacted) == (((-3, 1),), ((-4, -4),))
    assert found.visible("rewind") == [(1, 1, 1, -5), (2, 2, LAST, 0)]
    assert found.visible("rewind", "compact") == [(2, 2, LAST, 0)]
    assert [found.hidden(position) for position in (-4, -3, 1, 2)] == ["compact", "rewind", "rewind", None]


RANGES = st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 5)).map(lambda r: (r[0], r[0] + r[1])), max_size=6)


@given(RANGES, st.integers(-10, 10), st.integers(-10, 10))
def test_what_ranges_leave_is_what_no_range_has(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    gone = {position for start, end in ranges for position in range(start, end + 1)}
    left = [p for start, end in without(first, last, merged(ranges)) for p in range(start, end + 1)]

    assert left == [position for position in range(first, last + 1) if position not in gone]
