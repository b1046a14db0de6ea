"""What a handler does with its time and its words: terms that run out, late verdicts, values that cannot be stored."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, StaleFence, StateError
from hermes_state.outbox import (
    Accepted,
    Claim,
    Failed,
    NotAdmitted,
    NotSent,
    Outbox,
    Recorded,
    Refused,
    Schedule,
    State,
    Suppressed,
    Verdict,
)
from hermes_state.outbox.verdicts import Lost
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import Sender, told

Owe = Callable[..., Recorded]
TELEGRAM = ["telegram"]


@pytest.mark.parametrize("policy", ["at_most_once", "at_least_once"])
def test_no_claim_runs_out_while_an_earlier_handler_works(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock, policy: str
) -> None:
    owe("slow", policy)
    owe("next", policy)
    sent: list[tuple[str, str, bool]] = []
    other = sender()

    def theirs(claim: Claim) -> Verdict:
        sent.append(("other", claim.primary.dedupe_id, claim.primary.recovered))
        return Accepted()

    def ours(claim: Claim) -> Verdict:
        sent.append(("we", claim.primary.dedupe_id, claim.primary.recovered))
        if claim.primary.dedupe_id == "slow":
            fake_clock.advance(59.0)
            box.renew(claim)
            fake_clock.advance(59.0)
            other.box.deliver(theirs, TELEGRAM, limit=5)
        return Accepted()

    box.deliver(ours, TELEGRAM, limit=2)
    assert sent == [("we", "slow", False), ("other", "next", False)]
    assert [row.state for row in box.page()] == [State.ACCEPTED] * 2


def test_limit_counts_claims_and_nothing_is_tried_twice_in_one_call(box: Outbox, owe: Owe) -> None:
    for number in range(3):
        owe(f"part {number}", batch="run")
    owe("busy", schedule=Schedule(delays=(0.0,), rest=0.0))
    owe("last")
    sent: list[list[str]] = []

    def handler(claim: Claim) -> Verdict:
        sent.append([one.dedupe_id for one in claim])
        return NotAdmitted(why="busy") if claim.primary.dedupe_id == "busy" else Accepted()

    assert len(box.deliver(handler, TELEGRAM, limit=2)) == 2
    assert sent == [["part 0", "part 1", "part 2"], ["busy"]]
    assert [one.dedupe_id for one in box.page(states=[State.PENDING])] == ["last", "busy"]
    sent.clear()
    box.deliver(handler, TELEGRAM, limit=10)
    assert sent == [["busy"], ["last"]]


@pytest.mark.parametrize(
    ("verdict", "state", "spent"),
    [
        (Accepted(result={"id": 7}), State.ACCEPTED, (0, 0)),
        (Refused(why="gone"), State.REFUSED, (0, 0)),
        (Failed(why="never", for_good=True), State.FAILED, (1, 0)),
        (Failed(why="no"), State.PENDING, (1, 0)),
        (NotAdmitted(why="busy"), State.PENDING, (0, 1)),
        (Suppressed(why="old"), State.SUPPRESSED, (0, 0)),
    ],
)
def test_a_late_verdict_counts_until_somebody_claims_the_row_again(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock, verdict: Verdict, state: State,
    spent: tuple[int, int],
) -> None:
    owe("one")
    slow = sender()
    (claim,) = slow.box.claim(TELEGRAM)
    fake_clock.advance(61.0)
    assert box.claim(TELEGRAM, kinds=["another"]) == []  # it gives back what ran out
    assert (box.get("one").state, box.get("one").recoveries) == (State.PENDING, 1)
    assert slow.box.settle(claim, verdict) == {claim.primary.id: state}
    row = box.get("one")
    assert (row.state, row.attempts, row.refunds, row.recovered) == (state, *spent, False)
    with pytest.raises(StaleFence):
        slow.box.settle(claim, verdict)
    assert box.get("one") == row


def test_a_late_verdict_after_somebody_claimed_the_row_again_is_stale(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe("one")
    slow = sender()
    (claim,) = slow.box.claim(TELEGRAM)
    fake_clock.advance(61.0)
    (again,) = box.claim(TELEGRAM)
    box.settle(again, Failed(why="no"))
    with pytest.raises(StaleFence):
        slow.box.settle(claim, Accepted())
    assert (box.get("one").state, box.get("one").attempts) == (State.PENDING, 1)


def test_a_claim_that_was_given_up_by_its_own_verdict_has_no_late_one(box: Outbox, owe: Owe) -> None:
    owe("one")
    (claim,) = box.claim(TELEGRAM)
    box.settle(claim, NotAdmitted(why="busy"))
    with pytest.raises(StaleFence):
        box.settle(claim, Accepted())


def test_what_a_handler_said_too_late_is_raised_with_all_that_is_known(
    store: Store, box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe("before")
    owe("one", "at_most_once")
    other = sender()

    def slow(claim: Claim) -> Verdict:
        if claim.primary.dedupe_id == "one":
            fake_clock.advance(61.0)
            assert other.box.claim(TELEGRAM) == []
        return Accepted(result={"message": 7})

    with pytest.raises(StaleFence) as caught:
        box.deliver(slow, TELEGRAM, limit=5)
    assert told(caught.value) == (
        f"Obligation 'one' in {store.path} was claimed with fence 1 and is unknown (fence 1) now. Its handler had said"
        " Accepted. Its term ran out before the verdict came, and unknown is final. Renew the claim of what sends"
        " slowly."
    )
    facts = pickle.loads(pickle.dumps(caught.value)).facts
    assert (facts["verdict"], facts["state"]) == (Accepted(result={"message": 7}), State.UNKNOWN)
    assert facts["claim"].primary.dedupe_id == "one"
    assert [claim.primary.dedupe_id for claim, _verdict in facts["delivered"]] == ["before"]


def test_an_error_of_a_handler_that_was_too_slow_is_still_the_error_that_is_raised(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe("one", "at_most_once")
    other = sender()

    def slow(claim: Claim) -> Verdict:
        fake_clock.advance(61.0)
        assert other.box.claim(TELEGRAM) == []
        raise ConnectionResetError("in the middle")

    with pytest.raises(ConnectionResetError) as caught:
        box.deliver(slow, TELEGRAM)
    (note,) = caught.value.__notes__
    assert note.startswith("That it is lost was not written: Obligation 'one' in ")
    assert box.get("one").state is State.UNKNOWN


def test_a_verdict_that_cannot_be_written_is_a_note_of_the_error(store: Store, owe: Owe) -> None:
    owe("one")

    def closing(claim: Claim) -> Verdict:
        store.close()
        return Accepted(result={"id": 7})

    with pytest.raises(StateError) as caught:
        store.outbox.deliver(closing, TELEGRAM)
    assert caught.value.__notes__ == [
        "Of 'one' the handler had said Accepted(result={'id': 7}), which was not written."
    ]


class Rude(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("bad \ud800 name"), "RuntimeError: bad \\ud800 name"),
        (RuntimeError("x" * 10_000), f"RuntimeError: {'x' * 3986}... (10,014 characters)"),
        (RuntimeError("a\0b"), "RuntimeError: a\0b"),
        (Rude(), "Rude: "),
        (NotSent("\ud800"), "\\ud800"),
        (NotSent(), "nothing was sent"),
    ],
)
@pytest.mark.parametrize("policy", ["at_most_once", "at_least_once"])
def test_no_error_of_a_handler_leaves_its_row_claimed(
    box: Outbox, owe: Owe, policy: str, error: Exception, why: str
) -> None:
    owe("one", policy)

    def handler(claim: Claim) -> Verdict:
        raise error

    try:
        box.deliver(handler, TELEGRAM)
    except type(error) as raised:
        assert raised is error
    row = box.get("one")
    lost = not isinstance(error, NotSent)
    assert row.state is (State.UNKNOWN if lost and policy == "at_most_once" else State.PENDING)
    assert row.verdict is not None
    assert row.verdict["why"] == why


def test_a_result_with_a_lone_surrogate_is_stored_escaped(box: Outbox, owe: Owe) -> None:
    owe("one")
    box.deliver(lambda claim: Accepted(result={"name": "a\ud800\\b"}), TELEGRAM)
    row = box.get("one")
    assert row.verdict is not None
    assert (row.state, row.verdict["result"]) == (State.ACCEPTED, {"name": "a\\ud800\\b"})


def test_a_handler_that_returns_what_cannot_be_shown_has_not_accepted(box: Outbox, owe: Owe) -> None:
    owe("one")
    ((_claim, verdict),) = box.deliver(lambda claim: Rude(), TELEGRAM)  # type: ignore[arg-type,return-value]
    assert verdict == Failed(why="the handler gave no verdict: an object of Rude")
    assert box.get("one").state is State.PENDING


WEEK = "retry_after is a number of seconds from 0 to 604800, not "


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Accepted(result={1, 2}), "The result of Accepted is a mapping, not {1, 2}."),  # type: ignore[arg-type]
        (lambda: Accepted(result={"a": object}),
         "The result of Accepted is JSON: Object of type type is not JSON serializable."),
        (lambda: Accepted(result={"a": float("nan")}),
         "The result of Accepted is JSON: Out of range float values are not JSON compliant."),
        (lambda: Accepted(result={"a": "x" * 65_536}),
         "The result of Accepted has 65,545 bytes; 65,536 is the most. Keep ids, not what they are of."),
        *((lambda value=value: NotAdmitted(why="b", retry_after=value), f"{WEEK}{value!r}.")
          for value in (-1, float("nan"), float("inf"), True, "x", 604_801.0)),
        *((lambda kind=kind: kind(why=None), f"why of {kind.__name__} is a text, not None.")
          for kind in (NotAdmitted, Refused, Failed, Lost, Suppressed)),
        (lambda: Failed(why="no", for_good=1), "for_good of Failed is True or False, not 1."),  # type: ignore[arg-type]
    ],
)
def test_a_verdict_that_cannot_be_stored_cannot_be_made(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert told(caught.value) == says


def test_a_result_is_kept_as_json_gives_it_back() -> None:
    mine: dict[str, Any] = {"ids": (1, 2)}
    verdict = Accepted(result=mine)
    mine["late"] = object()
    assert verdict.result == {"ids": [1, 2]}


TERM = "term_seconds is a number of seconds above 0 and at most 86400, not "


@pytest.mark.parametrize("value", [0, -5, float("nan"), float("inf"), "x", True, None, 86_401])
def test_a_term_is_above_0_and_at_most_a_day(box: Outbox, owe: Owe, value: Any) -> None:
    owe("one")
    (claim,) = box.claim(TELEGRAM)
    for call in (
        lambda: box.renew(claim, term_seconds=value), lambda: box.claim(TELEGRAM, term_seconds=value),
        lambda: box.deliver(lambda claim: None, TELEGRAM, term_seconds=value),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert told(caught.value) == f"{TERM}{value!r}."


@pytest.mark.parametrize("limit", [0, 1001, True, 1.0, "1"])
def test_a_limit_is_a_whole_number_up_to_1000(box: Outbox, limit: Any) -> None:
    for call in (lambda: box.claim(TELEGRAM, limit=limit), lambda: box.deliver(lambda claim: None, [], limit=limit)):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert told(caught.value) == f"limit is a whole number from 1 to 1000, not {limit!r}."


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("telegram", "transports is a list of names, not 'telegram'. Give ['telegram']."),
        (b"telegram", "transports is a list of names, not b'telegram'."),
        (None, "transports is a list of names, not None."),
        ([1], "A name in transports is a text of at most 512 characters without NUL and lone surrogates, not empty,"
              " not 1."),
        (["\ud800"], "A name in transports is a text of at most 512 characters without NUL and lone surrogates, not"
                     " empty, not '\\ud800'."),
    ],
)
def test_transports_and_kinds_are_lists_of_names(box: Outbox, given: Any, says: str) -> None:
    for call in (box.claim, lambda given: box.deliver(lambda claim: None, given)):
        with pytest.raises(InvalidInput) as caught:
            call(given)
        assert told(caught.value) == says
    if given is not None:
        with pytest.raises(InvalidInput) as caught:
            box.claim(TELEGRAM, kinds=given)
        assert told(caught.value) == says.replace("transports", "kinds")


def test_siblings_of_other_kinds_and_those_not_due_stay(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("final", batch="run")
    owe("stop", batch="run", kind="stop")
    owe("later", batch="run", due_at=fake_clock.now() + 100)
    (claim,) = box.claim(TELEGRAM, kinds=["final"], limit=5)
    assert [one.dedupe_id for one in claim] == ["final"]
    assert (box.get("stop").fence, box.get("later").fence) == (0, 0)
    (claim,) = box.claim(TELEGRAM, limit=5)
    assert [one.dedupe_id for one in claim] == ["stop"]
    fake_clock.advance(100.0)
    assert "later" in [one.dedupe_id for claim in box.claim(TELEGRAM, limit=5) for one in claim]
