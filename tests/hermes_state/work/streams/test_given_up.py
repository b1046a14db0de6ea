"""Replies whose final was given up, what goes with a final once a turn, and texts that stop no settlement."""

from __future__ import annotations

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Failed, Refused, Verdict
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.reply_states import Door, ReplyState
from hermes_state.work.streams import Sending

from .conftest import Platform


def refused(_sending: Sending) -> Verdict:
    return Refused(why="the chat is gone")


def state(store: Store, turn_id: str = "turn") -> ReplyState:
    found = store.work.streams.get(turn_id)
    assert found is not None
    return found.state


def test_a_final_that_was_given_up_is_owed_again_when_it_is_said_again(
    store: Store, home: Home, platform: Platform, fake_clock: FakeClock
) -> None:
    streams = store.work.streams
    for turn in ("refused", "dropped"):
        streams.finish(turn, "Hello.", home, transport="irc", target="C1")
    store.outbox.drop("final/dropped", reason="a person does not want it")
    streams.deliver(refused, ["irc"])
    assert (state(store, "refused"), state(store, "dropped")) == (ReplyState.GIVEN_UP, ReplyState.GIVEN_UP)
    assert streams.forget() == 0
    streams.finish("turn", "Hello.", home, transport="slack", target="C1", media=["a.png"])
    for _ in range(3):
        streams.deliver(lambda _one: Failed(why="no"), ["slack"])
        fake_clock.advance(700.0)
    assert state(store) is ReplyState.GIVEN_UP
    assert streams.page() == []
    assert [one.turn_id for one in streams.page(state=ReplyState.GIVEN_UP)][-1] == "turn"
    assert streams.door("turn") is Door.SEAL
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.order == []  # its picture does not go out without it
    again = streams.finish("turn", "Hello.", home, media=["a.png"])
    assert (again.owed is not None, again.reconciles, len(again.media)) == (True, False, 1)
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert (platform.messages, platform.media) == ({"m1": "Hello."}, ["a.png"])
    assert state(store) is ReplyState.SEALED
    assert streams.finish("turn", "Hello.", home).owed is None


def test_what_a_person_owes_again_is_not_owed_twice(store: Store, home: Home, platform: Platform) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    streams.deliver(refused, ["slack"])
    store.outbox.retry("final/turn")
    found = streams.finish("turn", "Hello.", home).owed
    assert found is not None
    assert found.dedupe_id.startswith("final/turn#retry-")
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert (platform.sends, state(store)) == (1, ReplyState.SEALED)


def test_a_correction_that_was_given_up_leaves_the_message_to_be_edited(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    streams.deliver(platform.deliver, ["slack"])
    streams.finish("turn", "Hello!", home)
    streams.deliver(refused, ["slack"])
    assert state(store) is ReplyState.GIVEN_UP
    assert streams.finish("turn", "Hello!", home).reconciles
    streams.deliver(platform.deliver, ["slack"])
    assert (platform.messages, platform.sends) == ({"m1": "Hello!"}, 1)


def test_a_correction_that_is_taken_back_gives_nothing_up(store: Store, home: Home, platform: Platform) -> None:
    streams = store.work.streams
    for text in ("One.", "Two.", "Three."):
        streams.finish("turn", text, home, transport="slack", target="C1")
    assert state(store) is ReplyState.SEALING
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.messages == {"m1": "Three."}


def test_media_goes_out_once_a_turn_after_the_text_that_counts(store: Store, home: Home, platform: Platform) -> None:
    streams = store.work.streams
    streams.finish("later", "Hello.", home, transport="slack", target="C1")
    streams.deliver(platform.deliver, ["slack"])
    done = streams.finish("later", "Hello.", home, media=["a.png"])
    assert (done.owed, [one.payload["media"] for one in done.media]) == (None, ["a.png"])
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.order == ["send m1", "media"]

    platform.media.clear()
    streams.finish("again", "One.", home, transport="slack", target="C1", media=["a.png", "a.png"])
    streams.deliver(platform.deliver, ["slack"], limit=5)
    streams.finish("again", "Two.", home, media=["a.png", "b.png", "a.png"])
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.media == ["a.png", "a.png", "b.png"]

    platform.media.clear()
    platform.order.clear()
    streams.finish("not begun", "One.", home, transport="slack", target="C1", media=["a.png", "b.png"])
    streams.finish("not begun", "Two.", home, media=["b.png", "c.png"])
    streams.deliver(platform.deliver, ["slack"], limit=9)
    assert platform.order == ["send m3", "media", "media", "media"]
    assert platform.media == ["a.png", "b.png", "c.png"]


def test_the_id_of_a_turn_has_no_number_in_it(store: Store, home: Home) -> None:
    """The second final of turn a and the first of turn a#2 would be one obligation."""
    with pytest.raises(InvalidInput) as caught:
        store.work.streams.begin("a#2", home, transport="slack", target="C1")
    assert str(caught.value) == "turn_id of a reply is 'a#2'; no # may be in it."
    with pytest.raises(InvalidInput):
        store.work.streams.finish("a#2", "x", home, transport="slack", target="C1")


def test_no_final_stops_the_settlement_of_its_turn(store: Store, home: Home, platform: Platform) -> None:
    streams = store.work.streams
    for number, (final, shown) in enumerate((
        ("a\ud800", r"a\ud800"), ("é" * 600_000, "é... (600,000 characters)"),
        ("\1" * 200_000, "\1... (200,000 characters)"),
    ), 1):
        turn = f"turn {number}"
        streams.finish(turn, final, home, transport="slack", target="C1", details={"who": "é" * 100_000})
        streams.deliver(platform.deliver, ["slack"])
        assert platform.messages[f"m{number}"].endswith(shown)
        assert streams.finish(turn, final, home).owed is None


def test_a_name_of_the_streams_message_that_comes_after_its_final_changes_nothing(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.begin("turn", home, transport="slack", target="C1")
    streams.finish("turn", "One.", home)
    streams.deliver(platform.deliver, ["slack"])
    streams.message("turn", home, "of the stream")
    streams.finish("turn", "Two.", home)
    streams.deliver(platform.deliver, ["slack"])
    assert platform.messages == {"m1": "Two."}
    assert streams.message("turn", home, None).message_id is None
    assert streams.message("turn", home, "m9").message_id == "m9"
