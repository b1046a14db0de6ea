"""The stores of every release so far open in this one, with everything that was in them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import hermes_state
from hermes_state import open_store
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
        assert store.sessions.count() == (0 if "empty" in name else 2)


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
