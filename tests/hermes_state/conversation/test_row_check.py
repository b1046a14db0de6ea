"""The check that every row carries: what differs differs in it, and it never changes."""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_state.conversation.fields import encode
from hermes_state.conversation.row_check import check_of, named_texts, raw_bytes, row_check

ROW = st.tuples(
    st.integers(1, 2), st.sampled_from(["user", "tool"]), st.sampled_from([None, "text", "bytes"]),
    st.sampled_from([None, "", "ab", b"ab", 1, 1.0]),
    *[st.sampled_from([None, "", "a", "1:a", "i1:a"])] * 4, st.sampled_from([None, 0, 1]),
    *[st.sampled_from([None, "a", "i1:a"])] * 3, st.sampled_from([0.0, 1.5]), st.sampled_from([None, "{}"]),
)


@given(ROW, ROW)
def test_rows_that_differ_have_checks_that_differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    def said(row: tuple[Any, ...]) -> tuple[Any, ...]:
        # Bytes and text of the same bytes differ by their type column; without one they are the same body.
        return (*row[:3], raw_bytes(row[3]), *row[4:])

    assert (row_check(*one) == row_check(*other)) == (said(one) == said(other))


def test_the_check_of_a_row_never_changes() -> None:
    """A stored check is compared with one computed years later: these values are part of the format."""
    assert row_check(
        1, "user", "text", "hello", None, None, None, None, None, None, None, None, 1_700_000_000.25, None
    ) == 6244353889073969786
    assert row_check(
        7, "tool", "json", '{"a":1}', "grep", "call_1", "[]", "stop", 5, "語", "42", "key", 0.0, "{}"
    ) == -636806560916827883
    assert row_check(
        7, "tool", "text", "x" * 5000, "grep", None, None, None, None, None, None, None, 0.0, None
    ) == -6510292365732103938


def test_the_check_is_what_its_description_says() -> None:
    """So that a program without this library can verify a row."""
    head = struct.pack(">qd", 7, 1.5)
    short = head + "5 text 4:tool16:n4:grepi6:call_1語".encode()
    body = b"x" * 5000
    long = head + f"#5000 {eight(body)} None bytes 4:user0:".encode()

    checks = [
        row_check(7, "tool", "text", "語", "grep", "call_1", None, None, 5, None, None, None, 1.5, None),
        row_check(7, "user", "bytes", body, None, None, None, None, None, None, None, None, 1.5, None),
    ]
    assert checks == [eight(short), eight(long)]


def eight(covered: bytes) -> int:
    return int.from_bytes(sha256(covered).digest()[:8], "big", signed=True)


def test_the_append_computes_the_same_check() -> None:
    new = encode(1.0, "assistant", "語", reasoning="why", client_key="k", extra={"a": 1})

    assert check_of(3, new.role, new.content_type, new.content, new.named, new.token_count, new.at) == row_check(
        3, "assistant", "text", "語", None, None, None, None, None, "why", None, "k", 1.0, '{"a":1}'
    )
    assert named_texts(None, None, None, None, None, None, None, None) == ""
    assert named_texts("a", None, None, None, None, None, None, None) == "n1:a"
