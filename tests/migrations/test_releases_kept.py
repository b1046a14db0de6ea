"""The stores of every release so far open in this one, with everything that was in them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import hermes_state
from hermes_state import open_store
from hermes_state.engine import open_write
from hermes_state.engine.migrate import applied
from hermes_state.engine.schema import known_migrations
from hermes_state.errors import SessionDeleted
from tests.support.native_release import FOLDER

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
        assert store.sessions.count() == (0 if "empty" in name else 2 + 2 * compacted)


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
        assert reader.rows("SELECT dedupe_id, state, attempts, refunds, fence FROM outbox ORDER BY id") == [
            ("owed 0", "accepted", 0, 0, 1), ("owed 1", "refused", 0, 0, 1), ("owed 2", "failed", 1, 0, 1),
            ("owed 3", "unknown", 0, 0, 1), ("owed 4", "suppressed", 0, 0, 1), ("owed 5", "dropped", 0, 1, 1),
            ("owed 6", "pending", 1, 0, 1), ("claimed", "claimed", 0, 0, 1),
        ]
        assert reader.rows("SELECT forgotten_to FROM outbox_horizon") == [(7.0,)]
    with open_store(path=path) as store:
        found = [claim.primary for claim in store.outbox.claim(["telegram"], limit=9)]
        assert [(one.dedupe_id, one.payload) for one in found] == [("owed 6", {"n": 6})]


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
