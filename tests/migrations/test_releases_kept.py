"""The stores of every release so far open in this one, with everything that was in them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import hermes_state
from cron_store import Cron
from hermes_state import open_store
from hermes_state.engine import open_write
from hermes_state.engine.migrate import applied
from hermes_state.engine.schema import known_migrations
from hermes_state.errors import Entombed, SessionDeleted
from hermes_state.instances.states import State
from tests.support.beside import jobs, work_beside
from tests.support.gateways import CREDENTIAL, enrolled, hear, run, thread
from tests.support.native_release import FOLDER
from tests.support.routes import bound

KEPT = sorted(path.name for path in FOLDER.glob("*.db.gz"))


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "home" / "state.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress((FOLDER / name).read_bytes()))
    return path


def test_this_release_keeps_its_files() -> None:
    release = re.escape(hermes_state.__version__)
    assert [name for name in KEPT if re.match(release, name)] == [
        f"{hermes_state.__version__}-empty.db.gz", f"{hermes_state.__version__}-filled.db.gz"
    ]


@pytest.mark.parametrize("name", KEPT)
def test_a_store_of_every_release_is_brought_to_this_schema(name: str, tmp_path: Path) -> None:
    with open_store(path=unpacked(name, tmp_path)) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [step.number for step in known_migrations()]
        assert reader.rows("PRAGMA foreign_key_check") == []
        assert reader.rows("PRAGMA quick_check") == [("ok",)]
        compacted = not name.startswith(("0.2.", "0.3."))
        routed = name >= "0.7"
        assert store.sessions.count() == (0 if "empty" in name else 2 + 2 * compacted + 9 * routed)


@pytest.mark.parametrize("name", [name for name in KEPT if "filled" in name])
def test_what_was_in_it_is_there(name: str, tmp_path: Path, run_cli) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path) as store:
        assert [one.id for one in store.sessions.lineage("talk-2")] == ["talk", "talk-2"]
        assert store.titles.get("talk-2") == "Moon"
        assert [row["role"] for row in store.messages.context("talk")] == ["user", "assistant", "tool", "assistant"]
        assert [row["content"] for row in store.messages.context("side")][-1] == [{"type": "text", "text": "3,474 km"}]
        question = "How large is the moon? \u6708\u4eae"
        assert store.messages.append("talk", role="user", content=question, client_key="k1") == 1
        assert [hit.message_id for hit in store.search("\u6708\u4eae", include_archived=True)] == [1]
        assert store.usage.total().input_tokens == 10
        with pytest.raises(SessionDeleted):
            store.messages.append("gone", role="user", content="back?")
        assert [left.content for left in store.messages.unsettled("talk-2")] == ["half an answer"]
        assert store.leases.acquire("turn:talk-2", term_seconds=60).fence == 2
    checked = run_cli("doctor", "--deep", "--db", path)
    assert checked.exit_code == 0, checked.stdout


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith(("0.2.", "0.3.")) and "filled" in name])
def test_a_store_without_compactions_is_read_as_it_is_and_brought_up_beside_those_who_have_it_open(
    name: str, tmp_path: Path
) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [1]
        assert len(store.messages.context("talk")) == 4
        assert [hit.compacted_by for hit in store.search("\u6708\u4eae", include_archived=True)] == [None]
    with open_write(path) as older, open_store(path=path) as store:
        view = store.messages.context("talk-2")
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/work' WHERE id = 'talk-2'")
        assert store.sessions.get("talk-2").cwd == "/work"
        assert store.messages.context("talk-2") == view
        with store.core.reader() as reader:
            assert sorted(applied(reader)) == [step.number for step in known_migrations()]


@pytest.mark.parametrize("name", [name for name in KEPT if not name.startswith(("0.2.", "0.3.")) and "filled" in name])
def test_generations_of_every_state_are_there(name: str, tmp_path: Path) -> None:
    with open_store(path=unpacked(name, tmp_path)) as store, store.core.reader() as reader:
        assert reader.rows("SELECT generation, state FROM compactions ORDER BY id") == [
            (1, "done"), (2, "done"), (3, "failed"), (4, "superseded"), (5, "done"), (6, "running"),
        ]
        view = [row["content"][:21] for row in store.messages.context("long")]
        assert (view[0], len(view)) == ("Summary: rows 2 to 6.", 7)
        assert store.messages.context("long-side")[0]["content"].startswith("Summary: rows 2 to 4.\n\nrow 1 of")
        assert reader.rows("SELECT kind, tokens FROM model_windows ORDER BY kind") == [
            ("declared", 131_072), ("learned", 8000), ("served", 8192), ("trained", 32_768),
        ]
        assert reader.rows("SELECT factor, samples FROM token_factors") == [(1.25, 9)]


OWING = [name for name in KEPT if not name.startswith(("0.2.", "0.3.", "0.4.")) and "filled" in name]


@pytest.mark.parametrize("name", OWING)
def test_obligations_of_every_state_are_there(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        found = reader.rows("SELECT dedupe_id, state, attempts, refunds, fence FROM outbox WHERE id <= 8 ORDER BY id")
        assert found == [
            ("owed 0", "accepted", 0, 0, 1), ("owed 1", "refused", 0, 0, 1), ("owed 2", "failed", 1, 0, 1),
            ("owed 3", "unknown", 0, 0, 1), ("owed 4", "suppressed", 0, 0, 1), ("owed 5", "dropped", 0, 1, 1),
            ("owed 6", "pending", 1, 0, 1), ("claimed", "claimed", 0, 0, 1),
        ]
        assert reader.rows("SELECT forgotten_to FROM outbox_horizon") == [(7.0,)]
    with open_store(path=path) as store:
        found = [claim.primary for claim in store.outbox.claim(["telegram"], limit=9)]
        assert [(one.dedupe_id, one.payload) for one in found if one.dedupe_id.startswith("owed")] == [
            ("owed 6", {"n": 6})
        ]


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith("0.4.") and "filled" in name])
def test_a_store_from_before_the_outbox_owes_beside_processes_that_do_not_know_it(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [1, 2]
    with open_write(path) as older, open_store(path=path) as store:
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/work' WHERE id = 'talk-2'")
        store.outbox.append(dedupe_id="a", kind="stop", transport="t", payload=1, policy="at_most_once")
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/home' WHERE id = 'talk-2'")
        (claim,) = store.outbox.claim(["t"])
        assert claim.primary.dedupe_id == "a" and store.sessions.get("talk-2").cwd == "/home"


SERVING = [name for name in KEPT if not name.startswith(("0.2.", "0.3.", "0.4.", "0.5.")) and "filled" in name]


@pytest.mark.parametrize("name", SERVING)
def test_instances_and_turns_of_every_state_are_there(name: str, tmp_path: Path) -> None:
    with open_store(path=unpacked(name, tmp_path)) as store:
        assert {one.instance_id: str(one.state) for one in store.instances.page(states=State)} == {
            "desk": "configured", "shelf": "configured", "laptop": "enrolled", "lost": "revoked", "sold": "removed",
        }
        assert store.instances.authenticate("laptop", CREDENTIAL).nickname == "Laptop"
        (kept,) = store.instances.tombstones()
        assert (kept.key, kept.references) == ("sold", 1)
        names = ("runs", "asks", "answered", "ended", "stops", "stopped")
        assert [str(store.turns.thread(one).status) for one in names] == [
            "running", "running", "running", "ready", "stop_pending", "stopped",
        ]
        assert [str(turn.state) for one in names for turn in store.turns.history(one)] == [
            "running", "running", "running", "completed", "stopping", "stopped",
        ]
        assert [question.thread_id for question in store.turns.questions()] == ["asks"]
        assert hear(store) == [("stop", "stops")]
        assert [one.delivery_id for one in store.turns.home.page("home")] == ["delivery 1"]


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith("0.5.") and "filled" in name])
def test_a_store_from_before_the_gateway_serves_one_beside_processes_that_do_not_know_it(
    name: str, tmp_path: Path
) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [1, 2, 3]
    with open_write(path) as older, open_store(path=path) as store:
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/work' WHERE id = 'talk-2'")
        enrolled(store, "laptop")
        thread(store, "runs")
        run(store, "runs", "turn of runs")
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/home' WHERE id = 'talk-2'")
        assert str(store.turns.thread("runs").status) == "running" and store.sessions.get("talk-2").cwd == "/home"


@pytest.mark.parametrize("name", [name for name in KEPT if name >= "0.7" and "filled" in name])
def test_chats_and_people_are_there(name: str, tmp_path: Path) -> None:
    with open_store(path=unpacked(name, tmp_path)) as store:
        assert [
            (one.key.chat_id, str(one.state), one.session_id, one.generation, one.transport_profile)
            for one in store.routing.page()
        ] == [
            ("1", "active", "routed", 1, "default"), ("2", "active", "routed 2", 1, "default"),
            ("3", "resuming", "routed 3", 1, "work"), ("4", "suspended", "routed 4", 1, "default"),
            ("5", "expired", "routed 5", 1, "default"), ("6", "active", "routed 6 b", 2, "default"),
            ("8", "active", "routed", 3, None),
        ]
        assert [one.user_id for one in store.routing.pairing.paired()] == ["friend"]
        assert [one.profile for one in store.routing.attention(served_too=True)] == ["side", "side"]
        assert [one.platform for one in store.routing.attention()] == ["whatsapp"]
        assert bound(store, "7", "routed").generation == 3
        with store.core.reader() as reader:
            assert reader.rows("SELECT platform, failures, locked_until - first_at FROM pairing_failures") == [
                ("discord", 5, 3600.0)
            ]


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith("0.6.") and "filled" in name])
def test_a_store_from_before_routing_routes_beside_processes_that_do_not_know_it(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [1, 2, 3, 4, 5, 6]
    with open_write(path) as older, open_store(path=path) as store:
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/work' WHERE id = 'talk-2'")
        chat = bound(store, "1", "talk-2")
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/home' WHERE id = 'talk-2'")
        assert store.routing.get(chat.session_key) == chat and store.sessions.get("talk-2").cwd == "/home"


@pytest.mark.parametrize("name", [name for name in KEPT if name >= "0.8" and "filled" in name])
def test_work_beside_conversations_and_jobs_are_there(name: str, tmp_path: Path) -> None:
    with open_store(path=unpacked(name, tmp_path)) as store:
        work, cron = store.work, Cron(store)
        assert [(one.process_id, str(one.state)) for one in work.processes.page()] == [("proc", "exited")]
        assert [(one.key, one.result) for one in work.delegations.page()] == [("delegation/deleg", "nothing unusual")]
        assert (str(work.streams.get("turn 1").state), work.streams.get("turn 1").message_id) == ("sealing", "m1")
        assert [one.content for one in work.lanes.waiting("agent:main:telegram:dm:1")] == ["And then?"]
        assert [one.chat_id for one in work.targets.page()] == ["9"]
        assert work.models.facts("local", "model-a").context_window == 8192
        assert [(one.job_id, str(one.state)) for one in cron.jobs()] == [("brief", "scheduled"), ("paused", "paused")]
        assert [(one.run_id, str(one.state)) for one in cron.history()] == [("by hand", "succeeded")]
        with pytest.raises(Entombed):
            cron.job("gone")


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith("0.7.") and "filled" in name])
def test_a_store_from_before_work_and_cron_has_them_beside_processes_that_do_not_know_it(
    name: str, tmp_path: Path
) -> None:
    path = unpacked(name, tmp_path)
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        assert sorted(applied(reader)) == [*range(1, 8)]
    with open_write(path) as older, open_store(path=path) as store:
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/work' WHERE id = 'talk-2'")
        work_beside(store)
        jobs(store)
        with older.transaction() as tx:
            tx.execute("UPDATE sessions SET cwd = '/home' WHERE id = 'talk-2'")
        assert len(Cron(store).jobs()) == 2 and store.sessions.get("talk-2").cwd == "/home"
