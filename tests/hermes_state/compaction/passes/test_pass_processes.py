"""Passes of several processes: kill -9, one at work, one that has the write lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction import passes
from hermes_state.engine import open_write
from hermes_state.errors import LockTimeout
from tests.hermes_state.compaction.passes.talks import rows, talk, words
from tests.support.children import Child, Children

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
MAKER = """
    import gates
    from hermes_state import open_store
    from tests.hermes_state.compaction.passes.talks import words
    def summarizer(request):
        gates.reach("asked")
        gates.wait("go")
        return "Parts 0 to 6 were looked at. Part 2 listens on port 4002."
    with open_store(path={path!r}) as store:
        outcome = store.compaction.compact("one", window=4_000, counter=words, fixed_tokens=200, summarizer=summarizer)
        print(outcome.state, outcome.why, outcome.form)
"""


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        talk(opened, 9)
        yield opened


@pytest.fixture
def maker(store: Store, child: Children) -> Child:
    """Another process that is making a pass and waits for its summariser."""
    started = child(MAKER.format(path=str(store.path)))
    started.wait_for("asked")
    return started


@pytest.mark.slow
def test_the_next_process_compacts_at_once_when_one_was_killed_while_it_waited_for_its_model(
    store: Store, maker: Child
) -> None:
    before, said = store.messages.context("one"), rows(store)
    store.messages.append("one", role="user", content="said meanwhile")
    maker.kill()
    assert store.messages.context("one") == [*before, {"role": "user", "content": "said meanwhile"}]
    outcome = store.compaction.compact("one", **OPTIONS)
    assert (outcome.state, outcome.generation) == ("compacted", 2)
    first, second = store.compaction.generations("one")
    assert (first.state, first.error and first.error["code"], second.state) == ("failed", "maker_gone", "done")
    assert store.messages.context("one")[-1] == {"role": "user", "content": "said meanwhile"}
    assert rows(store) == [*said, ("user", "said meanwhile")]


@pytest.mark.slow
def test_a_pass_whose_maker_was_killed_is_ended_by_the_next_program_that_looks(store: Store, maker: Child) -> None:
    assert store.compaction.status("one").running is not None
    maker.kill()
    with open_store(path=store.path) as again:
        status = again.compaction.status("one")
    assert status.running is None
    assert status.newest is not None and status.newest.error is not None
    assert (status.newest.state, status.newest.error["code"]) == ("failed", "maker_gone")


@pytest.mark.slow
def test_while_another_process_makes_a_pass_the_turn_goes_on_without(store: Store, maker: Child) -> None:
    before = store.messages.context("one")
    outcome = store.compaction.compact("one", **OPTIONS)
    assert (outcome.state, outcome.why, outcome.next) == ("not_compacted", "running", "await_user")
    assert outcome.detail.startswith(f"Session 'one' of {store.path} is being compacted by process {maker.pid} on ")
    running = store.compaction.status("one").running
    assert running is not None and running.owner is not None and running.owner.pid == maker.pid
    assert store.messages.context("one") == before
    maker.release("go")
    assert maker.finish().split() == ["compacted", "due", "model"]
    assert "Part 2 listens on port 4002" in store.messages.context("one")[0]["content"]
    assert store.compaction.compact("one", **OPTIONS).why == "room"


@pytest.mark.slow
def test_a_pass_whose_lease_ran_out_and_was_given_up_is_superseded_and_the_others_stands(
    store: Store, maker: Child, fake_clock: FakeClock
) -> None:
    maker.freeze()
    fake_clock.advance(61.0)
    assert store.compaction.compact("one", **OPTIONS).changed
    view = store.messages.context("one")
    maker.thaw()
    maker.release("go")
    assert maker.finish().split()[0] == "superseded"
    assert store.messages.context("one") == view
    first, second = store.compaction.generations("one")
    # "failed" when it was told by a renewal, "superseded" when only its commit was.
    assert first.state in ("failed", "superseded") and second.state == "done"


def test_a_lock_that_another_has_means_not_compacted_and_no_exception(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "LOCK_SECONDS", 0.05)
    before = store.messages.context("one")
    with open_write(store.path) as other, other.transaction():
        outcome = store.compaction.compact("one", **OPTIONS)
        assert (outcome.state, outcome.why) == ("not_compacted", "lock_timeout")
        assert isinstance(outcome.error, LockTimeout) and store.messages.context("one") == before
    assert store.compaction.compact("one", **OPTIONS).changed
