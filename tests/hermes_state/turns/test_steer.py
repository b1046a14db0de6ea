"""Which message acknowledges a steer, and which is what the agent says (T1.52)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.turns.steer import EDIT_ID_PREFIX, PREFIXES, Message, Routed, Steers, SteerVerdict, verdict_of


def test_output_during_a_steer_on_the_same_chat_is_output_and_the_steer_succeeds() -> None:
    """T1.52, R30."""
    steers = Steers()
    steers.expect("m7")
    output = [
        Message(chat_id="chat", text="Looking at the file."),
        Message(chat_id="chat", text="Steer queued", reply_to="m6"),  # of somebody else's steer
        Message(chat_id="chat", text="Steer queued"),  # the agent quotes the words
        Message(chat_id="chat", text="more", message_id="m3"),  # an edit of what it said before
        Message(chat_id="chat", text="Steer queued", message_id=f"{EDIT_ID_PREFIX}m6"),
    ]
    for said in output:
        assert steers.route(said) == Routed(output=said)
    ack = Message(chat_id="chat", text="\u23e9 Steer queued: look at b.py too", reply_to="m7")
    assert steers.route(ack) == Routed(message_id="m7", verdict=SteerVerdict.QUEUED)
    after = Message(chat_id="chat", text="Steer queued", reply_to="m7")
    assert steers.route(after) == Routed(output=after)  # acknowledged once; this is something else
    assert len(steers) == 0


def test_edit_under_the_id_of_the_steer_acknowledges_it() -> None:
    """T1.52."""
    steers = Steers()
    steers.expect("m7")
    assert steers.route(Message(chat_id="c", text="No active agent to steer", message_id=f"{EDIT_ID_PREFIX}m7")) == (
        Routed(message_id="m7", verdict=SteerVerdict.TURN_NOT_ACTIVE)
    )


def test_two_steers_on_one_chat_get_their_own_acknowledgements_in_any_order() -> None:
    """T1.52."""
    steers = Steers()
    for name in ("m1", "m2"):
        steers.expect(name)
    second = steers.route(Message(chat_id="c", text="Steer failed: no", reply_to="m2"))
    first = steers.route(Message(chat_id="c", text="Steer queued", reply_to="m1"))
    assert (second.message_id, second.verdict) == ("m2", SteerVerdict.INTERNAL_ERROR)
    assert (first.message_id, first.verdict) == ("m1", SteerVerdict.QUEUED)


def test_reply_that_acknowledges_nothing_is_told_and_kept_as_output() -> None:
    """T1.52: whatever it is, the person sees it."""
    steers = Steers()
    steers.expect("m7")
    said = Message(chat_id="c", text="I will look there next.", reply_to="m7")
    assert steers.route(said) == Routed(message_id="m7", verdict=SteerVerdict.INVALID_MESSAGE, output=said)


def test_acknowledgement_for_nobody_is_output() -> None:
    steers = Steers()
    steers.expect("m7")
    steers.leave("m7")
    late = Message(chat_id="c", text="Steer queued", reply_to="m7")
    assert steers.route(late) == Routed(output=late)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Steer queued", SteerVerdict.QUEUED), ("\u23e9 Steer queued \u2014 next step", SteerVerdict.QUEUED),
        ("\u23f3 Agent still starting, try again", SteerVerdict.TURN_NOT_ACTIVE),
        ("No active agent", SteerVerdict.TURN_NOT_ACTIVE), ("\u274c Steer failed: x", SteerVerdict.INTERNAL_ERROR),
        ("steer queued", SteerVerdict.INVALID_MESSAGE), ("The Steer queued", SteerVerdict.INVALID_MESSAGE),
        ("", SteerVerdict.INVALID_MESSAGE), ("\u23e9", SteerVerdict.INVALID_MESSAGE),
    ],
)
def test_acknowledgement_is_read_by_the_table_of_prefixes(text: str, verdict: SteerVerdict) -> None:
    assert verdict_of(text) is verdict
    assert set(PREFIXES.values()) == set(SteerVerdict) - {SteerVerdict.INVALID_MESSAGE}


@given(st.lists(st.tuples(
    st.sampled_from(["Steer queued", "hello", "No active agent", ""]), st.sampled_from([None, "m1", "m2", "m9"]),
    st.sampled_from([None, "m1", f"{EDIT_ID_PREFIX}m1", f"{EDIT_ID_PREFIX}m9"]),
), max_size=12))
def test_nothing_that_names_no_waiting_steer_is_ever_swallowed(said: list[tuple[str, str | None, str | None]]) -> None:
    """T1.52."""
    steers, waiting = Steers(), {"m1", "m2"}
    for name in waiting:
        steers.expect(name)
    for text, reply_to, edited in said:
        message = Message(chat_id="c", text=text, reply_to=reply_to, message_id=edited)
        routed = steers.route(message)
        if routed.verdict is None:
            assert routed.output == message
            continue
        assert routed.message_id in waiting
        assert routed.message_id in (reply_to, (edited or "").removeprefix(EDIT_ID_PREFIX))
        waiting.discard(routed.message_id)
        assert (routed.output is None) or routed.verdict is SteerVerdict.INVALID_MESSAGE
