"""Adopted files and real releases: what comes back through hermes-agent's own import is equal, and no release ever
writes into a native store.

Needs HERMES_PEERS (see `tests/support/peers.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_read
from hermes_state.store import open_store
from maintenance.dialects.detect import dialect_of
from maintenance.interop import to_hermes_agent
from maintenance.interop.give_back import give_back
from maintenance.interop.tripwire import tripwire_problem
from maintenance.space.verify import check
from tests.maintenance.adopting import adopt_in_place, adopt_to, query
from tests.support import peers
from tests.support.space import context
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.campaign

# The calls that show sessions and transcripts. An import starts routing, handoff, compression state, profile, counters
# of rewinds and message ids anew, by its own account; everything else has to be equal, row by row. It has no place for
# compacted messages, one of which hermes-agent shows as the preview, and which one of its counters counts.
STARTED_ANEW = {
    "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "expiry_finalized",
    "handoff_state", "handoff_platform", "handoff_error", "compression_failure_cooldown_until",
    "compression_failure_error", "compression_fallback_streak", "profile_name", "rewind_count",
}
DUMP = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
everything = {"limit": 10000, "include_archived": True}
listed = db.list_sessions_rich(include_children=True, project_compression_tips=False, **everything)
shown = db.list_sessions_rich(**everything)
found = {"listed": listed, "shown": shown, "sessions": {}}
for row in listed:
    key = row["id"]
    messages = [{k: v for k, v in m.items() if k != "id"} for m in db.get_messages(key)]
    found["sessions"][key] = {
        "row": db.get_session(key), "messages": messages, "chat": db.get_messages_as_conversation(key),
        "chain": db.get_messages_as_conversation(key, include_ancestors=True), "tip": db.get_compression_tip(key),
        "title": db.get_session_title(key), "count": db.message_count(key),
    }
db.close()
print(json.dumps(found, sort_keys=True, default=repr))
"""
# The same with hidden messages and message ids.
DUMP_ALL = DUMP.replace(' if k != "id"', "").replace(
    "db.get_messages(key)", "db.get_messages(key, include_inactive=True)"
)
IMPORT = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
for name in sys.argv[2:]:
    print(json.dumps(db.import_sessions([json.loads(line) for line in open(name)])))
db.close()
"""
OPEN = """
import sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
db.create_session(session_id="intruder", source="cli")
print("opened")
"""
# What a gateway does with its store when it starts: its own lazy tables through plain connections come after SessionDB.
GATEWAY = """
import sys
from pathlib import Path
import gateway.run
from hermes_state import SessionDB
db = SessionDB()
print("opened", db)
"""


def run(peer: peers.Peer, home: Path, script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(peer.python), "-c", script, *map(str, args)], env=peer.environment(home), capture_output=True, text=True,
        timeout=180, check=False,
    )


def ask(peer: peers.Peer, home: Path, script: str, *args: object) -> list[Any]:
    done = run(peer, home, script, *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "{["]


def need(version: str) -> peers.Peer:
    peer = peers.find(version)
    if peer is None:
        pytest.skip(f"hermes-agent {version} is not installed (HERMES_PEERS)")
    return peer


def kept(value: Any) -> Any:
    """The same without what an import starts anew."""
    if isinstance(value, dict):
        return {key: kept(item) for key, item in value.items() if key not in STARTED_ANEW}
    return [kept(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_what_was_adopted_reads_back_equal_through_the_import_of_hermes_agent(
    version: str, store_copy: StoreCopy, tmp_path: Path
) -> None:
    peer = need("0.19.0")
    db = store_copy(version)
    # hermes-agent migrates what it opens: so the file is compared as it was, and as it is after that.
    shown = tmp_path / "shown" / "state.db"
    shown.parent.mkdir()
    shutil.copy(db, shown)
    for name, source in (("as-it-was", db), ("migrated", shown)):
        (original,) = ask(peer, shown.parent, DUMP, shown)
        imported = there_and_back(peer, source, tmp_path / name)
        if name == "as-it-was" and version < "0.17":
            # The migration of old files marks sessions as delegates, which hides them from the list.
            forget_marks(original), forget_marks(imported)
        compacted = [key for key, found in original["sessions"].items() if found["count"] != len(found["messages"])]
        assert len(compacted) == (1 if version in ("0.18.2", "0.19.0") else 0)
        for found in (original, imported):
            forget_compacted(found, compacted)
        assert kept(imported) == kept(original)


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_the_way_back_is_the_same_file_to_hermes_agent_ids_and_compacted_messages_included(
    version: str, store_copy: StoreCopy, tmp_path: Path
) -> None:
    peer = need("0.19.0")
    db = store_copy(version)
    before = store_copy(version, home="before")
    adopt_in_place(db)
    home = tmp_path / "back"
    home.mkdir()
    give_back(context(db), home / "state.db")
    # Both are opened by the release for the first time: both are migrated, and get their search indexes, there.
    (original,) = ask(peer, before.parent, DUMP_ALL, before)
    (back,) = ask(peer, home, DUMP_ALL, home / "state.db")
    assert back == original
    word = next(word for word in ("session", "message", "cache") if peer.search(before, word)[word])
    assert peer.search(home / "state.db", word) == peer.search(before, word)
    checked = peer.index_check(home / "state.db")
    assert checked == peer.index_check(before)


def there_and_back(peer: peers.Peer, source: Path, folder: Path) -> dict[str, Any]:
    """Adopt a file, export it, import it into a fresh home with the release's own import; what it then shows."""
    folder.mkdir()
    adopt_to(source, folder / "native.db")
    files = []
    with open_read(folder / "native.db") as store, store.snapshot():
        ids = [key for (key,) in store.rows("SELECT id FROM sessions ORDER BY no")]
        for number, batch in enumerate(to_hermes_agent.files(store, dialect_of(store), ids)):
            files.append(folder / f"{number}.jsonl")
            files[-1].write_text("".join(json.dumps(record) + "\n" for record in batch))
    home = folder / "home"
    home.mkdir()
    answers = ask(peer, home, IMPORT, home / "state.db", *files)
    assert [answer["errors"] for answer in answers] == [[]] * len(files)
    assert (sum(answer["imported"] for answer in answers), sum(answer["detached"] for answer in answers)) == (12, 0)
    (found,) = ask(peer, home, DUMP, home / "state.db")
    return dict(found)


def forget_compacted(found: dict[str, Any], compacted: list[str]) -> None:
    for row in (*found["listed"], *found["shown"]):
        if row["id"] in compacted:
            row["preview"] = ""
    for key in compacted:
        found["sessions"][key]["count"] = 0


def forget_marks(found: dict[str, Any]) -> None:
    found["shown"] = []
    for row in [*found["listed"], *(session["row"] for session in found["sessions"].values())]:
        if row.get("model_config") in (None, '{"_delegate_from":"__orphaned__"}'):
            row["model_config"] = None


@pytest.mark.parametrize("version", peers.VERSIONS)
@pytest.mark.parametrize("attempt", ["open", "list", "gateway"])
def test_no_release_changes_a_byte_of_a_native_store(
    version: str, attempt: str, store_copy: StoreCopy, tmp_path: Path
) -> None:
    peer = need(version)
    db = store_copy("0.19.0")
    adopt_in_place(db)
    assert query(db, "PRAGMA wal_checkpoint(TRUNCATE)") == [(0, 0, 0)]
    before = db.read_bytes()
    if attempt == "open":
        done = run(peer, db.parent, OPEN, db)
        assert done.returncode != 0 and "opened" not in done.stdout
        assert "there is already an index named schema_version" in done.stderr
    elif attempt == "gateway":
        done = run(peer, db.parent, GATEWAY)
        assert done.returncode != 0 and "opened" not in done.stdout, done.stdout + done.stderr
    else:
        shown = peer.cli("sessions", "list", home=db.parent)
        assert "Titled session" not in shown.stdout
    assert db.read_bytes() == before
    wal = db.with_name("state.db-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    with open_read(db) as store:
        assert tripwire_problem(store) == ""
        assert store.rows("SELECT count(*) FROM messages") == [(72,)]


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_a_release_that_met_the_tripwire_works_on_its_own_file_again(version: str, store_copy: StoreCopy) -> None:
    peer = need(version)
    db = store_copy(version)
    report = adopt_in_place(db)
    assert run(peer, db.parent, OPEN, db).returncode != 0
    # The way back: the original that was kept aside, in a home of its own.
    home = db.parent.parent / "back"
    home.mkdir()
    assert report.original is not None
    shutil.copy(report.original, home / "state.db")
    done = run(peer, home, OPEN, home / "state.db")
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["opened"]), done.stderr


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_a_file_of_hermes_agent_with_an_index_of_that_name_is_only_stopped_not_harmed(
    version: str, store_copy: StoreCopy
) -> None:
    """The tripwire is one index: in a foreign file without that table it stops a release as well, and harms nothing."""
    from tests.maintenance.damage import change

    peer = need(version)
    db = store_copy(version)
    change(db, "DROP TABLE schema_version", "CREATE INDEX schema_version ON state_meta(value)")
    before = db.read_bytes()
    assert run(peer, db.parent, OPEN, db).returncode != 0
    assert db.read_bytes() == before
    change(db, "DROP INDEX schema_version")
    done = run(peer, db.parent, OPEN, db)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["opened"]), done.stderr


def everything(db: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, and every entry of the schema."""
    names = [str(name) for (name,) in query(db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    found = {name: sorted(query(db, f'SELECT * FROM "{name}"'), key=repr) for name in names}
    found["the schema"] = sorted(query(db, "SELECT type, name, tbl_name, sql FROM sqlite_schema"), key=repr)
    return found


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_no_repair_of_a_release_harms_a_native_store(version: str, store_copy: StoreCopy) -> None:
    """Its doctor takes the store for a damaged file of its own, and writes to it; rows and identity stay."""
    peer = need(version)
    db = store_copy("0.19.0")
    adopt_in_place(db)
    assert query(db, "PRAGMA wal_checkpoint(TRUNCATE)") == [(0, 0, 0)]
    before, bytes_before = everything(db), db.read_bytes()
    peer.cli("doctor", home=db.parent)
    assert db.read_bytes() == bytes_before
    for words in (("doctor", "--fix"), ("sessions", "repair")):
        peer.cli(*words, home=db.parent)
        assert everything(db) == before
        assert query(db, "PRAGMA integrity_check") == [("ok",)]
    with open_read(db) as store:
        assert tripwire_problem(store) == ""
    verdict, _stamp = check(context(db), quick=False)
    assert (verdict.pages, verdict.indexes) == ((), {})
    with open_store(path=db) as opened:
        [newest] = opened.sessions.list(limit=1)
        assert opened.messages.append(newest.id, role="user", content="still ours") > 0
