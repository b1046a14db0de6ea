"""Chats and people after older content was put back: nobody who was put out comes in, no conversation begins anew."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import open_exclusive
from hermes_state.errors import HomeRemoved, RouteMoved
from hermes_state.routing import State
from maintenance.backups import backup
from maintenance.replacement.routing import LOST, NOT_THERE
from tests.maintenance.backups.making import put_back, query, tidy
from tests.maintenance.native_stores import new_store
from tests.maintenance.replacement.replacing import overwrite
from tests.support.cli import RunCli
from tests.support.native_release import FOLDER
from tests.support.routes import bound, event, locked, paired, reset

pytestmark = pytest.mark.slow


def chats(db: Path) -> dict[str, tuple[str, str, str]]:
    """Of each chat its state, why, and its session."""
    with open_store(path=db, read_only=True) as store:
        return {
            one.key.chat_id: (str(one.state), one.state_reason, one.session_id) for one in store.routing.page(limit=100)
        }


def people(db: Path) -> list[str]:
    with open_store(path=db, read_only=True) as store:
        return [one.user_id for one in store.routing.pairing.paired()]


@pytest.fixture(name="db")
def db_with_nothing(tmp_path: Path) -> Path:
    return new_store(tmp_path)


def test_what_was_decided_about_chats_since_the_backup_stays(db: Path) -> None:
    with open_store(path=db) as store:
        for chat in ("same", "stopped", "reset", "forgotten", "resumes", "bot"):
            bound(store, chat)
        store.sessions.create(id="old too", source="telegram")
        bound(store, "moved")
        resumed = store.routing.get("agent:main:telegram:dm:resumes")
        assert resumed is not None
        store.routing.resume_later(resumed, store.routing.home, reason="restart")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        home, routing = store.routing.home, store.routing
        found = {one.key.chat_id: one for one in routing.page()}
        routing.suspend(found["stopped"], home, reason="stuck")
        last = reset(store, found["reset"], "later")
        routing.forget(found["forgotten"], home, actor="test", reason="left")
        routing.reset(found["moved"], home, "old too", reason="chosen")
        routing.go_on(found["bot"], event(store, "bot", bot="work"))
        bound(store, "new", "later 2")
    tidy(db)
    done = put_back(made.path, db)
    assert chats(db) == {
        "same": ("active", "", "session of same"), "stopped": ("suspended", "stuck", "session of stopped"),
        "reset": ("suspended", LOST, "later"), "moved": ("active", "", "old too"),
        "resumes": ("active", "", "session of resumes"), "bot": ("active", "", "session of bot"),
        "new": ("suspended", LOST, "later 2"),
    }
    assert done.replaced is not None and done.replaced.routing.document() == {
        "routes": 5, "stopped": 2, "forgotten": 1, "unpaired": 0, "paired": 0, "codes": 0, "removed": False,
        "generation": 2,
    }
    with open_store(path=db) as store:
        now = {one.key.chat_id: one for one in store.routing.page()}
        assert {one.generation for one in now.values()} == {3}
        assert now["bot"].transport_profile == "work"
        with pytest.raises(RouteMoved):
            store.routing.suspend(last, store.routing.home, reason="decided over the old content")
        assert bound(store, "forgotten", "session of forgotten").generation == 3
    assert query(db, "SELECT keys FROM deletions WHERE kind = 'route'") == [('["agent:main:telegram:dm:forgotten"]',)]


def test_a_chat_that_was_compacted_since_goes_on_in_the_earlier_part_of_the_same_conversation(db: Path) -> None:
    with open_store(path=db) as store:
        first = bound(store, "1", "talk 1")
        bound(store, "2", "other")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        store.sessions.continue_as("talk 1", new_id="talk 1 b")
        store.routing.follow(first, store.routing.home, "talk 1 b")
    tidy(db)
    put_back(made.path, db)
    assert chats(db) == {"1": ("active", "", "talk 1"), "2": ("active", "", "other")}


def test_a_chat_without_its_bot_gets_none_and_one_of_the_backup_alone_needs_a_new_session(
    db: Path, tmp_path: Path
) -> None:
    early = backup(tidy(db), to=tmp_path / "early")
    with open_store(path=db) as store:
        bound(store, "1")
        store.routing.take_in(
            {
                "session_key": "agent:main:telegram:dm:8", "session_id": "session of 1",
                "origin": {"platform": "telegram", "chat_type": "dm", "chat_id": "8"},
            },
            store.routing.home,
        )
    late = backup(tidy(db), to=tmp_path / "late")
    overwrite(db, bytes(4096))
    put_back(early.path, db)
    assert chats(db) == {}
    done = put_back(late.path, db)
    assert chats(db) == {chat: ("suspended", NOT_THERE, "session of 1") for chat in ("1", "8")}
    with open_store(path=db) as store:
        assert [one.transport_profile for one in store.routing.page()] == ["default", None]
        assert {one.generation > 1_000_000 for one in store.routing.page()} == {True}
    assert done.replaced is not None and done.replaced.routing.stopped == 2


def test_who_was_put_out_or_let_in_since_stays_so(db: Path) -> None:
    with open_store(path=db) as store:
        for name in ("stays", "put out"):
            paired(store, name)
        code = store.routing.pairing.request("telegram", "asked", store.routing.home)
        locked(store, "discord")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        home, pairing = store.routing.home, store.routing.pairing
        assert pairing.revoke("telegram", "put out", home)
        assert pairing.approve("telegram", code, home, by="test") is not None
        assert pairing.revoke("telegram", "asked", home)
        paired(store, "let in")
        with store.core.writer.transaction() as tx:
            tx.execute("DELETE FROM pairing_failures")  # its hour is over
        locked(store, "matrix")
    tidy(db)
    done = put_back(made.path, db)
    assert people(db) == ["let in", "stays"]
    assert query(db, "SELECT platform, failures FROM pairing_failures") == [("matrix", 5)]
    with open_store(path=db) as store:
        assert store.routing.pairing.approve("telegram", code, store.routing.home, by="thief") is None
    assert done.replaced is not None
    assert (done.replaced.routing.unpaired, done.replaced.routing.paired, done.replaced.routing.codes) == (1, 1, 1)


def test_where_the_old_store_cannot_be_read_nobody_is_believed_and_chats_go_on(
    db: Path, run_cli: RunCli
) -> None:
    with open_store(path=db) as store:
        paired(store, "friend")
        code = store.routing.pairing.request("telegram", "asked", store.routing.home)
        bound(store, "1")
        stopped = bound(store, "2")
        store.routing.suspend(stopped, store.routing.home, reason="stuck")
    made = backup(tidy(db))
    overwrite(db, bytes(4096))
    asked = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run")
    assert asked.exit_code == 0, asked.stderr
    assert (
        "1 person would be not paired any more, since that was taken back after the backup or nobody knows whether it "
        "was: pair those again who may write" in asked.stdout
    )
    assert "1 pairing code opens nothing any more" in asked.stdout
    done = put_back(made.path, db)
    assert people(db) == []
    assert chats(db) == {"1": ("active", "", "session of 1"), "2": ("suspended", "stuck", "session of 2")}
    with open_store(path=db) as store:
        assert store.routing.pairing.approve("telegram", code, store.routing.home, by="thief") is None
        assert store.routing.page()[0].generation == 1_000_002
    assert done.replaced is not None and done.replaced.routing == done.plan.routing


def test_a_removed_home_stays_removed_and_a_dry_run_says_what_then_is_done(db: Path, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        bound(store, "1")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        bound(store, "2")
        store.routing.remove_home(store.routing.home, actor="test", reason="profile deleted")
    tidy(db)
    before = db.read_bytes()
    asked = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run", "--json").json
    assert db.read_bytes() == before
    lines = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run").stdout
    assert "the home is marked as removed and stays so: nothing is written for it" in lines
    assert "1 chat would need a new session: the one that it goes on in is not in both" in lines
    assert "routing_entries" not in lines
    assert (
        "every conversation would be of a generation above 1; no turn is taken up, and a chat that names no bot names "
        "none" in lines
    )
    done = put_back(made.path, db)
    assert done.replaced is not None and done.replaced.routing.document() == asked["routing_then"] | {"generation": 1}
    with open_store(path=db) as store:
        assert [one.state for one in store.routing.page()] == [State.ACTIVE, State.SUSPENDED]
        with pytest.raises(HomeRemoved):
            bound(store, "3")


@pytest.mark.parametrize("readable", [True, False])
def test_a_backup_from_before_routing_takes_the_stores_and_its_generations_do_not_begin_again(
    tmp_path: Path, readable: bool
) -> None:
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(gzip.decompress((FOLDER / "0.6.0-filled.db.gz").read_bytes()))
    made = backup(tidy(db))
    with open_store(path=db) as store:
        first = bound(store, "1", "talk-2")
        for number in range(3):
            first = reset(store, first, f"later {number}")
        paired(store, "friend")
    tidy(db)
    if not readable:
        overwrite(db, bytes(4096))
    done = put_back(made.path, db)
    assert done.replaced is not None and done.plan.routing == done.replaced.routing
    assert people(db) == (["friend"] if readable else [])
    assert chats(db) == ({"1": ("suspended", LOST, "later 2")} if readable else {})
    assert done.replaced.routing.routes == int(readable)
    with open_store(path=db) as store:
        assert bound(store, "2", "talk-2").generation > first.generation == 4


def test_a_backup_of_another_store_lets_in_nobody(db: Path, tmp_path: Path) -> None:
    other = new_store(tmp_path / "other")
    with open_store(path=other) as store:
        paired(store, "friend")
        bound(store, "1")
    made = backup(tidy(other))
    with open_store(path=db) as store:
        paired(store, "mine")
        bound(store, "2")
    put_back(made.path, tidy(db), new_store=True)
    assert people(db) == []
    assert chats(db) == {"1": ("active", "", "session of 1")}


def test_a_content_from_before_routing_changes_nothing_of_a_later_backup(tmp_path: Path, db: Path) -> None:
    with open_store(path=db) as store:
        bound(store, "1")
        paired(store, "friend")
    made = backup(tidy(db))
    with open_exclusive(db) as store, store.transaction() as tx:
        for name in ("routing_home", "routing_entries", "routing_unserved", "pairing_requests", "pairing_users"):
            tx.execute(f"DROP TABLE {name}")
        tx.execute("DROP TABLE pairing_failures")
    put_back(made.path, tidy(db))
    assert (people(db), chats(db)) == (["friend"], {"1": ("active", "", "session of 1")})


