"""Background work, lanes, replies, logins and credentials of a damaged store: all, and the later of versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.routing import home_of
from hermes_state.work.background import Tell
from hermes_state.work.credentials import SecretFile, Secrets
from hermes_state.work.states import Mode
from hermes_state.work.targets import SendFailure
from maintenance.dialects.native.serving import later_of, tells_later
from maintenance.recovery.run import recover
from tests.maintenance.adopting import typed
from tests.maintenance.backups.making import damage_table, tidy
from tests.maintenance.recovery.recovering import little_space, native_store

__all__ = ["little_space"]
pytestmark = pytest.mark.usefixtures("little_space")
TABLES = (
    "background_work", "reply_seals", "lane_items", "dead_targets", "login_attempts", "credentials", "topic_chats",
    "model_facts", "provider_registrations", "account_usage", "outbox",
)


def working_store(folder: Path) -> Path:
    db = native_store(folder, sessions=3, messages=4)
    with open_store(path=db) as store:
        home, work = store.routing.home, store.work
        tell = Tell(mode=Mode.TURN, transport="telegram", target="7")
        work.processes.register("runs", home, command="make", epoch="e", tell=tell)
        done = work.delegations.dispatch("done", home, task={"goal": "look"}, tell=tell)
        work.delegations.completed(done, home, "found")
        work.streams.finish("t", "Hello.", home, transport="telegram", target="7")
        work.lanes.add("lane", "1", "One", home)
        work.targets.failed("telegram", "8", home, SendFailure.FORBIDDEN)
        store.routing.topics.set("telegram", "7", home, user_id="u", enabled=True)
        work.credentials.log_in(
            "nous", "a", home_of(store.core), secrets=SecretFile(folder / "secret.json"), auth_type="oauth",
            new=Secrets(access_token="a", refresh_token="b"),
        )
    return tidy(db)


def test_a_damaged_page_of_messages_takes_nothing_of_what_goes_on_beside_conversations(tmp_path: Path) -> None:
    db = working_store(tmp_path / "home")
    before = {table: typed(db, table) for table in TABLES}
    damage_table(db)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    assert {table: typed(report.output, table) for table in TABLES} == before
    with open_store(path=report.output) as store:
        assert [one.key for one in store.work.lanes.waiting("lane")] == ["message/1"]
        assert store.work.credentials.get("nous", "a") is not None


@pytest.mark.parametrize(
    ("table", "earlier", "later"),
    [
        ("lane_items", {"settled_at": None}, {"settled_at": 2.0}),
        ("login_attempts", {"ended_at": None}, {"ended_at": 2.0}),
        ("background_work", {"ended_at": None}, {"ended_at": 2.0}),
        ("reply_seals", {"changed_at": 1.0}, {"changed_at": 2.0}),
        ("credentials", {"rotation_fence": 1, "updated_at": 9.0}, {"rotation_fence": 2, "updated_at": 1.0}),
        ("routing_entries", {"generation": 1, "version": 9}, {"generation": 2, "version": 1}),
    ],
)
def test_of_two_versions_the_one_that_knows_more_is_the_later(
    table: str, earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    assert tells_later(table, [*earlier])
    assert later_of(table, earlier, later) is True
    assert later_of(table, later, earlier) is False
    assert later_of(table, earlier, earlier) is None
