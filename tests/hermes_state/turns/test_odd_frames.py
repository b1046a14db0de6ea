"""What a gateway sends by mistake or on purpose: refused by name, one question never taken for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import IdempotencyConflict, InvalidInput, QueueUnreadable, RequestNotFound
from hermes_state.outbox import Recorded
from hermes_state.store import Store
from hermes_state.turns import Frame, FrameKind
from hermes_state.turns.home_queue import take_over
from hermes_state.turns.interactions import MOST_BYTES
from hermes_state.turns.records import told
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import frame
from tests.support.bound_threads import bind

Run = Callable[..., str]


def deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def asking(turn_id: str, command: str, *, thread: str = "thread", request_id: Any = "1") -> Frame:
    return frame(
        FrameKind.APPROVAL, turn_id, thread=thread, request_id=request_id, request_type="exec_command_approval",
        args={"command": command},
    )


def test_one_id_in_two_threads_or_turns_is_two_questions(store: Store, turns: Turns, run: Run) -> None:
    """B10: the second was shown as the first one, and the answer to the first permitted it."""
    bind(store, "other", "gateway-1", "session")
    run("t1")
    run("t2", thread="other")
    first = turns.receive(asking("t1", "ls"), boot_id="boot-1").interaction
    second = turns.receive(asking("t2", "rm", thread="other"), boot_id="boot-1").interaction
    assert first is not None and second is not None
    assert [(one.thread_id, one.request_id, one.args) for one in turns.questions()] == [
        ("thread", "1", {"command": "ls"}), ("other", "1", {"command": "rm"}),
    ]
    assert turns.receive(asking("t2", "rm", thread="other"), boot_id="boot-1").interaction == second
    turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    run("t3")
    third = turns.receive(asking("t3", "mv"), boot_id="boot-1").interaction
    assert third is not None and third.id not in (first.id, second.id)
    taken = turns.receive(frame(FrameKind.WITHDRAWN, "t3", request_id="1"), boot_id="boot-1").interaction
    assert taken is not None and (taken.id, taken.state) == (third.id, "cancelled")
    turns.answer(second.id, "accept")
    with store.core.reader() as reader:
        (payload,) = reader.row("SELECT payload FROM outbox WHERE dedupe_id = ?", (f"approval/{second.id}",)) or ("",)
    assert (json.loads(payload)["request_id"], json.loads(payload)["thread_id"]) == ("1", "other")


def test_one_id_of_a_turn_with_other_content_is_refused(turns: Turns, run: Run) -> None:
    """B10: also after an answer, which would be taken for the answer to the other one."""
    run("t1")
    asked = turns.receive(asking("t1", "ls"), boot_id="boot-1").interaction
    assert asked is not None
    turns.answer(asked.id, "accept")
    with pytest.raises(IdempotencyConflict, match=r"Question '1' of turn 't1' in .* was asked before, and was another"):
        turns.receive(asking("t1", "rm -rf /"), boot_id="boot-1")
    again = turns.receive(asking("t1", "ls"), boot_id="boot-1").interaction
    assert again is not None and (again.id, again.state) == (asked.id, "resolved")


def test_an_id_that_looks_like_ours_is_told_from_it(turns: Turns, run: Run) -> None:
    run("t1")
    odd = "1\x1f" + "a" * 32
    found = turns.receive(asking("t1", "ls", request_id=odd), boot_id="boot-1").interaction
    assert found is not None and found.request_id == odd


@pytest.mark.parametrize("fields", [["x"], None, "x", 7])
def test_fields_that_are_no_mapping_are_refused(fields: Any) -> None:
    """B11."""
    with pytest.raises(InvalidInput, match="The fields of a frame are a mapping"):
        Frame(kind=FrameKind.ITEM, instance_id="g", thread_id="t", session_id="s", fields=fields)


@pytest.mark.parametrize("name", ["request_id", "text", "item_type", "detail", "error"])
def test_fields_that_are_too_deep_are_refused(name: str) -> None:
    """B11: as a text they are deeper than Python's own stack."""
    with pytest.raises(InvalidInput, match="more than 100 levels deep"):
        frame(FrameKind.ITEM, "t1", **{name: deep(900)})


def test_types_times_and_ids_that_are_none_are_inert_left_out_or_refused(turns: Turns, run: Run) -> None:
    """B11: an id that is cut short, or shown as Python does, would be the id of another one."""
    run("t1")
    for item_type in (["x"], {}, 7, None):
        assert turns.receive(frame(FrameKind.ITEM, "t1", item_type=item_type)).admission == "inert"
    times: tuple[tuple[Any, float | None], ...] = (
        (10**400, None), (1e308, None), (float("nan"), None), ("x", None), (5, 5.0),
    )
    for number, (given, kept) in enumerate(times):
        asked = turns.receive(frame(FrameKind.APPROVAL, "t1", request_id=number, expires_at=given)).interaction
        assert asked is not None and (asked.request_id, asked.expires_at) == (str(number), kept)
    for request_id in (["a"], {}, None, "", "a\0b", "\ud800", "x" * 513, True):
        for kind in (FrameKind.APPROVAL, FrameKind.WITHDRAWN):
            with pytest.raises(InvalidInput, match="request_id of a frame is a text of 1 to 512 characters"):
                turns.receive(frame(kind, "t1", request_id=request_id))


def test_a_large_form_is_kept_shorter_and_not_refused(turns: Turns, run: Run) -> None:
    """C23: within the bounds of each text it was larger than a question may be."""
    run("t1")
    option = {"label": "\N{PILE OF POO}" * 2000, "description": "\x01" * 2000}
    asked = [
        {"id": f"{number}" * 200, "header": "\x01" * 2000, "question": "q" * 2000, "text": "", "options": [option] * 16}
        for number in range(16)
    ]
    found = turns.receive(frame(FrameKind.USER_INPUT, "t1", request_id="1", questions=asked)).interaction
    assert found is not None
    assert [one["id"] for one in found.questions] == [one["id"] for one in asked]
    assert len(json.dumps(found.questions, ensure_ascii=False).encode()) <= MOST_BYTES


def test_the_same_answer_again_is_the_same_whatever_python_calls_it(turns: Turns, run: Run) -> None:
    """C22: a tuple is stored as a list, and was another answer the second time."""
    run("t1")
    asked = turns.receive(frame(FrameKind.USER_INPUT, "t1", request_id="1", questions=[{"id": "q"}])).interaction
    assert asked is not None
    first = turns.answer(asked.id, answers={"q": ("a", "b")})
    assert turns.answer(asked.id, answers={"q": ("a", "b")}) == first
    with pytest.raises(InvalidInput, match="answers of an interaction is JSON"):
        turns.answer(turns.receive(
            frame(FrameKind.USER_INPUT, "t1", request_id="2", questions=[{"id": "q"}])
        ).interaction.id, answers={"q": deep(200)})  # type: ignore[union-attr]


def test_a_question_that_cannot_be_is_not_found(turns: Turns) -> None:
    """B11."""
    for number in (2**70, -1, 0, "x", True, None):
        with pytest.raises(RequestNotFound):
            turns.question(number)  # type: ignore[arg-type]
    for limit in (-1, 0, 1001, "7"):
        with pytest.raises(InvalidInput, match="limit is a whole number from 1 to 1000"):
            turns.questions(limit=limit)  # type: ignore[arg-type]


def test_what_cannot_be_shown_is_told_by_what_it_is() -> None:
    """B11."""
    deeper: list[object] = []
    for _level in range(100_000):
        deeper = [deeper]
    assert (told(deeper), told(10**5000), told(["x"])) == ("(list)", "(int)", "['x']")


ODD_DELIVERIES: list[tuple[Any, Any, Any]] = [
    (deep(940), None, "d"), (deep(100), None, "d"), ("x", "yesterday", "d"), ("x", float("nan"), "d"),
    ("x", None, ["d"]), ("x", None, "d" * 508), ("x", None, "\ud800"), ("x", None, "a\0b"), ("x", None, ""),
    ({1: "a", "1": "b"}, None, "d"),
]


def test_a_delivery_that_one_of_both_ends_could_not_keep_is_refused_by_both(store: Store, turns: Turns) -> None:
    """B12: it was stored, and then no page could be read."""
    turns.home.show_in("gateway-1", "thread")
    for payload, made_at, delivery_id in ODD_DELIVERIES:
        with pytest.raises(InvalidInput):
            turns.home.receive("gateway-1", delivery_id, payload, made_at=made_at)
        with pytest.raises(InvalidInput):
            turns.home.deliver(delivery_id, payload, made_at=made_at)
    assert (turns.home.page("thread"), store.outbox.page()) == ([], [])
    kept: Recorded = turns.home.deliver("d" * 507, deep(98))
    assert kept.new and turns.home.receive("gateway-1", "d" * 507, deep(98))[1]


def test_a_delivery_that_was_stored_too_deep_keeps_no_page_from_being_read(store: Store, turns: Turns) -> None:
    """B12: by an earlier release."""
    turns.home.show_in("gateway-1", "thread")
    turns.home.receive("gateway-1", "d1", "fine")
    deeper = "[" * 5000 + "]" * 5000
    store.core.write(
        lambda tx: tx.execute(
            "INSERT INTO home_deliveries (instance_id, delivery_id, thread_id, payload, payload_check, received_at)"
            " VALUES ('gateway-1', 'd2', 'thread', ?, 'x', 1)", (deeper,),
        )
    )
    assert [one.payload for one in turns.home.page("thread")] == [
        {"unreadable": "its payload cannot be read here: it is more than 100 levels deep"}, "fine",
    ]


ODD_LINES = {
    "deep": '{"deliveryId":"a","p":' + "[" * 60_000 + "]" * 60_000 + "}",
    "150": '{"deliveryId":"a","p":' + "[" * 150 + "]" * 150 + "}",
    "surrogate": '{"deliveryId":"a","p":"\\ud800"}',
    "NaN": '{"deliveryId":"a","p":NaN}',
    "long id": '{"deliveryId":"' + "x" * 600 + '"}',
    "NUL": '{"deliveryId":"a\\u0000b"}',
    "large": '{"deliveryId":"a","p":"' + "x" * 2_000_000 + '"}',
    "other content": '{"deliveryId":"taken"}',
}


def test_an_entry_that_cannot_be_recorded_is_named_with_its_line(store: Store, turns: Turns, tmp_path: Path) -> None:
    """B13: it was another error, without file or line."""
    turns.home.deliver("taken", {"other": "content"})
    queue = tmp_path / "queue.jsonl"
    before = f"Nothing was taken from line 2 of the queue {queue}: it cannot be recorded: "
    for name, line in ODD_LINES.items():
        queue.write_text('{"deliveryId":"ok"}\n' + line + "\n")
        with pytest.raises(QueueUnreadable) as caught:
            take_over(store.core, queue)
        assert str(caught.value).startswith(before), name
        assert (caught.value.facts["line"], queue.exists()) == (2, True)
        assert [one.dedupe_id for one in store.outbox.page()] == ["home/taken"]
