"""Report 207 in every form that data takes in a message: what is protected does not hold the window."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction import plan
from hermes_state.compaction.clips import clipped
from hermes_state.compaction.tokens import as_counter, request_tokens
from hermes_state.errors import InvalidInput
from tests.hermes_state.compaction.passes.talks import call

DATA = random.Random(207).randbytes(24_000)
TEXT = "\n".join(f"line {number} of the log: nothing to see" for number in range(800))
BASE64 = base64.b64encode(DATA).decode()
URL = "data:image/png;base64," + BASE64
# What may be the content of a message, each about 30 KB; what a store takes is `STORED`.
STORED: dict[str, Any] = {
    "base64": BASE64,
    "data URL": f"the picture: {URL} end",
    "bytes": DATA,
    "bytes of text": TEXT.encode(),
    "bytes of base64": BASE64.encode(),
    "bytearray": bytearray(DATA),
    "memoryview": memoryview(DATA),
    "image_url": [{"type": "image_url", "image_url": {"url": URL}}],
    "image_url as text": [{"type": "input_image", "image_url": URL}],
    "video_url": [{"type": "video_url", "video_url": {"url": URL}}],
    "input_audio": [{"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}],
    "file": [{"type": "file", "file": {"file_data": URL, "filename": "a.pdf"}}],
    "source": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}],
    "document": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}}],
    "image of a tool server": [{"type": "image", "data": BASE64, "mimeType": "image/png"}],
    "resource of a tool server": [{"type": "resource", "resource": {"uri": "file:///a", "blob": BASE64}}],
    "result in a result": [
        {"type": "tool_result", "tool_use_id": "x", "content": [
            {"type": "text", "text": "seen"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
        ]},
    ],
    "result of text": [{"type": "tool_result", "tool_use_id": "x", "content": BASE64}],
    "unknown part": [{"type": "whatever", "payload": {"deep": [BASE64]}}],
    "unknown part of text": [{"type": "whatever", "payload": {"deep": [TEXT]}}],
    "part without a type": [{"blob": BASE64}],
    "text among parts": [BASE64, {"type": "text", "text": "and"}],
    "a list in the list": [[BASE64]],
    "one part, no list": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    "an object": {"status": "ok", "stdout": TEXT},
    "an object of base64": {"status": "ok", "body": BASE64},
}
PLANNED: dict[str, Any] = STORED | {
    "bytes among parts": [DATA, {"type": "text", "text": "and"}],
    "bytes in a part": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}],
    "bytes in an unknown part": [{"type": "whatever", "payload": DATA}],
    "bytearray in a part": [{"type": "input_audio", "input_audio": {"data": bytearray(DATA), "format": "wav"}}],
    "bytes in an object": {"body": DATA},
}
WINDOW = 8_192


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def conversation(content: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Look at the five pictures."}]
    for number in range(5):
        rows.append({"role": "assistant", "content": None, "tool_calls": [call(f"c{number}")]})
        rows.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
    return [*rows, {"role": "assistant", "content": "They are alike."}, {"role": "user", "content": "And now?"}]


def size(messages: list[dict[str, Any]]) -> int:
    """Characters of what would be sent."""
    return len(json.dumps(messages, ensure_ascii=False, default=str))


@pytest.mark.parametrize("form", PLANNED)
def test_a_plan_makes_protected_rows_fit_whatever_form_their_data_has(form: str) -> None:
    rows = conversation(PLANNED[form])[:-2]
    made = plan(rows, window=WINDOW)
    kept = [*made.anchors, *range(made.end, len(rows))]
    view = [clipped(rows[row], made.clips[row]) if row in made.clips else rows[row] for row in kept]
    assert made.tokens_after_at_most <= made.budget.low_water
    assert request_tokens(view, as_counter(None)) <= made.budget.low_water
    assert size(view) <= 16_000


@pytest.mark.parametrize("form", STORED)
@pytest.mark.parametrize("role", ["tool", "user"])
def test_passes_make_the_view_fit_whatever_form_the_data_of_its_rows_has(store: Store, form: str, role: str) -> None:
    store.sessions.create(id="one", source="cli")
    rows = conversation(STORED[form])
    # The last word is the data itself: an anchor, or the newest group.
    rows = rows[:-2] if role == "tool" else [*rows[:-1], {"role": "user", "content": STORED[form]}]
    store.messages.append_many("one", rows)
    outcome = store.compaction.compact("one", window=WINDOW)
    if not outcome.fits:
        outcome = store.compaction.compact("one", window=WINDOW)
    view = store.messages.context("one")
    assert outcome.fits, (outcome.why, outcome.detail)
    # What was said of the view is what the store gives.
    assert request_tokens(view, as_counter(None)) <= outcome.settings.usable  # type: ignore[union-attr]
    whole = store.compaction.recover("one", len(rows)).content
    assert whole == (bytes(STORED[form]) if form in ("bytearray", "memoryview") else STORED[form])


@pytest.mark.parametrize("content", [[DATA], [{"type": "image", "data": DATA}], {"body": bytearray(b"x")}])
def test_bytes_within_a_list_or_an_object_are_refused_when_they_are_appended(store: Store, content: Any) -> None:
    store.sessions.create(id="one", source="cli")
    with pytest.raises(InvalidInput) as caught:
        store.messages.append("one", role="user", content=content)
    assert str(caught.value).startswith("content cannot be written as JSON (Object of type byte")
    assert store.messages.context("one") == []
