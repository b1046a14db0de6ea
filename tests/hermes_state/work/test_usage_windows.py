"""R120: what is left of an account, with its time; none rather than stale when a fetch overruns its deadline."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.routing import Home, home_of
from hermes_state.store import Store, open_store
from hermes_state.work.usage_windows import DEADLINE_SECONDS, AccountUsage, UsageWindow

WEEKLY = UsageWindow(name="weekly", used=12.5, limit=100.0, unit="percent", resets_at=1_800_100_000.0)
ROLLING = UsageWindow(name="rolling", used=3, limit=None, unit="requests")


@pytest.fixture(name="store")
def usage_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "home", clock=fake_clock, durability="process") as opened:
        yield opened


@pytest.fixture(name="home")
def home_of_store(store: Store) -> Home:
    return home_of(store.core)


def test_r120_what_is_fetched_is_kept_with_its_time(store: Store, home: Home, fake_clock: FakeClock) -> None:
    usage, at = store.work.usage, fake_clock.now()
    found = usage.fetch("p", "a", home, lambda: [WEEKLY, ROLLING])
    assert found == AccountUsage(provider="p", account="a", windows=(WEEKLY, ROLLING), as_of=at)
    fake_clock.advance(60.0)
    assert usage.known("p", "a", within_seconds=60.0) == found
    assert usage.known("p", "a", within_seconds=59.0) is None
    assert usage.known("p", "b", within_seconds=60.0) is None
    fake_clock.advance(-61.0)
    assert usage.known("p", "a", within_seconds=600.0) is None  # said at a time that has not come


def test_r120_an_overrun_gives_none_and_not_what_was_known(store: Store, home: Home) -> None:
    """The deadline is 10 s; here it is a short one, and the fetch ends only after it was given up."""
    assert DEADLINE_SECONDS == 10.0
    usage = store.work.usage
    usage.fetch("p", "a", home, lambda: [ROLLING])
    given_up, ended = threading.Event(), threading.Event()

    def slow() -> list[UsageWindow]:
        given_up.wait(60)
        ended.set()
        return [WEEKLY]

    assert usage.fetch("p", "a", home, slow, deadline_seconds=0.02) is None
    given_up.set()
    assert ended.wait(60)
    # What came too late was thrown away: what is known is what was said before, at its time.
    known = usage.known("p", "a", within_seconds=60.0)
    assert known is not None
    assert known.windows == (ROLLING,)


def test_nothing_said_is_none_and_a_failure_is_raised(store: Store, home: Home) -> None:
    assert store.work.usage.fetch("p", "a", home, lambda: None) is None

    def fails() -> None:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        store.work.usage.fetch("p", "a", home, fails)


def test_a_fetch_sees_the_context_of_its_caller(store: Store, home: Home) -> None:
    scope = contextvars.ContextVar("scope", default="outside")
    scope.set("inside")
    seen: list[str] = []
    store.work.usage.fetch("p", "a", home, lambda: seen.append(scope.get()))
    assert seen == ["inside"]


def test_an_older_answer_does_not_replace_a_newer_one(store: Store, home: Home, fake_clock: FakeClock) -> None:
    usage, at = store.work.usage, fake_clock.now()
    usage.keep("p", "a", home, [WEEKLY], as_of=at)
    usage.keep("p", "a", home, [ROLLING], as_of=at - 1.0)
    known = usage.known("p", "a", within_seconds=1.0)
    assert known is not None
    assert known.windows == (WEEKLY,)
    assert usage.forget("p", "a", home)
    assert not usage.forget("p", "a", home)


def test_an_answer_from_a_time_that_has_not_come_gives_way(store: Store, home: Home, fake_clock: FakeClock) -> None:
    usage = store.work.usage
    fake_clock.step_wall(30 * 86_400.0)
    usage.fetch("p", "a", home, lambda: [WEEKLY])
    fake_clock.step_wall(-30 * 86_400.0)
    usage.fetch("p", "a", home, lambda: [ROLLING])
    known = usage.known("p", "a", within_seconds=60.0)
    assert known is not None
    assert known.windows == (ROLLING,)
    with pytest.raises(InvalidInput, match="as_of is a time in epoch seconds UTC"):
        usage.keep("p", "a", home, [WEEKLY], as_of=float("nan"))


def test_an_account_whose_fetch_hangs_has_one_thread_however_often_it_is_asked_for(store: Store, home: Home) -> None:
    usage, given_up = store.work.usage, threading.Event()
    begun: list[int] = []

    def slow() -> list[UsageWindow]:
        begun.append(1)
        given_up.wait(60)
        return [WEEKLY]

    for _ in range(5):
        assert usage.fetch("p", "a", home, slow, deadline_seconds=0.01) is None
    assert len(begun) == 1
    assert usage.fetch("p", "b", home, lambda: [ROLLING]) is not None
    given_up.set()
    usage._hanging["p", "a"].join(60)
    assert usage.fetch("p", "a", home, lambda: [ROLLING]) is not None


def test_an_asynchronous_fetch_is_refused(store: Store, home: Home) -> None:
    async def later() -> None:
        raise AssertionError

    with pytest.raises(InvalidInput) as refused:
        store.work.usage.fetch("p", "a", home, later)  # type: ignore[arg-type]
    assert str(refused.value) == "The fetch of an account's usage is a plain function, not an asynchronous one."


@pytest.mark.parametrize(("fields", "message"), [
    ({"used": float("nan")}, "used of a usage window is a number from 0, not nan."),
    ({"used": -1}, "used of a usage window is a number from 0, not -1."),
    ({"limit": True}, "limit of a usage window is a number from 0, not True."),
])
def test_numbers_that_are_none_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        UsageWindow(**{"name": "n", "used": 0.0, "limit": None, "unit": "u"} | fields)  # type: ignore[arg-type]
    assert str(refused.value) == message
