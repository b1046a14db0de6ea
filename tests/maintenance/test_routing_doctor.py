"""The doctor on routing, what a scrub makes of its texts, and what stays where it is when sessions move."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import open_read, open_write
from hermes_state.host import open_host
from hermes_state.store import Store, open_store
from maintenance.dialects.native.routed import routes_lacking
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_routing import routing_findings
from maintenance.interop.give_back import give_back, make_plan
from maintenance.scrub.patterns import Redactor, rules_for
from maintenance.scrub.work import look
from tests.maintenance.adopting import adopt_in_place
from tests.maintenance.scrub.scrubbing import scrubbed
from tests.maintenance.staying import pruned, sent_across
from tests.maintenance.test_gateway_doctor import force
from tests.support.cli import RunCli
from tests.support.native_release import FOLDER
from tests.support.routes import bound, paired, reset, route
from tests.support.space import context
from tests.support.stores import StoreCopy


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db", clock=fake_clock) as opened:
        yield opened


def findings(store: Store) -> dict[str, Finding]:
    with open_read(store.core.path) as reader:
        return {one.code: one for one in routing_findings(reader, store.core.clock, deep=False)}


def keys(store: Store) -> list[str]:
    return [one.session_key for one in store.routing.page()]


def test_what_there_is_of_routing_is_counted_and_what_a_person_may_see_to_is_told(store: Store) -> None:
    assert findings(store)["routing"].sentence == "No chat is routed."
    route(store)
    told = findings(store)
    assert set(told) == {"routing", "not_served", "pairing_locked"}
    assert told["routing"].sentence == "7 chats (4 active, 1 expired, 1 resuming, 1 suspended); 1 person paired."
    assert told["not_served"].sentence == (
        "1 profile is not served on a platform (side on whatsapp: the bridge serves the default profile only); what it "
        "is sent is dropped: 0 so far."
    )
    assert told["pairing_locked"].sentence.startswith("Nobody is paired on discord before ")
    assert {one.severity for one in told.values()} == {Severity.OK, Severity.INFO}


def test_a_chat_whose_session_is_gone_is_told_and_one_that_is_stopped_is_not(store: Store) -> None:
    bound(store, "1", "talk")
    stopped = bound(store, "2", "talk 2")
    store.routing.suspend(stopped, store.routing.home, reason="stuck")
    store.sessions.delete(["talk", "talk 2"], actor="test", reason="test")
    told = findings(store)["route_without_session"]
    assert told.sentence == (
        "The session that 1 chat goes on in is not there (agent:main:telegram:dm:1): the next message of it begins a "
        "new one."
    )
    assert told.next_command == f"hermes-state routing list --db {store.core.path}" and told.severity is Severity.INFO


def test_rows_of_another_home_and_rows_that_cannot_be_read_are_problems(store: Store) -> None:
    bound(store, "1")
    bound(store, "2")
    force(store, "UPDATE routing_entries SET home = 'another' WHERE chat_id = '1'")
    told = findings(store)["route_of_another_home"]
    assert told.severity is Severity.WARNING and told.facts == {"chats": ["agent:main:telegram:dm:1"], "homes": [
        "another"
    ]}
    force(store, "UPDATE routing_entries SET chat_id = '3' WHERE chat_id = '2'")
    told = findings(store)["route_unreadable"]
    assert told.sentence == (
        "1 chat cannot be read (agent:main:telegram:dm:2: its parts are those of 'agent:main:telegram:dm:3'): another "
        "program or damage changed its entry."
    )


def test_a_home_that_was_removed_is_told(store: Store) -> None:
    store.routing.remove_home(store.routing.home, actor="test", reason="sold")
    assert findings(store)["home_removed"].sentence.endswith(" by test: sold. Nothing is written for it.")


def test_a_store_from_before_routing_says_so(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(gzip.decompress((FOLDER / "0.6.0-filled.db.gz").read_bytes()))
    ran = run_cli("doctor", "--db", db, "--json")
    (told,) = [one for one in ran.json["findings"] if one["code"] == "routing"]
    assert ran.exit_code == 0 and told["sentence"].startswith("There is no routing: the tables come with")


def test_the_file_of_a_host_is_called_so_and_checked(tmp_path: Path, run_cli: RunCli) -> None:
    open_host(tmp_path / "host").close()
    path = tmp_path / "host" / "host.db"
    ran = run_cli("doctor", "--db", path, "--json")
    told = {one["code"]: one for one in ran.json["findings"]}
    assert ran.exit_code == 0, ran.stdout
    assert told["host_file"]["sentence"] == (
        "This is the file of a host, schema step 2: it holds who serves which homes of one user, and no session. Its "
        "pages and references are checked like those of any store."
    )
    assert told["host_file"]["next_command"] == "hermes-state host status" and "pages" in told


# --- scrub -----------------------------------------------------------------------------------------------------------


def test_a_chat_is_scrubbed_with_its_key_its_people_and_its_origin_and_can_be_read(
    store: Store, fake_clock: FakeClock
) -> None:
    chat = bound(store, "hunter2", "talk", user_name="Ann hunter2", chat_name="at hunter2's", user_id="7")
    store.routing.choose_model(chat, store.routing.home, {"model": "hunter2", "base_url": "https://host/hunter2"})
    other = bound(store, "2", "talk 2")
    store.routing.suspend(other, store.routing.home, reason="it said hunter2")
    store.routing.refuse("telegram", "work", store.routing.home, reason="token hunter2 is wrong")
    paired(store, "hunter2")
    store.routing.pairing.request("telegram", "7", store.routing.home, user_name="hunter2")
    store.routing.remove_home(store.routing.home, actor="hunter2", reason="hunter2")
    changed = scrubbed(store, fake_clock)
    assert changed["routing_entries"] == 2
    assert {"pairing_users", "pairing_requests", "routing_unserved", "routing_home"} < set(changed)
    first, second = sorted(store.routing.page(), key=lambda one: one.session_id)
    assert first.key.chat_id == first.origin.chat_id != "hunter2" and first.origin.user_id == "7"
    assert first.session_key == f"agent:main:telegram:dm:{first.key.chat_id}" and first.session_id == "talk"
    assert first.origin.user_name.startswith("Ann [redacted") and first.model_override is not None
    assert first.generation == 1 and second.state_reason.startswith("it said [redacted")
    assert not store.routing.pairing.is_paired("telegram", "hunter2")


def test_a_secret_that_is_found_in_one_place_of_a_chat_only_leaves_no_chat_that_cannot_be_read(
    store: Store, fake_clock: FakeClock
) -> None:
    bound(store, "424242", "talk", user_id="777777")
    bound(store, "1", "talk 2", chat_type="group", user_id="424242", chat_name='said "424242"')
    scrubbed(store, fake_clock, r"^\d{6}$")
    for one in store.routing.page():  # reading raises for a key that is not that of its parts
        assert "424242" not in one.session_key and one.origin.user_id.startswith("[redacted")
    assert [one.origin.chat_name for one in store.routing.page(session_id="talk 2")] == ['said "424242"']


def test_words_of_ours_and_whose_bot_answers_are_no_texts_and_a_key_across_its_parts_is_not_called_gone(
    store: Store, fake_clock: FakeClock
) -> None:
    route(store)
    before = store.routing.page()
    pattern = "default$|work$|telegram$|active$|routed$|dm$"
    assert scrubbed(store, fake_clock, pattern).keys() <= {"changes", "sessions", "deletions"}
    assert store.routing.page() == before
    with open_write(store.core.path) as writer:
        assert look(writer, Redactor(rules_for(["dm:1$"], None)))["routing_entries"] == 1


# --- what stays ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_export_an_import_and_a_prune_leave_chats_where_they_are(
    store: Store, tmp_path: Path, run_cli: RunCli
) -> None:
    route(store)
    db = store.core.path
    store.close()
    other = sent_across(db, tmp_path, run_cli, never="agent:main")
    with open_store(path=other) as there:
        assert there.routing.page() == [] and there.routing.pairing.paired() == []
    with open_store(path=db) as here:
        before = keys(here)
    asked = run_cli("sessions", "delete", "routed", "routed 2", "routed 4", "--dry-run", "--db", db)
    assert "3 chats that go on in them go on in a new session then." in asked.stdout
    with open_store(path=db) as here:
        here.sessions.delete(["routed 2"], actor="test", reason="test")
    pruned(db, run_cli)
    with open_store(path=db) as here:
        assert keys(here) == before and len(here.routing.pairing.paired()) == 1
        chat = here.routing.get("agent:main:telegram:dm:2")
        assert chat is not None and reset(here, chat, "again").generation == 2


def test_a_copy_that_knows_more_of_chats_is_not_dropped_as_known(
    store: Store, tmp_path: Path, fake_clock: FakeClock
) -> None:
    route(store)
    db, copy = store.core.path, tmp_path / "copy.db"
    store.close()
    copy.write_bytes(db.read_bytes())

    def lacking() -> int:
        with open_read(copy) as there, open_read(db) as here:
            return routes_lacking(there, here)

    assert lacking() == 0
    with open_store(path=copy, clock=fake_clock) as there:
        chat = there.routing.get("agent:main:telegram:dm:1")
        assert chat is not None
        there.routing.suspend(chat, there.routing.home, reason="stuck")
        bound(there, "new")
        paired(there, "later")
        there.routing.remove_home(there.routing.home, actor="test", reason="sold")
    assert lacking() == 4
    fake_clock.advance(1.0)
    with open_store(path=db, clock=fake_clock) as here:
        chat = here.routing.get("agent:main:telegram:dm:2")
        assert chat is not None
        here.routing.forget(chat, here.routing.home, actor="test", reason="left")
        here.routing.pairing.revoke("telegram", "friend", here.routing.home)
        here.routing.remove_home(here.routing.home, actor="test", reason="sold")
    assert lacking() == 2  # whoever was put out here last is later than anybody whom the copy let in


@pytest.mark.slow
def test_the_way_back_to_hermes_agent_says_that_routing_stays_behind(store_copy: StoreCopy) -> None:
    db = store_copy("0.19.0")
    adopt_in_place(db)
    assert make_plan(context(db), db.with_name("a.db")).facts["routes"] == 0
    with open_store(path=db) as store:
        bound(store, "1")
    said = (
        "The routing of 1 chat stays in the store, with who is paired: hermes-agent goes by its own index and begins a "
        "new session where that has no entry."
    )
    assert make_plan(context(db), db.with_name("a.db")).lines[-1] == said
    report = give_back(context(db), db.with_name("back.db"))
    assert report.document()["routes"] == 1 and report.line().endswith(said)


