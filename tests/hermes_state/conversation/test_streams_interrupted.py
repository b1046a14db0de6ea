"""A stream whose writer is interrupted between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.conversation.merge import TextFrame, merge
from hermes_state.errors import InvalidInput, SessionReplaced
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def interrupted_after_commit(store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Ctrl-C after the transaction was committed and before the caller hears of it."""
    real = store.core.write

    def write(*args: Any, **options: Any) -> Any:
        real(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.core, "write", write)
        with pytest.raises(KeyboardInterrupt):
            call()


def interrupted_before_commit(store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    real = store.core.write

    def write(work: Callable[[Any], object], *args: Any, **options: Any) -> Any:
        def stopped(tx: Any) -> None:
            work(tx)
            raise KeyboardInterrupt

        return real(stopped, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store.core, "write", write)
        with pytest.raises(KeyboardInterrupt):
            call()


INTERRUPTS = [interrupted_after_commit, interrupted_before_commit]


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupted_first_flush_leaves_one_stream_with_the_text_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., None]
) -> None:
    with pytest.raises(KeyboardInterrupt), store.messages.stream("s") as stream:
        interrupt(store, monkeypatch, lambda: stream.append("x" * 5_000))
        raise KeyboardInterrupt
    assert [one.content for one in store.messages.unsettled()] == ["x" * 5_000]
    message_id = stream.settle()
    assert (store.messages.get(message_id).content, store.messages.unsettled()) == ("x" * 5_000, [])
    assert store.sessions.delete("s", actor="a", reason="r").sessions == ("s",)


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupted_later_flush_doubles_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., None]
) -> None:
    stream = store.messages.stream("s")
    stream.append("a" * 5_000)
    interrupt(store, monkeypatch, lambda: stream.append("b" * 5_000))
    interrupt(store, monkeypatch, lambda: stream.append("c" * 5_000))
    stream.append("d")
    stream.flush()
    assert [one.content for one in store.messages.unsettled()] == [stream.text]
    assert stream.text == "a" * 5_000 + "b" * 5_000 + "c" * 5_000 + "d"


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_what_a_replace_makes_void_stays_void_after_an_interrupted_flush(
    store: Store, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., None]
) -> None:
    stream = store.messages.stream("s")
    interrupt(store, monkeypatch, lambda: stream.append("a" * 5_000))
    stream.replace("new")
    stream.append("!")
    stream.flush()
    assert [one.content for one in store.messages.unsettled()] == ["new!"]


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupted_settle_leaves_the_text_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., None], flushed: bool
) -> None:
    with pytest.raises(KeyboardInterrupt), store.messages.stream("s") as stream:
        stream.append("text")
        if flushed:
            stream.flush()
        interrupt(store, monkeypatch, stream.settle)
        raise KeyboardInterrupt
    stored = [message.content for message in store.messages.history("s").messages]
    waiting = [one.content for one in store.messages.unsettled()]
    assert (stored, waiting) == ((["text"], []) if interrupt is interrupted_after_commit else ([], ["text"]))


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_what_is_abandoned_after_an_interrupted_flush_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., None]
) -> None:
    stream = store.messages.stream("s")
    interrupt(store, monkeypatch, lambda: stream.append("x" * 5_000))
    stream.abandon()
    assert store.messages.unsettled() == []


def test_the_error_of_a_block_is_not_hidden_by_that_of_its_last_flush(store: Store) -> None:
    with pytest.raises(RuntimeError) as caught, store.messages.stream("s") as stream:
        stream.append("text")
        tip = store.sessions.continue_as("s").id
        raise RuntimeError("mine")
    assert str(caught.value) == "mine"
    assert caught.value.__notes__ == [
        "What arrived of the message since the last flush was not made durable:"
        f" Session 's' of {store.path} was compressed and goes on as {tip!r}."
    ]
    with pytest.raises(SessionReplaced):
        stream.flush()


# --- halves of characters ----------------------------------------------------------------------------------------

HALVES = [TextFrame(text="a\ud83d"), TextFrame(text="\ude00b")]


def test_a_character_cut_in_two_by_frames_is_one_in_stream_store_and_merge(store: Store) -> None:
    stream = store.messages.stream("s")
    for frame in HALVES:
        stream.apply(frame)
    stream.flush()
    assert (stream.text, merge(HALVES)) == ("a\U0001f600b", "a\U0001f600b")
    assert store.messages.unsettled()[0].content == "a\U0001f600b"
    assert store.messages.get(stream.settle()).content == "a\U0001f600b"


def test_half_a_character_that_is_never_completed_is_replaced(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.apply(HALVES[0])
    assert stream.text == merge(HALVES[:1]) == "a\ufffd"
    assert store.messages.get(stream.settle()).content == "a\ufffd"


def test_halves_of_other_parts_and_of_what_was_replaced_do_not_join() -> None:
    high, low = "\ud83d", "\ude00"
    assert merge([TextFrame(text=high), TextFrame(text=low, index=1)]) == "\ufffd\ufffd"
    assert merge([TextFrame(text=high), TextFrame(text="x", operation="replace"), TextFrame(text=low)]) == "x\ufffd"
    assert merge([TextFrame(text=high, operation="replace"), TextFrame(text=low)]) == "\U0001f600"
    assert merge([TextFrame(text=high), TextFrame(text=high), TextFrame(text=low)]) == "\ufffd\U0001f600"


def test_a_stream_number_that_is_none_is_refused_by_name(store: Store) -> None:
    for wrong in (2**63, "1", None):
        with pytest.raises(InvalidInput) as caught:
            store.messages.settle_interrupted(wrong)  # type: ignore[arg-type]
        shown = "one of more than 64 bits" if wrong == 2**63 else repr(wrong)
        assert str(caught.value) == f"stream_id is a whole number, not {shown}."


def test_a_stream_whose_owner_cannot_be_read_is_shown_and_not_called_dead(store: Store) -> None:
    stream = store.messages.stream("s")
    stream.append("text")
    stream.flush()
    store.core.write(lambda tx: tx.execute("UPDATE streams SET owner = 'somebody'"))
    assert [(one.content, one.dead) for one in store.messages.unsettled()] == [("text", False)]
