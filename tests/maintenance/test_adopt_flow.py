"""`sessions adopt` as people run it: plan, question, refusals, in place and into a new file."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import apsw
import pytest

from hermes_state.engine import open_write
from hermes_state.errors import Corrupt, StoreHeld
from maintenance.interop.adopt import flow, places
from maintenance.space.verify import check
from tests.maintenance.adopting import AdoptCli, adopt_in_place, adopt_to, nobody, query
from tests.maintenance.damage import change, overwrite
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import content, context, grow
from tests.support.stores import FOLDER, StoreCopy, versions

HOLDER = """
import sys, gates
from hermes_state.engine import open_write
with open_write(sys.argv[1], foreign=True) as store:
    with store.transaction() as tx:
        tx.execute("INSERT OR REPLACE INTO state_meta VALUES ('beside', 'yes')")
    gates.reach("ready")
    gates.wait("go")
"""


pytestmark = pytest.mark.slow


@pytest.fixture
def adopt_cli(run_cli: RunCli) -> AdoptCli:
    return AdoptCli(run_cli)


@pytest.mark.parametrize("version", versions())
def test_in_place_keeps_the_inode_and_the_whole_original_beside_it(version: str, store_copy: StoreCopy) -> None:
    db = store_copy(version)
    rows, inode = content(db), db.stat().st_ino
    before = gzip.decompress((FOLDER / f"state-{version}.db.gz").read_bytes())
    report = adopt_in_place(db)
    assert db.stat().st_ino == inode
    listed = sorted(path.name for path in db.parent.iterdir())
    assert report.original is not None and report.original.name.startswith("state.db.adopted-from-hermes-agent-")
    assert report.original.read_bytes()[100:] == before[100:]
    assert content(report.original) == rows
    assert report.original.stat().st_mode & 0o777 == 0o600
    assert query(db, "SELECT count(*) FROM messages") == [(len(rows["messages"]),)]
    verdict, _stamp = check(context(db), quick=False)
    assert verdict.pages == ()
    assert listed == ["state.db", "state.db-shm", "state.db-wal", report.original.name]


def test_the_page_size_of_the_file_stays(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.write_bytes(gzip.decompress((FOLDER / "state-0.19.0.db.gz").read_bytes()))
    connection = apsw.Connection(str(db))
    for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 8192", "VACUUM", "PRAGMA journal_mode = WAL"):
        connection.execute(statement).fetchall()
    connection.close()
    adopt_in_place(db)
    assert query(db, "PRAGMA page_size") == [(8192,)]
    assert query(db, "PRAGMA journal_mode") == [("wal",)]


def test_a_file_in_rollback_mode_stays_in_it(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "PRAGMA journal_mode = DELETE")
    adopt_in_place(db)
    assert query(db, "PRAGMA journal_mode") == [("delete",)]
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    assert query(db, "PRAGMA quick_check") == [("ok",)]


def test_every_adoption_is_another_incarnation_and_another_store(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_to(db, db.with_name("one.db"))
    adopt_to(db, db.with_name("two.db"))
    sql = "SELECT store_id, incarnation FROM store"
    one, two = (query(db.with_name(name), sql)[0] for name in ("one.db", "two.db"))
    assert one[0] != two[0] and one[1] != two[1]


def test_a_repeat_says_that_it_is_done_and_clears_what_a_killed_run_left(
    store_copy: StoreCopy, adopt_cli: AdoptCli
) -> None:
    db = store_copy()
    adopt_in_place(db)
    left = db.with_name(f"{db.name}{places.WORKING}20260101T000000Z-{ended()}.native")
    left.touch()
    again = adopt_cli(db, "--yes")
    assert again.exit_code == 0, again.stderr
    assert again.stdout.splitlines() == [
        f"Nothing to do: {db} is a native store already.", f"Removed what a killed run left: {left}.",
    ]
    answer = adopt_cli(db, "--yes", "--json").json
    assert (answer["already_done"], answer["written"], answer["cleared"]) == (True, None, [])


def ended() -> int:
    """The PID of a process that is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("pid", [os.getpid(), os.getppid(), 1], ids=["this process", "its parent", "another user"])
def test_the_working_file_of_a_living_run_stays(pid: int, store_copy: StoreCopy) -> None:
    db = store_copy()
    target = db.with_name("new.db")
    working = target.with_name(f"{target.name}{places.WORKING}20260101T000000Z-{pid}.native")
    working.write_bytes(b"half")
    assert adopt_to(db, target).cleared == ()
    assert working.read_bytes() == b"half"


def test_a_folder_with_a_working_name_does_not_stop_an_adoption(store_copy: StoreCopy) -> None:
    db = store_copy()
    target, gone = db.with_name("new.db"), ended()
    left = target.with_name(f"{target.name}{places.WORKING}20260101T000000Z-{gone}.native")
    folder = left.with_name(f"{left.name}.retired-wal-20260101T000000Z-{gone}")
    left.touch()
    folder.mkdir()
    assert adopt_to(db, target).cleared == (left,)
    assert folder.is_dir() and not left.exists()


def test_the_plan_says_what_is_lost_and_kept_and_changes_nothing(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    before = db.read_bytes()
    plan = adopt_cli(db, "--dry-run")
    assert plan.exit_code == 0
    assert plan.stdout.splitlines() == [
        f"Turn {db} into a native store",
        "  12 sessions with 72 messages, schema 22; at most about 837.6 KiB as a native store.",
        "  Kept cell by cell as foreign_<name>: schema_version, state_meta, gateway_routing, compression_locks, "
        "async_delegations.",
        "  Search indexes are left behind; the native store builds its own beside itself.",
        "  The original is kept beside it under a dated name, and verified before anything is replaced.",
        "  The name to type, or to give with --confirm: state.db.",
        "  hermes-agent can no longer open this file: it stops at the first statement, changes nothing, and says that "
        "it cannot use its session store. That stays so until its adapter for native stores exists.",
        "  Holds the store's exclusive lock for about 1 s.",
        "  Programs that start meanwhile cannot open the store; hermes-agent gives up after about 2 s.",
    ]
    assert db.read_bytes() == before


def test_without_a_terminal_and_without_the_name_nothing_is_changed(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    before = db.read_bytes()
    for bare in ((), ("--yes",)):
        asked = adopt_cli(db, *bare)
        assert asked.exit_code == 1
        assert asked.stderr.splitlines()[-3:] == [
            f"Error: Adopting {db} in place takes it away from hermes-agent, so its name must be given. Nothing was "
            "changed.",
            "Why: Understood and not done, because it would be unsafe or was not confirmed.",
            "Try: Add --confirm state.db, or look first with --dry-run.",
        ]
    wrong = adopt_cli(db, "--confirm", "other.db", "--json")
    assert wrong.exit_code == 1
    assert wrong.json_error["error"]["message"] == (
        "--confirm other.db does not name this store, which is state.db. Nothing was changed."
    )
    assert db.read_bytes() == before


def test_a_holder_is_named_and_a_new_file_can_be_made_beside_it(
    store_copy: StoreCopy, adopt_cli: AdoptCli, child: Children
) -> None:
    db = store_copy()
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    refused = adopt_cli(db, "--yes")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[0] == (
        f"Error: `sessions adopt` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )
    assert f"PID {holder.pid} (" in refused.stderr
    target = db.with_name("native.db")
    made = adopt_cli(db, "--to", target)
    assert made.exit_code == 0, made.stderr
    # What stood in the WAL of the holder is in it.
    assert query(target, "SELECT value FROM foreign_state_meta WHERE key = 'beside'") == [("yes",)]
    holder.release("go")


def test_a_new_file_never_takes_the_place_of_another(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    target = db.with_name("there.db")
    target.write_bytes(b"mine")
    refused = adopt_cli(db, "--to", target)
    assert (refused.exit_code, target.read_bytes()) == (1, b"mine")
    assert refused.stderr.splitlines()[0] == f"Error: {target} exists already."
    itself = adopt_cli(db, "--to", db)
    assert itself.exit_code == 2
    assert itself.stderr.splitlines()[0] == "Error: --to names the store itself."


def test_a_process_that_cannot_be_seen_keeps_the_content_from_being_replaced(store_copy: StoreCopy) -> None:
    from dataclasses import replace

    from lockowners import Hidden, Scan

    db = store_copy()
    before, ctx = content(db), context(db)

    def unseen(path: Path) -> Scan:
        return replace(nobody(path), hidden=(Hidden(user="max", uid=1000, count=2),), complete=False)

    with pytest.raises(StoreHeld) as refused:
        flow.adopt_in_place(ctx, flow.make_plan(ctx, None), scanner=unseen)
    assert refused.value.message.splitlines()[0] == (
        f"`sessions adopt` cannot prove that nobody else has {db} open. Nothing was changed."
    )
    assert content(db) == before


def test_a_native_store_is_not_adopted_into_another_file(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    adopt_in_place(db)
    refused = adopt_cli(db, "--to", db.with_name("other.db"))
    assert refused.exit_code == 1 and not db.with_name("other.db").exists()
    assert refused.stderr.splitlines()[0] == (
        f"Error: {db} is a native store already. {db.with_name('other.db')} was not made."
    )


def test_on_a_terminal_only_the_name_itself_agrees(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    before = db.read_bytes()
    for said in ("y", "yes", "state", ""):
        status, shown = adopt_cli.on_a_terminal(db, said)
        assert status == 1
        assert "hermes-agent cannot use this store afterwards. Type state.db to go on:" in shown
        assert "Nothing was changed." in shown
    assert db.read_bytes() == before


def test_beside_litestream_the_wal_is_copied_and_not_emptied(store_copy: StoreCopy) -> None:
    db = store_copy()
    db.with_name(".state.db-litestream").mkdir()
    adopt_in_place(db)
    assert db.with_name("state.db-wal").stat().st_size > 0
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]


def test_an_empty_file_of_hermes_agent_becomes_an_empty_store(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "DELETE FROM messages", "DELETE FROM sessions", triggers=False)
    ((floor,),) = query(db, "SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
    report = adopt_in_place(db)
    assert report.verified is not None and (report.verified.sessions, report.verified.messages) == (0, 0)
    assert query(db, "SELECT message_floor FROM store") == [(floor,)]


def test_a_damaged_file_is_not_adopted_either_way(store_copy: StoreCopy) -> None:
    db = store_copy()
    ctx, target = context(db), db.with_name("native.db")
    plans = flow.make_plan(ctx, None), flow.make_plan(ctx, target)
    ((page,),) = query(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'idx_messages_session'")
    overwrite(db, (page - 1) * 4096, b"\xee" * 4096)
    with pytest.raises(Corrupt) as refused:
        flow.adopt_in_place(ctx, plans[0], scanner=nobody)
    assert refused.value.message.startswith(f"{db} is damaged: ")
    assert refused.value.message.endswith(". It was not changed.")
    with pytest.raises(Corrupt) as refused:
        flow.adopt_to(ctx, plans[1], target)
    assert refused.value.message.startswith(f"{db} is damaged: ")
    assert [path.name for path in db.parent.iterdir() if "adopt" in path.name or "native" in path.name] == []


def test_what_hermes_agent_wrote_into_the_wal_is_adopted_and_kept(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("INSERT INTO state_meta VALUES ('late', 'row')")
    report = adopt_in_place(db)
    assert query(db, "SELECT value FROM foreign_state_meta WHERE key = 'late'") == [("row",)]
    assert report.original is not None
    assert query(report.original, "SELECT value FROM state_meta WHERE key = 'late'") == [("row",)]


def test_json_says_what_was_written_and_compared(store_copy: StoreCopy, adopt_cli: AdoptCli) -> None:
    db = store_copy()
    target = db.with_name("native.db")
    answer = adopt_cli(db, "--to", target, "--json").json
    assert answer["dry_run"] is False and answer["result"] == str(target) and answer["original"] is None
    assert (answer["written"]["sessions"], answer["written"]["messages"]) == (12, 72)
    assert answer["verified"]["messages"] == 72 and len(answer["verified"]["content_hash"]) == 32
    assert json.loads(json.dumps(answer)) == answer


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [0, 12])
@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_a_native_store_is_no_larger_than_the_plan_says(store_copy: StoreCopy, version: str, sessions: int) -> None:
    db = store_copy(version)
    if sessions:
        grow(db, sessions=sessions)
    planned = flow.make_plan(context(db), None).native_bytes
    actual = adopt_to(db, db.with_name("native.db")).result_bytes
    assert actual <= planned <= 2 * actual


@pytest.mark.slow
def test_the_way_back_names_its_file_without_detours(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy("0.19.0")
    assert run_cli("sessions", "adopt", "--to", db.with_name("native.db")).exit_code == 0
    detour = db.parent / "x" / ".." / "back.db"
    done = run_cli("sessions", "adopt", "--back", "--to", detour, "--db", db.with_name("native.db"), "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["result"] == str(db.with_name("back.db"))
