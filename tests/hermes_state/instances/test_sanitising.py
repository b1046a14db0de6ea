"""What of a payload reaches a row (T1.53, T1.54)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.instances.sanitising import FIELDS, ITEM_FIELDS, MOST_CODE_POINTS, REQUEST_FIELDS, bounded, sanitised
from hermes_state.testing import temporary_store

SECRET = "sk-nobody-may-read-this"


def test_whitelist_is_this_table() -> None:
    assert ITEM_FIELDS == {
        "command_execution": ("command", "cwd"), "file_change": ("path",), "web_search": ("query",),
        "image_view": ("path",), "mcp_tool_call": ("server", "operation"),
    }
    assert set(REQUEST_FIELDS.values()) == {("command", "cwd"), ("path",)}
    assert not set(ITEM_FIELDS) & set(REQUEST_FIELDS)


def payload(kind: str) -> dict[str, Any]:
    """Everything that is allowed, and 50 keys more with a secret at every depth to 3."""
    extra: dict[str, Any] = {f"extra {number}": {"a": [{"token": SECRET}], "b": SECRET} for number in range(49)}
    extra["env"] = {"deep": {"deeper": {"API_KEY": SECRET}}}
    return extra | {name: f"the {name}" for name in FIELDS.get(kind, ())}


def test_secret_at_any_depth_is_in_no_byte_of_the_store(tmp_path: Path, fake_clock: FakeClock) -> None:
    """T1.53, R12: for every type, one that is not known, and payloads that are no objects."""
    kinds = [*FIELDS, "unknown", "reasoning", ""]
    with temporary_store(tmp_path, clock=fake_clock) as store:
        path = store.path
        for number, kind in enumerate(kinds):
            kept = sanitised(kind, payload(kind))
            assert kept == {name: f"the {name}" for name in FIELDS.get(kind, ())}
            store.outbox.append(
                dedupe_id=f"item {number}", kind="item", transport="t", payload=kept, policy="at_least_once"
            )
    found = b"".join(one.read_bytes() for one in sorted(path.parent.iterdir()) if one.is_file())
    assert b"the operation" in found  # the bytes looked at are those of the rows
    assert SECRET.encode() not in found


@pytest.mark.parametrize("kind", [*FIELDS, "unknown"])
@pytest.mark.parametrize("value", [{"token": SECRET}, [SECRET], 7, None, True, SECRET.encode()])
def test_allowed_field_with_something_else_than_text_is_dropped(kind: str, value: object) -> None:
    """T1.53: a name on the whitelist lets nothing nested through."""
    assert sanitised(kind, dict.fromkeys(FIELDS.get(kind, ("command",)), value)) == {}
    assert sanitised(kind, [SECRET]) == sanitised(kind, SECRET) == sanitised(kind, None) == {}


@pytest.mark.parametrize("one", ["a", "\u00e9", "\u4e2d", "\U0001f600", "\0"])
def test_4096_code_points_are_kept_and_4097_are_marked_as_truncated(one: str) -> None:
    """T1.54, R12: code points count, whatever a character takes in UTF-8 or UTF-16; longer is cut, never dropped."""
    assert bounded(one * MOST_CODE_POINTS) == one * 4096
    assert bounded(one * 4097) == {"text": one * 4096, "truncated": True, "length": 4097}
    assert sanitised("web_search", {"query": one * 10_000}) == {
        "query": {"text": one * 4096, "truncated": True, "length": 10_000}
    }


def test_what_utf8_cannot_say_is_replaced_and_counted_as_the_other_end_counts() -> None:
    """T1.54."""
    assert bounded("a\ud800b") == "a\ufffdb"
    assert bounded("\ud83d\ude00") == "\U0001f600"
    assert bounded("\ud83d\ude00" * 4096) == "\U0001f600" * 4096
    json.dumps(bounded("\udcff" * 5000)).encode()


def test_text_cannot_pass_for_a_mark_of_truncation() -> None:
    """T1.54: a short text stays text."""
    said = '{"text": "x", "truncated": true, "length": 9}'
    assert sanitised("image_view", {"path": said}) == {"path": said}
