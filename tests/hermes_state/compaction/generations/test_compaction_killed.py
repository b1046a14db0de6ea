"""kill -9 at every point of a pass: the whole old view or the whole new one, and what was said meanwhile is there.

| killed | on reopening |
|---|---|
| before begin, after begin | old view; the running row is failed by whoever looks |
| while the model writes | old view, with what was appended meanwhile |
| before each statement of the commit, and after the last | old view |
| after the commit | new view; what the caller has in memory adds nothing when it is flushed again |

Every file operation of a pass is killed, failed and cut off by `tests/faults` (operation `compaction`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.generations import Watch, generations_of, settle_stale
from hermes_state.store import Store
from tests.support.children import Children
from tests.support.compacting import compact, contents, talk

MAKER = """
    import os, signal, sys
    import gates
    from hermes_state.compaction.generations import commit
    from hermes_state.engine.transaction import Transaction
    from hermes_state.store import open_store
    from tests.support.compacting import begun, made

    path, point = sys.argv[1:3]

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def dies_at(statement):
        # The statements of the commit are counted; each is a call of one of these two.
        seen = 0

        def counting(method):
            def call(tx, *given):
                nonlocal seen
                if seen == statement:
                    die()
                seen += 1
                done = method(tx, *given)
                if statement == 4 and seen == 4:
                    die()  # after the last one, before the commit of the transaction
                return done
            return call

        Transaction.execute = counting(Transaction.execute)
        Transaction.executemany = counting(Transaction.executemany)

    with open_store(path=path) as store:
        if point == "before begin":
            die()
        running = begun(store, "s", 5)
        gates.reach("begun")
        if point == "after begin":
            die()
        gates.wait("go on")
        if point.startswith("statement"):
            dies_at(int(point.split()[1]))
        commit(store.core, running, made("S"))
        die()
"""
OLD = [f"m{number}" for number in range(1, 9)]
POINTS = {
    "before begin": [], "after begin": ["failed"], "during the model": ["failed"],
    "statement 0": ["failed"], "statement 1": ["failed"], "statement 2": ["failed"], "statement 3": ["failed"],
    "statement 4": ["failed"], "after commit": ["done"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def flushed(store: Store) -> list[int]:
    """What the program has in memory, written as a flush does: every message under its key."""
    rows = [
        {"role": "user" if number % 2 else "assistant", "content": f"m{number}", "client_key": f"k{number}"}
        for number in range(1, 9)
    ]
    return store.messages.append_many("s", rows)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_pass_leaves_the_old_view_or_the_new_one(point: str, path: Path, child: Children) -> None:
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
        ids = flushed(store)
    maker = child(MAKER, path, point)
    said = []
    if point not in ("before begin", "after begin"):
        maker.wait_for("begun")
        with open_store(path=path) as store:
            for text in ("URGENT", "and more"):
                store.messages.append("s", role="user", content=text, durability="power")
                said.append(text)
        if point == "during the model":
            maker.kill()
        else:
            maker.release("go on")
    assert maker.wait() == -9
    with open_store(path=path) as store:
        assert contents(store) == (["S\n\nm5", "m6", "m7", "m8"] if point == "after commit" else OLD) + said
        settled = settle_stale(store.core, Watch(store.core))
        with store.core.reader() as reader:
            assert [one.state for one in generations_of(reader, 1)] == POINTS[point]
        assert [dict(one.error or {})["code"] for one in settled] == ["maker_gone"] * POINTS[point].count("failed")
        before = contents(store)
        assert flushed(store) == ids
        assert contents(store) == before
        done = compact(store, "s", 7, summary="next")
        assert (done.state, contents(store)) == ("done", ["next\n\nm7", "m8", *said])
        assert store.messages.count() == 8 + len(said)


@pytest.mark.slow
def test_of_two_processes_that_commit_one_parent_one_is_done(
    path: Path, child: Children, fake_clock: FakeClock
) -> None:
    with open_store(path=path) as store:
        talk(store, 8)
        maker = child(MAKER, path, "after commit")
        maker.wait_for("begun")
        fake_clock.advance(61)
        assert compact(store, "s", 7, summary="ours").state == "done"
        maker.release("go on")
        maker.wait()
        with store.core.reader() as reader:
            assert [(one.state, one.summary) for one in generations_of(reader, 1)] == [
                ("superseded", "S"), ("done", "ours"),
            ]
        assert contents(store) == ["ours\n\nm7", "m8"]
