"""A line of the spool: whole, or not an item."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.spool.lines import Item, item_of, line_of

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8,
)
items = st.builds(
    Item, id=st.text(min_size=1), kind=st.text(), at=st.floats(allow_nan=False, allow_infinity=False),
    store_id=st.none() | st.text(), cause=st.text(), payload=st.dictionaries(st.text(), values, max_size=4),
)


@given(items)
def test_an_item_reads_back_as_it_was_given(item: Item) -> None:
    line = line_of(item)

    assert item_of(line) == item
    assert line.count(b"\n") == 1 and line.endswith(b"\n")


@given(items, st.data())
def test_a_line_that_was_cut_or_altered_anywhere_is_no_item(item: Item, data: st.DataObject) -> None:
    line = line_of(item)
    at = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(ValueError, match=r"."):
        item_of(line[:at])
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[at]))
    with pytest.raises(ValueError, match=r"."):
        item_of(line[:at] + bytes([other]) + line[at + 1 :])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"format":1', "it was not written to its end"),
        (b"\xff\n", "it is not JSON"),
        (b'{"format":1}\n', "its check does not fit"),
        (b'{"a":1,"check":"0123456789abcdef"}\n', "its check does not fit"),
    ],
)
def test_why_a_line_is_no_item_is_said(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        item_of(line)
    assert str(raised.value) == reason
