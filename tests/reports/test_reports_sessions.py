"""Reports 110, 113 to 115, 119, 120: a conversation is whole, where the program says, and has nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.errors import SessionReplaced, StatementFailed
from hermes_state.store import Store
from tests.maintenance.native_stores import rows
from tests.support.children import Children
from tests.support.cli import RunCli


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        yield opened


def say(store: Store, session_id: str, *contents: str) -> None:
    store.messages.append_many(session_id, [{"role": "user", "content": text} for text in contents])


def contents(store: Store, session_id: str) -> list[object]:
    return [message["content"] for message in store.messages.context(session_id)]


# --- 110: the list of the program lacks sessions that the file has -----------------------------------------------


@pytest.mark.slow
def test_program_command_line_and_file_show_the_same_sessions(store: Store, run_cli: RunCli) -> None:
    for number in range(120):  # more than one page of any of them
        session = store.sessions.create(id=f"s{number:03}", source="cli" if number % 3 else "telegram").id
        say(store, session, f"message of {session}")
    for number in (3, 30):
        store.sessions.continue_as(f"s{number:03}", new_id=f"s{number:03}b")
    store.sessions.create(id="helper", source="subagent", parent_id="s005", relation="delegate")
    store.sessions.archive("s007")
    listed, page = [], store.sessions.list(limit=50)
    while page:
        listed += page
        page = store.sessions.list(limit=50, offset=len(listed))
    of_program = [entry.id for entry in listed]
    told = run_cli("sessions", "list", "--limit", "200", "--json").json
    assert [entry["id"] for entry in told["sessions"]] == of_program
    # Straight from the rows, by what each of them is rather than by any list's own query.
    in_file = {name for name, state, relation, archived in rows(
        store.path, "SELECT id, state, relation, archived_at FROM sessions"
    ) if (state, archived) == ("open", None) and relation in (None, "continuation")}
    assert (set(of_program), len(of_program)) == (in_file, 119)
    # And none of them opens blank.
    assert all(store.messages.count(store.sessions.lineage(name)[0].id) == 1 for name in of_program)


# --- 113, 114, 115: after a compression the chat is empty, or only its last part ---------------------------------


def test_a_conversation_of_four_segments_opens_whole_by_its_oldest_id(store: Store) -> None:
    names = ["root", "c1", "c2", "c3"]
    store.sessions.create(id="root", source="cli", title="Long talk")
    said = []
    for at, size in enumerate((20, 15, 15, 5)):
        if at:
            store.sessions.continue_as(names[at - 1], new_id=names[at])
        said += [f"{names[at]} {number}" for number in range(size)]
        say(store, names[at], *said[-size:])
    tip = store.sessions.tip("root")
    assert (tip.id, tip.title) == ("c3", "Long talk")
    assert [session.id for session in store.sessions.lineage("root")] == names
    (entry,) = store.sessions.list()
    assert entry.id == "c3"
    for name in names:
        shown = store.messages.history(name, chain=True, after=0, limit=100).messages
        assert [message.content for message in shown] == said


SWITCH = """
import sys, gates
from hermes_state import open_store
from hermes_state.errors import SessionReplaced

with open_store(path=sys.argv[1]) as store:
    session = store.sessions.get("a")
    store.messages.append(session.id, role="user", content="before the compression")
    gates.reach("holding a")
    gates.wait("compressed")
    try:
        store.messages.append(session.id, role="user", content="after it")
        print("appended to what nobody reads")
    except SessionReplaced as problem:
        print(problem)
        store.messages.append(problem.tip_id, role="user", content="after it")
"""


@pytest.mark.slow
def test_a_gateway_that_kept_the_old_id_is_told_the_new_one_and_its_message_is_not_lost(
    store: Store, child: Children
) -> None:
    store.sessions.create(id="a", source="telegram", session_key="telegram:7")
    gateway = child(SWITCH, store.path)
    gateway.wait_for("holding a")
    # The id of the conversation and where its peer is answered change in one transaction.
    new = store.sessions.continue_as("a", new_id="b")
    assert (new.session_key, store.sessions.get("a").state) == ("telegram:7", "replaced")
    gateway.release("compressed")
    assert gateway.finish() == f"Session 'a' of {store.path} was compressed and goes on as 'b'.\n"
    assert contents(store, "b") == ["after it"]
    assert contents(store, "a") == ["before the compression"]


# --- 119, 120: everything twice, four times, eight times ---------------------------------------------------------


def test_a_compaction_that_fails_and_is_flushed_again_three_times_adds_no_row(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    turn = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"message {number}", "client_key": f"k{number}"}
        for number in range(8)
    ]
    ids = store.messages.append_many("a", turn)
    store.core.write(lambda tx: tx.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON sessions WHEN new.state = 'replaced'"
        " BEGIN SELECT RAISE(ABORT, 'interrupted'); END"
    ))
    for again in range(3):
        with pytest.raises(StatementFailed, match="interrupted"):
            store.sessions.continue_as("a", new_id="b")
        assert store.messages.append_many("a", turn) == ids
        turn.append({"role": "user", "content": f"queued {again}", "client_key": f"queued {again}"})
        ids = store.messages.append_many("a", turn)
    assert (store.sessions.get("a").state, store.sessions.children("a")) == ("open", [])
    assert contents(store, "a") == [str(row["content"]) for row in turn]
    store.core.write(lambda tx: tx.execute("DROP TRIGGER full"))
    store.sessions.continue_as("a", new_id="b")
    # Delivered once more after the compression: known, in the session that has them.
    assert store.messages.append_many("b", turn) == ids
    assert contents(store, "b") == []


FLUSH = """
import sys, gates
from hermes_state import open_store

gates.reach("ready")
gates.wait("go")
turn = [{"role": "user", "content": f"message {n}", "client_key": f"turn {n}"} for n in range(120)]
with open_store(path=sys.argv[1]) as store:
    print(store.messages.append_many("b", turn))
"""


@pytest.mark.slow
def test_two_windows_that_flush_one_list_after_a_compression_store_it_once(store: Store, child: Children) -> None:
    store.sessions.create(id="a", source="desktop")
    store.sessions.continue_as("a", new_id="b")
    windows = [child(FLUSH, store.path) for _ in range(2)]
    for window in windows:
        window.wait_for("ready")
    for window in windows:
        window.release("go")
    assert len({window.finish() for window in windows}) == 1
    assert contents(store, "b") == [f"message {number}" for number in range(120)]
    with pytest.raises(SessionReplaced):
        store.messages.append("a", role="user", content="to the old one")
