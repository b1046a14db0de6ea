"""Messages that arrive bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.conversation.merge import TextFrame, merge
from hermes_state.errors import InvalidInput, NotFound, SessionNotFound, SessionReplaced, StateError
from hermes_state.store import Store
from tests.support.children import Children


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def frames(store: Store) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows("SELECT operation, field, part, text FROM stream_frames ORDER BY stream_id, number")


def streams(store: Store) -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM streams")[0][0])


# --- the end is one row ------------------------------------------------------------------------------------------


def test_a_settled_stream_is_a_message_like_any_other(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("think", field="reasoning")
    stream.append("Hello world")
    stream.replace("Hello, world!")
    message_id = stream.settle(finish_reason="stop", token_count=4, tool_calls=[{"id": "1"}], client_key="turn-1")

    found = store.messages.get(message_id)
    assert (found.role, found.content, found.reasoning) == ("assistant", "Hello, world!", "think")
    assert (found.finish_reason, found.token_count, found.tool_calls) == ("stop", 4, [{"id": "1"}])
    assert (streams(store), frames(store), store.messages.unsettled("s")) == (0, [], [])


def test_a_short_message_is_one_transaction(store: Store) -> None:
    stream = store.messages.stream("s")
    for piece in ("a", "b", "c"):
        stream.append(piece)
    assert (stream.id, streams(store), stream.text) == (None, 0, "abc")
    stream.settle()
    assert [message["content"] for message in store.messages.context("s")] == ["abc"]


def test_a_block_settles_at_its_end_and_keeps_what_arrived_when_it_raises(store: Store) -> None:
    with store.messages.stream("s") as stream:
        stream.append("done")
    with pytest.raises(KeyError), store.messages.stream("s") as stream:
        stream.append("half")
        raise KeyError

    assert [message["content"] for message in store.messages.context("s")] == ["done"]
    (left,) = store.messages.unsettled()
    assert (left.session_id, left.content, left.dead) == ("s", "half", False)


def test_a_message_of_calls_only_has_no_content(store: Store) -> None:
    message_id = store.messages.stream("s").settle(tool_calls=[{"id": "1"}])

    assert store.messages.get(message_id).content is None


def test_an_abandoned_stream_leaves_nothing(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("x" * 10_000)
    assert streams(store) == 1
    stream.abandon()

    assert (streams(store), frames(store), store.messages.count()) == (0, [], 0)
    for after in (lambda: stream.append("y"), stream.settle, stream.abandon, stream.flush):
        with pytest.raises(StateError) as caught:
            after()
        assert str(caught.value) == f"The stream into session 's' of {store.path} was abandoned."


# --- batches -----------------------------------------------------------------------------------------------------


def test_frames_are_written_at_four_kilobytes_or_half_a_second(store: Store, fake_clock: FakeClock) -> None:
    stream = store.messages.stream("s")
    stream.append("a" * 4000)
    assert frames(store) == []
    stream.append("b" * 96)
    assert frames(store) == [("append", "content", 0, "a" * 4000 + "b" * 96)]
    stream.append("c")
    fake_clock.advance(0.5)
    assert len(frames(store)) == 1  # nothing runs by itself
    stream.append("d")
    assert frames(store)[1:] == [("append", "content", 0, "cd")]


def test_a_replace_that_goes_on_is_kept_as_what_it_adds(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("Hello")
    stream.flush()
    for text in ("Hello", "Hello, wor", "Hello, world"):
        stream.replace(text)
    stream.flush()

    assert frames(store) == [("append", "content", 0, "Hello"), ("append", "content", 0, ", world")]


def test_a_real_replace_takes_the_frames_of_its_part_away(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("one", index=0)
    stream.append("two", index=1)
    stream.append("why", field="reasoning")
    stream.flush()
    stream.replace("2", index=1)
    stream.append("!", index=1)
    stream.flush()

    assert frames(store) == [
        ("append", "content", 0, "one"), ("append", "reasoning", 0, "why"), ("replace", "content", 1, "2!")
    ]
    assert (stream.text, stream.reasoning) == ("one2!", "why")


def test_a_failed_batch_is_written_by_the_next(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("kept")
    with store.core.writer.transaction(), pytest.raises(StateError):
        stream.flush()
    assert frames(store) == []
    stream.flush()

    assert frames(store) == [("append", "content", 0, "kept")]


def written() -> int:
    with open("/proc/self/io", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cumulative", "pieces", "rewritten"])
def test_a_thousand_updates_of_a_megabyte_write_a_few_megabytes(store: Store, fake_clock: FakeClock, kind: str) -> None:
    """Reports 222 and 223: 1,000 snapshots of a growing message were 500 MB elsewhere."""
    body = "".join(f"{number:>15}\n" for number in range(65_536))  # 1 MiB
    before = written()
    stream = store.messages.stream("s")
    for step in range(1, 1001):
        end = len(body) * step // 1000
        if kind == "cumulative":
            stream.replace(body[:end])
        elif kind == "pieces":
            stream.append(body[len(body) * (step - 1) // 1000 : end])
        else:
            stream.replace(f"{step:>8}{body}")
        fake_clock.advance(0.05)
    assert stream.text == (body if kind != "rewritten" else f"{1000:>8}{body}")
    message_id = stream.settle()
    store.core.writer.checkpoint()

    assert store.messages.get(message_id).content == stream.text
    assert written() - before < 16 * len(body)


# --- what is left of a killed writer -----------------------------------------------------------------------------

KILLED = """
import sys
import gates
from hermes_state import open_store

store = open_store(path=sys.argv[1])
stream = store.messages.stream("s")
stream.append("thinking", field="reasoning")
stream.append("Hello world")
stream.flush()
stream.replace("Hello, world!")
stream.append(" And")
stream.flush()
stream.append(" what was never durable")
gates.reach("streaming", str(stream.id))
gates.wait("never")
"""


@pytest.mark.slow
def test_what_a_killed_writer_made_durable_can_be_stored(store: Store, child: Children) -> None:
    writer = child(KILLED, store.path)
    stream_id = int(writer.wait_for("streaming"))
    (live,) = store.messages.unsettled("s")
    writer.kill()
    (left,) = store.messages.unsettled("s")

    assert (live.dead, left.dead, left.stream_id, left.role) == (False, True, stream_id, "assistant")
    assert (left.content, left.reasoning) == ("Hello, world! And", "thinking")
    message_id = store.messages.settle_interrupted(stream_id)
    found = store.messages.get(message_id)
    assert (found.content, found.reasoning, found.finish_reason) == ("Hello, world! And", "thinking", "interrupted")
    assert store.messages.unsettled() == []
    with pytest.raises(NotFound) as caught:
        store.messages.settle_interrupted(stream_id)
    assert str(caught.value) == f"Stream {stream_id} of {store.path} was settled, continued or abandoned meanwhile."


def test_a_writer_that_was_taken_for_dead_cannot_store_its_message_twice(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("text")
    stream.flush()
    assert stream.id is not None
    store.messages.settle_interrupted(stream.id)

    for write in (stream.flush, stream.settle):
        stream.append(" more")
        with pytest.raises(NotFound):
            write()
    assert [message["content"] for message in store.messages.context("s")] == ["text"]


def test_a_stream_into_a_session_that_goes_on_elsewhere_is_settled_there(store: Store) -> None:
    stream, killed = store.messages.stream("s"), store.messages.stream("s")
    for one in (stream, killed):
        one.append("answer")
        one.flush()
    tip = store.sessions.continue_as("s")

    with pytest.raises(SessionReplaced):
        stream.settle()
    stream.settle(into=tip.id)
    assert killed.id is not None
    with pytest.raises(SessionReplaced):
        store.messages.settle_interrupted(killed.id)
    store.messages.settle_interrupted(killed.id, into=tip.id)
    assert [message["content"] for message in store.messages.context(tip.id)] == ["answer", "answer"]
    assert streams(store) == 0


def test_what_cannot_be_streamed_is_refused_before_anything_arrives(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.messages.stream("nope")
    with pytest.raises(InvalidInput) as caught:
        store.messages.stream("s", role="narrator")
    assert str(caught.value) == "role is one of assistant, developer, system, tool, user, not 'narrator'."
    stream = store.messages.stream("s")
    for wrong in ({"text": 3}, {"text": "a", "index": -1}, {"text": "a", "field": "title"}):
        with pytest.raises(InvalidInput):
            stream.append(**wrong)  # type: ignore[arg-type]
    stream.append("a\ud800")
    with pytest.raises(InvalidInput) as given_twice:
        stream.settle(content="b")
    assert str(given_twice.value) == "content of a stream is what was streamed; it cannot be given again."
    assert store.messages.get(stream.settle()).content == "a\ufffd"


# --- one text, whoever reads it ----------------------------------------------------------------------------------

STEP = st.one_of(
    st.builds(
        TextFrame, text=st.text(alphabet="ab語\n", max_size=5), operation=st.sampled_from(["append", "replace"]),
        index=st.integers(0, 2),
    ),
    st.sampled_from(["flush", "wait"]),
)


@pytest.mark.slow
@given(steps=st.lists(STEP, max_size=15), crash=st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streamed_replayed_and_stored_text_are_equal_t1_49(
    store: Store, fake_clock: FakeClock, steps: list[Any], crash: bool
) -> None:
    stream = store.messages.stream("s")
    taken: list[TextFrame] = []
    durable = 0
    for step in steps:
        if step == "flush":
            stream.flush()
            durable = len(taken)
        elif step == "wait":
            fake_clock.advance(1)
        else:
            taken.append(step)
            stream.apply(step)
            if not stream._waiting:
                durable = len(taken)  # a batch was due
        assert stream.text == merge(taken)
    if crash and stream.id is not None:
        (left,) = store.messages.unsettled("s")
        assert left.content == merge(taken[:durable])
        message_id, expected = store.messages.settle_interrupted(stream.id), left.content
    elif crash:
        return
    else:
        message_id, expected = stream.settle(), merge(taken)
    assert (store.messages.get(message_id).content or "") == expected
    assert store.messages.unsettled() == []


def test_frames_without_a_part_replay_as_they_always_did_t1_50(store: Store) -> None:
    def old_rows(tx: Any) -> None:
        new = "INSERT INTO streams (id, key, session_no, role, started_at, owner)"
        tx.execute(f"{new} VALUES (7, 'k', 1, 'assistant', 0, ?)", (
            '{"boot_id":"","pid_namespace":"","pid":1,"start_ticks":1,"time_namespace":"","nonce":"0"}',
        ))
        tx.executemany(
            "INSERT INTO stream_frames (stream_id, number, operation, text) VALUES (7, ?, 'append', ?)",
            [(0, "Hel"), (1, "lo")],
        )

    store.core.write(old_rows)
    message_id = store.messages.settle_interrupted(7)
    assert store.messages.get(message_id).content == "Hello"
