"""Streamed replies (T6.7 to T6.10, R83): one seal a turn, edits in place of second sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HomeRemoved, InvalidInput, ReplyEnded, ReplyNotFound, StatementFailed
from hermes_state.outbox import Accepted, Failed, NotAdmitted, State
from hermes_state.routing import Home
from hermes_state.store import Store, open_store
from hermes_state.work.reply_states import Door, ReplyState
from hermes_state.work.seals import digest_of, finish
from hermes_state.work.streams import Sending

from .conftest import Platform


def begun(store: Store, home: Home, platform: Platform, turn_id: str = "turn") -> None:
    """A stream of which the platform shows a beginning."""
    store.work.streams.begin(turn_id, home, transport="slack", target="C1")
    store.work.streams.message(turn_id, home, platform.post("Hel"))
    platform.sends = 0


def test_the_stream_is_the_message_its_final_edits_it(store: Store, home: Home, platform: Platform) -> None:
    begun(store, home, platform)
    streams = store.work.streams
    done = streams.finish("turn", "Hello.", home)
    assert (done.reply.state, done.reconciles) == (ReplyState.SEALING, False)
    assert [verdict for _claim, verdict in streams.deliver(platform.deliver, ["slack"])] == [
        Accepted(result={"message_id": "m1"})
    ]
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.state, reply.message_id, reply.finals) == (ReplyState.SEALED, "m1", 1)
    assert reply.sealed_digest == reply.final_digest == reply.shown_digest == digest_of("Hello.")
    assert (platform.messages, platform.sends, platform.edits) == ({"m1": "Hello."}, 0, 1)
    assert streams.deliver(platform.deliver, ["slack"]) == []


def test_the_same_final_again_owes_nothing(store: Store, home: Home, platform: Platform) -> None:
    begun(store, home, platform)
    streams = store.work.streams
    first = streams.finish("turn", "Hello.", home)
    for _ in range(3):
        again = streams.finish("turn", "Hello.", home)
        assert (again.owed, again.reconciles, again.reply) == (None, False, first.reply)
    streams.deliver(platform.deliver, ["slack"])
    assert streams.finish("turn", "Hello.", home).owed is None
    assert len(store.outbox.page()) == 1


def test_another_final_later_edits_and_is_never_sent_beside_it(store: Store, home: Home, platform: Platform) -> None:
    """T6.7."""
    begun(store, home, platform)
    streams = store.work.streams
    streams.finish("turn", "Hello.", home)
    streams.deliver(platform.deliver, ["slack"])
    assert streams.door("turn") is Door.RECONCILE_BY_EDIT
    sealed = streams.get("turn")
    corrected = streams.finish("turn", "Hello.\n-- verified", home)
    assert corrected.reconciles
    assert (corrected.reply.state, corrected.reply.finals) == (ReplyState.RECONCILING, 2)
    streams.deliver(platform.deliver, ["slack"])
    now = streams.get("turn")
    assert now is not None
    assert sealed is not None
    assert (now.state, now.sealed_digest, now.sealed_at) == (
        ReplyState.SEALED, sealed.sealed_digest, sealed.sealed_at
    )
    assert (platform.messages, platform.sends, platform.edits) == ({"m1": "Hello.\n-- verified"}, 0, 2)


def test_a_final_that_nobody_began_to_send_is_taken_back_by_a_newer_one(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    streams.finish("turn", "Hello!", home)
    streams.finish("turn", "Hello.", home)
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.messages == {"m1": "Hello."}
    assert platform.sends == 1
    assert [one.state for one in store.outbox.page()] == [State.ACCEPTED, State.SUPPRESSED, State.SUPPRESSED]
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.state, reply.finals, reply.message_id) == (ReplyState.SEALED, 3, "m1")


def test_a_final_that_may_be_out_is_not_sent_again_when_a_newer_one_counts(
    store: Store, home: Home, platform: Platform
) -> None:
    """Its sender broke; the newer one goes out in its place, and says that something may be there already."""
    streams = store.work.streams

    def breaks(_sending: Sending) -> None:
        raise ConnectionResetError

    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    with pytest.raises(ConnectionResetError):
        streams.deliver(breaks, ["slack"])
    streams.finish("turn", "Hello!", home)
    store.core.clock.advance(60.0)  # type: ignore[attr-defined]
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.messages == {"m1": "(again) Hello!"}
    assert [one.state for one in store.outbox.page()] == [State.ACCEPTED, State.SUPPRESSED]


def test_the_database_itself_refuses_a_second_seal(store: Store, home: Home) -> None:
    """T6.7."""
    store.work.streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    for change in ("sealed_digest = zeroblob(32)", "sealed_at = 1", "finals = 0", "turn_id = 'x'"):
        with pytest.raises(StatementFailed) as caught:
            store.core.write(lambda tx, change=change: tx.execute(f"UPDATE reply_seals SET {change}"))  # type: ignore[misc]
        assert "sealed once" in str(caught.value) or "CHECK" in str(caught.value)
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("INSERT INTO reply_seals SELECT * FROM reply_seals"))


def test_a_send_that_is_not_the_final_never_seals(store: Store, home: Home, platform: Platform) -> None:
    """T6.8."""
    begun(store, home, platform)
    streams = store.work.streams
    assert streams.door("turn", interim=True) is Door.PASS
    assert streams.door("turn") is Door.SEAL
    assert streams.door("another turn") is Door.PASS
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.state, reply.finals) == (ReplyState.STREAMING, 0)


def test_a_restart_between_seal_and_ack_edits_the_same_message(
    tmp_path: Path, fake_clock: FakeClock, platform: Platform
) -> None:
    """T6.9: the platform has the final, and nobody here knows; the next process edits, 0 duplicates."""
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        begun(store, store.routing.home, platform)
        store.work.streams.finish("turn", "Hello.", store.routing.home)
        (claim,) = store.outbox.claim(["slack"])
        platform.messages["m1"] = claim.primary.payload["text"]
    fake_clock.advance(120.0)
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        assert [one.turn_id for one in store.work.streams.page()] == ["turn"]
        store.work.streams.deliver(platform.deliver, ["slack"])
        assert (platform.messages, platform.sends, platform.edits) == ({"m1": "Hello."}, 0, 1)
        assert store.work.streams.page() == []


def test_a_restart_in_the_middle_of_a_stream_goes_on_in_its_message(
    tmp_path: Path, fake_clock: FakeClock, platform: Platform
) -> None:
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        begun(store, store.routing.home, platform)
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        streams = store.work.streams
        (left,) = streams.page(state=ReplyState.STREAMING)
        assert (left.turn_id, left.message_id) == ("turn", "m1")
        streams.begin("turn", store.routing.home, transport="slack", target="C1")  # found, not begun anew
        streams.finish("turn", "Hello.", store.routing.home)
        streams.deliver(platform.deliver, ["slack"])
    assert (platform.messages, platform.sends) == ({"m1": "Hello."}, 0)


def test_media_goes_out_after_the_edit(store: Store, home: Home, platform: Platform) -> None:
    """T6.10."""
    begun(store, home, platform)
    streams = store.work.streams
    streams.finish("turn", "See:", home, media=["a.png", {"file": "b.pdf"}])
    platform.order.clear()
    for _ in range(3):
        streams.deliver(platform.deliver, ["slack"])
    assert platform.order == ["edit m1", "media", "media"]
    assert platform.media == ["a.png", {"file": "b.pdf"}]
    assert platform.sends == 0
    streams.finish("turn", "Look:", home, media=["c.png"])
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.order == ["edit m1", "media", "media", "edit m1", "media"]


def test_a_final_whose_words_were_scrubbed_while_it_was_owed_can_be_settled(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.finish("turn", "Key sk-1.", home, transport="slack", target="C1")
    store.core.write(lambda tx: tx.execute("UPDATE outbox SET payload = replace(payload, 'sk-1', '[gone]')"))
    streams.deliver(platform.deliver, ["slack"])
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.state, platform.messages) == (ReplyState.SEALED, {"m1": "Key [gone]."})


def test_media_waits_while_the_edit_fails(store: Store, home: Home, platform: Platform) -> None:
    begun(store, home, platform)
    streams = store.work.streams
    streams.finish("turn", "See:", home, media=["a.png"])
    streams.deliver(lambda _sending: NotAdmitted(why="busy"), ["slack"], limit=5)
    assert platform.media == []
    store.core.clock.advance(10.0)  # type: ignore[attr-defined]
    streams.deliver(platform.deliver, ["slack"], limit=5)
    assert platform.media == ["a.png"]


def test_a_message_that_cannot_be_edited_any_more_is_sent_anew(store: Store, home: Home, platform: Platform) -> None:
    begun(store, home, platform)
    streams = store.work.streams
    streams.finish("turn", "Hello.", home)
    streams.deliver(platform.deliver, ["slack"])
    del platform.messages["m1"]
    streams.message("turn", home, None)
    streams.finish("turn", "Hello!", home)
    streams.deliver(platform.deliver, ["slack"])
    assert platform.messages == {"m1": "(again) Hello!"}
    streams.finish("turn", "Hello?", home)
    streams.deliver(platform.deliver, ["slack"])
    assert (platform.messages, platform.sends) == ({"m1": "Hello?"}, 1)


def test_a_stream_that_died_before_its_message_was_known_says_so(store: Store, home: Home, platform: Platform) -> None:
    store.work.streams.begin("turn", home, transport="slack", target="C1")
    store.work.streams.finish("turn", "Hello.", home)
    store.work.streams.deliver(platform.deliver, ["slack"])
    assert platform.messages == {"m1": "(again) Hello."}


def test_what_the_plain_outbox_delivered_is_edited_too(store: Store, home: Home, platform: Platform) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    store.outbox.deliver(
        lambda claim: Accepted(result={"message_id": platform.post(claim.primary.payload["text"])}), ["slack"]
    )
    streams.finish("turn", "Hello!", home)
    streams.deliver(platform.deliver, ["slack"])
    assert (platform.messages, platform.sends) == ({"m1": "Hello!"}, 1)


def test_a_final_commits_with_what_settles_its_turn_or_not_at_all(store: Store, home: Home) -> None:
    def fails(tx: object) -> None:
        finish(tx, "turn", "Hello.", home, at=1.0, transport="slack", target="C1")  # type: ignore[arg-type]
        raise KeyError("the turn was not settled")

    with pytest.raises(KeyError):
        store.core.write(fails)
    assert store.work.streams.get("turn") is None
    assert store.outbox.page() == []


def test_a_final_that_is_out_of_attempts_leaves_the_reply_unshown(store: Store, home: Home) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    for _ in range(3):
        streams.deliver(lambda _sending: Failed(why="no"), ["slack"])
        store.core.clock.advance(100.0)  # type: ignore[attr-defined]
    assert [one.state for one in store.outbox.page()] == [State.DROPPED]
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.state, reply.shown_digest) == (ReplyState.GIVEN_UP, None)


def test_what_a_person_owes_again_edits_the_message_that_is_there(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    streams.deliver(platform.deliver, ["slack"])
    store.outbox.retry("final/turn")
    streams.deliver(platform.deliver, ["slack"])
    assert (platform.messages, platform.sends, platform.edits) == ({"m1": "Hello."}, 1, 1)


def test_an_abandoned_reply_is_over_and_a_sealed_one_is_not_abandoned(store: Store, home: Home) -> None:
    streams = store.work.streams
    streams.begin("a", home, transport="slack", target="C1")
    assert streams.abandon("a", home).state is ReplyState.ABANDONED
    assert streams.abandon("a", home).state is ReplyState.ABANDONED
    with pytest.raises(ReplyEnded) as caught:
        streams.finish("a", "Hello.", home)
    assert str(caught.value) == f"The reply of turn 'a' in {store.path} is abandoned and takes no final."
    streams.finish("b", "Hello.", home, transport="slack", target="C1")
    with pytest.raises(ReplyEnded) as caught:
        streams.abandon("b", home)
    assert str(caught.value) == f"The reply of turn 'b' in {store.path} is sealing and cannot be abandoned."
    with pytest.raises(ReplyEnded) as caught:
        streams.begin("b", home, transport="slack", target="C1")
    assert str(caught.value) == f"The reply of turn 'b' in {store.path} is sealing and cannot be begun."


def test_a_reply_that_was_not_begun_needs_to_know_where_it_goes(store: Store, home: Home) -> None:
    with pytest.raises(ReplyNotFound) as caught:
        store.work.streams.finish("turn", "Hello.", home)
    assert str(caught.value) == f"No reply of turn 'turn' was begun in {store.path}."
    store.work.streams.begin("turn", home, transport="slack", target="C1")
    with pytest.raises(InvalidInput) as wrong:
        store.work.streams.finish("turn", "Hello.", home, transport="slack", target="C2")
    assert str(wrong.value) == (
        f"The reply of turn 'turn' in {store.path} goes to slack 'C1', not to slack 'C2'."
    )


@pytest.mark.parametrize("final", ["", None])
def test_a_final_is_a_text_that_can_be_kept(store: Store, home: Home, final: str) -> None:
    with pytest.raises(InvalidInput):
        store.work.streams.finish("turn", final, home, transport="slack", target="C1")
    assert store.work.streams.get("turn") is None


def test_a_handler_that_would_have_to_be_awaited_is_refused_before_anything_is_claimed(
    store: Store, home: Home
) -> None:
    async def handler(_sending: Sending) -> Accepted:
        return Accepted()

    class Called:
        async def __call__(self, _sending: Sending) -> Accepted:
            return Accepted()

    store.work.streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    with pytest.raises(InvalidInput):
        store.work.streams.deliver(Called(), ["slack"])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as caught:
        store.work.streams.deliver(handler, ["slack"])  # type: ignore[arg-type]
    assert str(caught.value) == "handler is a plain function, not a coroutine function."
    assert store.outbox.get("final/turn").fence == 0


def test_a_removed_home_takes_no_reply(store: Store, home: Home) -> None:
    store.routing.remove_home(home, actor="test", reason="test")
    with pytest.raises(HomeRemoved):
        store.work.streams.begin("turn", home, transport="slack", target="C1")
    with pytest.raises(HomeRemoved):
        store.work.streams.finish("turn", "Hello.", home, transport="slack", target="C1")


def test_replies_are_forgotten_after_their_obligations_and_never_while_something_is_owed(
    store: Store, home: Home, platform: Platform
) -> None:
    streams = store.work.streams
    streams.finish("done", "Hello.", home, transport="slack", target="C1")
    streams.deliver(platform.deliver, ["slack"])
    streams.finish("owed", "Hello.", home, transport="slack", target="C1")
    streams.begin("begun", home, transport="slack", target="C1")
    assert streams.forget() == 0
    with pytest.raises(InvalidInput) as caught:
        streams.forget(kept_seconds=86_400.0)
    assert str(caught.value) == "Replies are kept for 8 days at least, not 86400 s."
    store.core.clock.advance(15 * 86_400.0)  # type: ignore[attr-defined]
    assert streams.forget() == 2
    assert streams.get("owed") is not None
    assert streams.get("done") is streams.get("begun") is None
