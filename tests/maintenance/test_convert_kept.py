"""What adoption kept of hermes-agent's gateway becomes rows that are used, and can be given back as it was."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import open_store
from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from hermes_state.engine.migrate import migrate
from hermes_state.errors import Corrupt
from hermes_state.outbox import Accepted
from maintenance.doctor.findings import Finding
from maintenance.doctor.native_working import working_findings
from maintenance.interop.convert.convert import convert, look
from maintenance.interop.convert.records import Conversion
from maintenance.interop.give_back import give_back, make_plan
from tests.maintenance.adopting import adopt_in_place, adopt_to, query, typed
from tests.maintenance.kept_gateway import NOW, TABLES, adopted, entry, gateway_file
from tests.support.cli import RunCli
from tests.support.native_release import FOLDER
from tests.support.space import change, context
from tests.support.stores import StoreCopy

BECAME = {
    "gateway_routing": {"routing_entries": 1, "stays": 3},
    "telegram_dm_topic_bindings": {"routing_entries": 1, "stays": 1},
    "telegram_dm_topic_mode": {"topic_chats": 1},
    "delivery_obligations": {"outbox": 7, "stays": 2},
    "async_delegations": {"background_work": 4, "stays": 1},
}


def converted(native: Path) -> Conversion:
    with open_write(native) as store:
        return convert(store, SYSTEM)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that was adopted and not converted; it is only copied."""
    return adopted(StoreCopy(tmp_path_factory.mktemp("kept"))).parent


@pytest.fixture
def native(pattern: Path, tmp_path: Path) -> Path:
    """A copy of it, and of the file that it was made of."""
    shutil.copytree(pattern, tmp_path / "home")
    return tmp_path / "home" / "native.db"


def test_every_kept_row_is_converted_or_stays_with_its_reason(native: Path) -> None:
    done = converted(native)
    assert done.counts == BECAME
    assert done.rows == {table: sum(found.values()) for table, found in BECAME.items()}
    stays = {(one.table, one.key): one.why for one in done.outcomes if one.became == "stays"}
    assert set(stays) == {
        ("gateway_routing", "agent:main:telegram:dm:100"), ("gateway_routing", "agent:main:telegram:dm:200"),
        ("gateway_routing", "not json"), ("telegram_dm_topic_bindings", "10"),
        ("delivery_obligations", "long ago"), ("delivery_obligations", "of no release"),
        ("async_delegations", "odd"),
    }
    assert stays["gateway_routing", "agent:main:telegram:dm:100"] == (
        "Another scope has an entry of this key that was written later."
    )
    assert stays["gateway_routing", "agent:main:telegram:dm:200"] == f"There is no session 'nowhere' in {native}."
    assert stays["gateway_routing", "not json"] == "Its text is no JSON object."
    assert stays["delivery_obligations", "of no release"] == (
        "Its state is 'sent', which no release of hermes-agent writes."
    )


def test_a_chat_and_its_topic_go_on_where_they_were(native: Path) -> None:
    converted(native)
    with open_store(path=native) as store:
        chat = store.routing.get("agent:main:telegram:dm:100")
        topic = store.routing.get("agent:main:telegram:dm:100:9")
        assert chat is not None and topic is not None
        assert (chat.state, chat.state_reason, chat.transport_profile) == ("resuming", "restart", None)
        assert (topic.key.thread_id, topic.origin.thread_id) == ("9", "9")
        assert chat.session_id != topic.session_id
        mode = store.routing.topics.get("telegram", "100")
        assert mode is not None and mode.enabled and mode.user_id == "7"
        assert mode.details == {"has_topics_enabled": 1, "pinned_message_id": "55"}
        assert mode.activated_at == NOW - 80


def ask(native: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_read(native) as reader:
        return reader.rows(sql)


def test_what_was_owed_is_owed_once_and_marked_and_the_rest_is_history(native: Path) -> None:
    converted(native)
    sent: list[tuple[str, str, str | None, bool]] = []

    def handler(part: Any) -> Accepted:
        sent.append((part.obligation.transport, part.obligation.target, part.text, part.may_be_shown))
        return Accepted(result={"message_id": "m"})

    with open_store(path=native) as store:
        states = dict(ask(native, "SELECT substr(dedupe_id, 20), state FROM outbox WHERE kind = 'final'"))
        assert states == {
            "new": "pending", "tried": "pending", "on its way": "pending", "no more": "dropped",
            "stale": "suppressed", "done": "accepted", "given up": "dropped",
        }
        store.work.streams.deliver(handler, ["telegram", "telegram/work"], limit=10)
        assert sorted(sent) == [
            ("telegram", "100", "text of new", True), ("telegram", "100", "text of on its way", True),
            ("telegram/work", "100:9", "text of tried", True),
        ]
        assert store.work.streams.deliver(handler, ["telegram", "telegram/work"], limit=10) == []


def test_attempts_go_on_from_where_hermes_agent_was(native: Path) -> None:
    converted(native)
    found = dict(ask(native, "SELECT substr(dedupe_id, 20), attempts FROM outbox WHERE kind = 'final'"))
    assert (found["new"], found["tried"], found["on its way"], found["no more"]) == (0, 2, 1, 3)


def test_results_of_delegations_are_told_where_they_belong(native: Path) -> None:
    converted(native)
    rows = ask(native, "SELECT dedupe_id, kind, transport, target FROM outbox WHERE kind <> 'final'")
    assert sorted(rows) == [
        ("delegation/http", "display", "api_server", ""), ("delegation/owed", "completion", "telegram", "100"),
        ("delegation/terminal", "completion", "cli", "ui-1"),
    ]


def test_the_old_tables_come_back_equal_cell_by_cell(native: Path) -> None:
    original = native.with_name("state.db")
    before = {table: typed(original, table, "1, 2") for table in TABLES}
    converted(native)
    assert {table: typed(native, f"foreign_{table}", "1, 2") for table in TABLES} == before
    back = native.with_name("back.db")
    give_back(context(native), back)
    assert {table: typed(back, table, "1, 2") for table in TABLES} == before


def test_what_was_sent_here_since_is_not_sent_by_hermes_agent_after_the_way_back(native: Path) -> None:
    converted(native)
    with open_store(path=native) as store:
        store.work.streams.deliver(lambda _part: Accepted(), ["telegram"], limit=10)
        number = next(one.id for one in store.outbox.page(transport="cli"))
        store.outbox.drop(number, reason="not wanted")
    plan = make_plan(context(native), native.with_name("back.db"))
    back = native.with_name("back.db")
    report = give_back(context(native), back)
    states = dict(query(back, "SELECT obligation_id, state FROM delivery_obligations"))
    assert (states["new"], states["on its way"], states["tried"]) == ("delivered", "delivered", "failed")
    assert (states["stale"], states["no more"], states["of no release"]) == ("pending", "failed", "sent")
    told = dict(query(back, "SELECT delegation_id, delivery_state FROM async_delegations"))
    assert told == {"owed": "pending", "told": "delivered", "http": "pending", "terminal": "dropped", "odd": "pending"}
    assert (report.owed, report.owed_in_both) == (3, 3)
    assert plan.lines[1] == (
        "3 obligations that nobody has sent stay in the store: hermes-agent finds 3 of them in its own tables and sends"
        " them, so drop those here before it starts; the others it never sends."
    )


def test_adopting_in_place_converts_at_once_and_a_new_file_says_what_is_to_be_done(store_copy: StoreCopy) -> None:
    db = gateway_file(store_copy)
    made = adopt_to(db, db.with_name("native.db"))
    assert made.lines()[2] == (
        "Routing, topics, deliveries and delegations are kept as they were: run `hermes-state sessions optimize --db"
        f" {db.with_name('native.db')}` before a gateway uses it, and it goes on with them."
    )
    done = adopt_in_place(db)
    assert done.document()["converted"]["became"] == BECAME
    assert done.lines()[2:4] == (
        "Converted what adoption kept of gateway_routing, 4 rows: 1 to routing_entries, 3 stay.",
        "Converted what adoption kept of telegram_dm_topic_bindings, 2 rows: 1 to routing_entries, 1 stays.",
    )


def test_a_repeat_says_that_it_is_done_and_changes_nothing(native: Path) -> None:
    first = converted(native)
    before = everything(native)
    again = converted(native)
    assert again.already_done and not again.pending
    assert (again.rows, again.counts) == (first.rows, first.counts)
    assert again.document()["stays"] == first.document()["stays"]
    assert everything(native) == before


def everything(native: Path) -> dict[str, list[tuple[Any, ...]]]:
    tables = [name for (name,) in query(native, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: typed(native, name) for name in tables}


def test_looking_says_the_same_and_writes_nothing(native: Path) -> None:
    before = everything(native)
    with open_read(native) as reader, reader.snapshot():
        said = look(reader)
    assert everything(native) == before
    assert said.pending and said.counts == BECAME | {
        "delivery_obligations": {"outbox": 8, "stays": 1},  # what the outbox has forgotten is known when it is asked
    }


def test_the_doctor_says_that_it_is_due_until_it_is_done(native: Path) -> None:
    def told() -> dict[str, Finding]:
        with open_read(native) as reader:
            return {one.code: one for one in working_findings(reader, SYSTEM)}

    said = told()["kept_rows"]
    assert said.next_command == f"hermes-state sessions optimize --db {native}"
    assert said.facts["rows"] == {table: sum(found.values()) for table, found in BECAME.items()}
    converted(native)
    assert "kept_rows" not in told()


def test_what_is_here_already_stays_as_it_is(native: Path) -> None:
    with open_store(path=native) as store:
        home = store.routing.home
        ((session,),) = ask(native, "SELECT id FROM sessions WHERE state = 'open' ORDER BY no DESC LIMIT 1")
        key = "agent:main:telegram:dm:100"
        origin = {"platform": "telegram", "chat_type": "dm", "chat_id": "100", "user_id": "7"}
        store.routing.take_in({"session_key": key, "session_id": session, "origin": origin}, home)
        store.routing.topics.set("telegram", "100", home, user_id="8", enabled=False)
    done = converted(native)
    assert done.counts["gateway_routing"] == {"stays": 3, "there": 1}
    assert done.counts["telegram_dm_topic_mode"] == {"there": 1}
    with open_store(path=native) as store:
        found, mode = store.routing.get(key), store.routing.topics.get("telegram", "100")
        assert found is not None and found.session_id == session
        assert mode is not None and (mode.user_id, mode.enabled) == ("8", False)


def test_a_difference_ends_it_with_nothing_written(native: Path) -> None:
    change(
        native,
        "CREATE TRIGGER other AFTER INSERT ON background_work BEGIN UPDATE background_work"
        " SET described = json_set(described, '$.was.task_json', 'another') WHERE key = new.key; END",
    )
    before = everything(native)
    with pytest.raises(Corrupt) as caught:
        converted(native)
    assert caught.value.message == (
        f"What adoption kept in {native} and what was made of it are not the same: row owed of async_delegations"
        " differs in task_json. Nothing was changed."
    )
    assert everything(native) == before


def test_a_home_that_was_removed_takes_nothing(native: Path) -> None:
    with open_store(path=native) as store:
        store.routing.remove_home(store.routing.home, actor="me", reason="moved")
    done = converted(native)
    assert (done.pending, done.refused) == (False, f"{native.parent} was marked as removed")
    assert done.lines(done=True) == (
        f"Kept rows of hermes-agent stay as they are: {native.parent} was marked as removed.",
    )


@pytest.mark.slow
def test_optimize_is_what_converts(native: Path, run_cli: RunCli) -> None:
    plan = run_cli("sessions", "optimize", "--db", native, "--dry-run", "--json")
    assert json.loads(plan.stdout)["conversion"]["rows"] == {table: sum(BECAME[table].values()) for table in BECAME}
    done = run_cli("sessions", "optimize", "--db", native, "--json")
    assert json.loads(done.stdout)["converted"]["became"] == BECAME
    again = run_cli("sessions", "optimize", "--db", native, "--json")
    assert json.loads(again.stdout)["converted"]["already_done"] is True


def test_a_store_that_was_never_hermes_agents_has_nothing_to_convert(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert converted(tmp_path / "state.db").rows == {}


def test_a_store_that_was_adopted_by_an_older_release_gets_its_steps_first(native: Path, tmp_path: Path) -> None:
    """The document and the kept tables of 0.3.0 are those of today; the tables here came with later steps."""
    old = tmp_path / "old" / "state.db"
    old.parent.mkdir()
    with gzip.open(FOLDER / "0.3.0-empty.db.gz", "rb") as packed, old.open("xb") as out:
        shutil.copyfileobj(packed, out)
    connection = apsw.Connection(str(old))
    connection.execute("ATTACH ? AS newer", (str(native),)).fetchall()
    for table in TABLES:
        columns = ", ".join(f'"{name}" ANY' for (name,) in connection.execute(
            "SELECT name FROM newer.pragma_table_info(?)", (f"foreign_{table}",)
        ).fetchall())
        connection.execute(f"CREATE TABLE foreign_{table} ({columns}) STRICT").fetchall()
        connection.execute(f"INSERT INTO foreign_{table} SELECT * FROM newer.foreign_{table}").fetchall()
    connection.execute("UPDATE store SET adopted_from = (SELECT adopted_from FROM newer.store)").fetchall()
    connection.execute("DETACH newer").fetchall()
    connection.close()
    with open_read(old) as reader, reader.snapshot():
        assert look(reader).counts["telegram_dm_topic_mode"] == {"topic_chats": 1}
    with open_write(old) as store:
        migrate(store, phases=("pre", "post"))
        done = convert(store, SYSTEM)
    assert done.counts == BECAME | {
        "gateway_routing": {"stays": 4}, "telegram_dm_topic_bindings": {"stays": 2},  # it has no sessions
    }


def _any_cell(chance: random.Random) -> object:
    chat = "agent:main:telegram:dm:100"
    return chance.choice([
        None, 5, -1, 1.5, float("inf"), 2**62, b"\xff\x00", "", "x" * 600, "a\x00b", chat, "agent:", "agent::", "{}",
        "[1]", '{"origin": 5}', '"\\ud800"', '{"a":' * 300, "pending", "delivered", "running", "a/b", "x" * 1_100_000,
        entry(chat, "a", "100", model_override=5), entry(chat, "a", "100", resume_pending=True, resume_reason="\ud800"),
        entry(chat, "a", ["100"], transport_profile="main"),
    ])


def cells_of_any_kind(native: Path, seed: int) -> None:
    chance = random.Random(seed)
    connection = apsw.Connection(str(native))
    for table in TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info(foreign_{table})").fetchall()]
        for (rowid,) in connection.execute(f"SELECT rowid FROM foreign_{table}").fetchall():
            for column in columns:
                if chance.random() < 0.25:
                    bad = chance.random() < 0.1
                    connection.execute(
                        f"UPDATE foreign_{table} SET {column} = iif(?, CAST(x'fffe' AS TEXT), ?) WHERE rowid = ?",
                        (bad, _any_cell(chance), rowid),
                    ).fetchall()
    connection.close()
    before = {table: typed(native, f"foreign_{table}", "rowid") for table in TABLES}
    done = converted(native)
    assert {table: sum(found.values()) for table, found in done.counts.items()} == {
        table: len(rows) for table, rows in before.items()
    }
    assert all(one.why for one in done.outcomes if one.became == "stays")
    assert converted(native).already_done
    assert {table: typed(native, f"foreign_{table}", "rowid") for table in TABLES} == before


SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))


def test_cells_of_any_kind_stay_and_stop_nothing(native: Path) -> None:
    cells_of_any_kind(native, SEED)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(int(os.environ.get("HERMES_STATE_ROUNDS", "100"))))
def test_cells_of_any_kind_stay_and_stop_nothing_in_many_rounds(native: Path, number: int) -> None:
    cells_of_any_kind(native, SEED + 1 + number)
