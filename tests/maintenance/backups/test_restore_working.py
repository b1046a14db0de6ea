"""Replies, lanes, logins, dead targets and background work after older content was put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.outbox import Accepted
from hermes_state.routing import Inbound, Route, Source, Transport, resolve
from hermes_state.store import Store
from hermes_state.work.background import Tell
from hermes_state.work.login_states import Failure
from hermes_state.work.notices import Notice
from hermes_state.work.states import Mode
from hermes_state.work.targets import SendFailure
from maintenance.backups import backup
from tests.maintenance.backups.making import put_back, query, tidy

ANN = Source(platform="telegram", chat_type="dm", chat_id="7", user_id="ann")
KEY = "agent:main:telegram:dm:7"
TURN = Tell(mode=Mode.TURN, transport="telegram", target="7")


def bound(store: Store) -> Route:
    home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=home)
    identity = resolve(ANN, receiver=bot, live=[bot], served={"default": home}, multiplexed=False)
    return store.routing.bind(Inbound(source=ANN, identity=identity), store.sessions.create(source="telegram").id)


def take(store: Store, route: Route) -> list[str]:
    with store.turn(route.session_id) as turn:
        taken = store.work.lanes.take(turn, route, store.routing.home)
        if taken.message_id is not None:
            turn.messages.append(route.session_id, role="assistant", content="Answer")
    return [one.key for one in taken.items]


def ended(store: Store, name: str) -> None:
    home, group = store.routing.home, store.work.processes
    process = group.register(name, home, command="make", epoch="e", session_key=KEY, tell=TURN)
    group.exited(group.running(process, home, 77, scope="sandbox"), home, exit_code=0)


@pytest.mark.slow
def test_nothing_is_answered_sealed_or_told_a_second_time_and_what_waits_goes_on_waiting(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        home, work = store.routing.home, store.work
        route = bound(store)
        work.lanes.add(KEY, "answered since", "One", home)
        work.streams.begin("sealed since", home, transport="telegram", target="7")
        work.targets.failed("telegram", "8", home, SendFailure.FORBIDDEN)
        ended(store, "told later")
        attempt = work.logins.begin(ANN, home)
    db = tidy(tmp_path / "state.db")
    made = backup(db)
    with open_store(path=db) as store:
        work = store.work
        assert take(store, route) == ["message/answered since"]
        work.lanes.add(KEY, "waits", "Two", home)
        work.streams.message("sealed since", home, "m1")
        work.streams.finish("sealed since", "Hello.", home)
        assert len(work.streams.deliver(lambda part: Accepted(result={"message_id": "m1"}), ["telegram"])) == 1
        work.targets.succeeded("telegram", "8", home)
        work.targets.failed("telegram", "9", home, SendFailure.CHAT_NOT_FOUND)
        work.logins.failed(attempt.attempt_id, home, Failure.DECLINED)
    put_back(made.path, tidy(db))
    told: list[str | None] = []

    def admit(notice: Notice) -> Accepted:
        told.append(notice.session_id)
        return Accepted()

    with open_store(path=db) as store:
        work, home = store.work, store.routing.home
        now = store.routing.get(KEY)
        assert now is not None and now.generation > route.generation
        reply = work.streams.get("sealed since")
        assert reply is not None and (str(reply.state), reply.message_id) == ("sealed", "m1")
        assert work.streams.deliver(lambda part: Accepted(), ["telegram"]) == []
        assert work.targets.get("telegram", "8") is None
        assert work.targets.get("telegram", "9") is not None
        assert take(store, now) == ["message/waits"]
        work.notices.deliver(admit, ["telegram"], limit=10)
        assert told == [now.session_id]
        begun = work.logins.begin(ANN, home)
        assert begun.attempt_id != attempt.attempt_id
    assert query(db, "SELECT state, reason FROM login_attempts WHERE ended_at IS NOT NULL") == [("failed", "declined")]


def test_what_waited_in_a_lane_of_the_backup_is_still_taken_after_a_restore(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        bound(store)
        store.work.lanes.add(KEY, "1", "One", store.routing.home)
    db = tidy(tmp_path / "state.db")
    made = backup(db)
    put_back(made.path, db)
    with open_store(path=db) as store:
        now = store.routing.get(KEY)
        assert now is not None
        assert take(store, now) == ["message/1"]
