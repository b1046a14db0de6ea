"""`hermes instances`: what each verb changes, shows and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.instances import State
from hermes_state.store import open_store
from tests.support.cli import RunCli
from tests.support.gateways import at_work

pytestmark = pytest.mark.slow


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Path]:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        minted = store.instances.enroll("laptop", nickname="My laptop", actor="operator")
        store.instances.redeem(minted.token, actor="plugin")
        store.instances.bind("thread", "laptop", "session")
    yield path


def test_the_life_of_an_instance_on_the_command_line(db: Path, run_cli: RunCli, fake_clock: FakeClock) -> None:
    def run(*words: str) -> Any:
        ran = run_cli("instances", *words, "--db", db, "--json")
        assert ran.exit_code == 0, ran.stderr
        return ran.json

    def states() -> dict[str, str]:
        with open_store(path=db) as store:
            return {one.instance_id: str(one.state) for one in store.instances.page()}

    assert run("add", "desk", "--nickname", "Desk", "--dry-run")["instance"] is None
    assert states() == {"laptop": "enrolled"}
    minted = run("enroll", "desk", "--url", "wss://desk/", "--nickname", "Desk")
    assert (minted["added"], minted["ends_credential"], len(minted["token"])) == (True, False, 43)
    with open_store(path=db) as store:
        credential = store.instances.redeem(minted["token"], actor="plugin").credential
    assert states() == {"laptop": "enrolled", "desk": "enrolled"}
    assert run("rename", "desk", "Table")["instance"]["nickname"] == "Table"
    refused = run_cli("instances", "remove", "desk", "--reason", "old", "--db", db, "--json", "--yes")
    assert (refused.exit_code, refused.json_error["error"]["code"]) == (1, "instance_not_revoked")
    asked = run_cli("instances", "revoke", "desk", "--reason", "old", "--db", db)
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert "there is no terminal to ask on" in asked.stderr
    assert run("revoke", "desk", "--reason", "old", "--yes")["already_done"] == []
    shown = run("show", "desk")
    assert (shown["state"], shown["state_reason"], shown["credential_issued_at"]) == ("revoked", "old", None)
    assert shown["state_actor"].startswith("hermes-state instances revoke, PID ")
    removed = run("remove", "desk", "--reason", "old", "--yes")
    assert [one["instance_id"] for one in removed["tombstones"]] == ["desk"]
    assert states() == {"laptop": "enrolled"}
    assert run("list", "--state", "removed")["instances"][0]["instance_id"] == "desk"
    assert run("tombstones")["tombstones"][0]["references"] == 0
    fake_clock.advance(91 * 86_400)
    assert run("gc", "--dry-run")["instance_ids"] == ["desk"]
    assert run("gc") == {"dry_run": False, "path": str(db), "instance_ids": ["desk"], "tokens": 1, "more": False}
    assert credential not in db.read_bytes().decode("latin-1")


def test_a_credential_that_works_is_not_ended_without_asking(db: Path, run_cli: RunCli) -> None:
    planned = run_cli("instances", "enroll", "laptop", "--db", db, "--dry-run", "--json").json
    assert (planned["ends_credential"], planned["token"]) == (True, None)
    refused = run_cli("instances", "enroll", "laptop", "--db", db)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "Its credential ends now: a plugin that is connected with it is sent away." in refused.stderr
    done = run_cli("instances", "enroll", "laptop", "--db", db, "--yes", "--minutes", "5")
    assert done.exit_code == 0
    token = done.stdout.strip()
    assert done.stderr.endswith("\nGood until 2027-01-15T08:05:00.000Z, once. It is not shown again.\n")
    with open_store(path=db) as store:
        assert store.instances.redeem(token, actor="plugin").instance.state is State.ENROLLED


def test_people_see_who_and_since_when(db: Path, run_cli: RunCli) -> None:
    listed = run_cli("instances", "list", "--db", db).stdout
    assert listed.startswith("laptop  'My laptop'  enrolled since ")
    first, last = listed.splitlines()
    assert first.endswith("by plugin")
    assert last == "No gateway server was ever started on this store."
    shown = run_cli("instances", "show", "laptop", "--db", db).stdout
    assert "thread thread in session session" in shown
    taken = run_cli("instances", "add", "other", "--nickname", " MY LAPTOP ", "--db", db, "--json")
    assert taken.json_error["error"]["message"] == (
        f"The nickname 'MY LAPTOP' is taken in {db} by instance 'laptop' ('My laptop', enrolled since"
        " 2027-01-15T08:00:00Z by plugin)."
    )


def test_an_instance_that_threads_are_bound_to_stays_out(db: Path, run_cli: RunCli) -> None:
    run_cli("instances", "revoke", "laptop", "--reason", "sold", "--yes", "--db", db)
    planned = run_cli("instances", "remove", "laptop", "--reason", "sold", "--dry-run", "--db", db).stdout
    assert planned.rstrip().endswith(", 1 thread bound")
    told = run_cli("instances", "remove", "laptop", "--reason", "sold", "--yes", "--days", "0", "--db", db).stdout
    assert told == "laptop is removed; its id stays out, see `instances tombstones`.\n"
    assert run_cli("instances", "gc", "--db", db).stdout.startswith("0 ids free again")
    assert "and while 1 thread is bound to it" in run_cli("instances", "tombstones", "--db", db).stdout
    again = run_cli("instances", "enroll", "laptop", "--nickname", "x", "--db", db, "--json")
    assert (again.exit_code, again.json_error["error"]["code"]) == (1, "instance_removed")


def test_what_ends_with_an_instance_is_counted_before_the_question(tmp_path: Path, run_cli: RunCli) -> None:
    path = tmp_path / "busy.db"
    with open_store(path=path) as store:
        at_work(store)
    asked = run_cli("instances", "revoke", "laptop", "--reason", "sold", "--db", path)
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert asked.stderr.splitlines()[1].endswith(" by plugin, ends 5 turns and 1 question")
    planned = run_cli("instances", "revoke", "laptop", "--reason", "sold", "--dry-run", "--db", path, "--json").json
    done = run_cli("instances", "revoke", "laptop", "--reason", "sold", "--yes", "--db", path, "--json").json
    assert planned["ends"] == done["ends"] == [{"instance_id": "laptop", "turns": 5, "questions": 1, "stops": 0}]
    shown = run_cli("instances", "remove", "laptop", "--reason", "sold", "--dry-run", "--db", path).stdout
    assert shown.rstrip().endswith(", 5 threads bound, ends 1 stop")
    gone = run_cli("instances", "remove", "laptop", "--reason", "sold", "--yes", "--db", path, "--json").json
    assert gone["ends"] == [{"instance_id": "laptop", "turns": 0, "questions": 0, "stops": 1}]


def test_files_of_an_older_server_are_brought_in(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    (folder / "hermes-gateway-metadata-YQ.bin").write_text(json.dumps({"nickname": "A", "revoked": True}))
    (folder / "hermes-gateway-metadata-Yg.bin").write_text("no")
    for extra, dry_run in (["--dry-run"], True), ([], False):
        ran = run_cli("instances", "add", "--from", folder, *extra, "--db", db, "--json")
        assert ran.exit_code == 3
        assert ran.json == {
            "dry_run": dry_run, "path": str(db), "instance": None, "present": [],
            "added": [{"instance_id": "a", "state": "revoked"}],
            "problems": [{"name": "hermes-gateway-metadata-Yg.bin", "why": "is not JSON"}],
        }
    assert run_cli("instances", "add", "x", "--from", folder, "--db", db).exit_code == 2


def test_a_thread_is_unbound_and_frees_the_id_of_its_instance(db: Path, run_cli: RunCli) -> None:
    """D3: `tombstones` said what keeps an id out, and no command changed that. A turn that runs is not forgotten."""
    with open_store(path=db) as store:
        store.turns.start("thread", lambda turn: None, turn_id="t1")
    refused = run_cli("instances", "unbind", "thread", "--yes", "--db", db, "--json")
    assert (refused.exit_code, refused.json_error["error"]["code"]) == (1, "turn_active")
    with open_store(path=db) as store:
        store.instances.revoke("laptop", actor="operator", reason="sold")
        store.instances.remove("laptop", actor="operator", reason="sold", horizon_seconds=0)
    planned = run_cli("instances", "unbind", "thread", "--dry-run", "--db", db, "--json")
    assert planned.json["threads"] == [{
        "thread_id": "thread", "instance_id": "laptop", "session_id": "session", "since": "2027-01-15T08:00:00.000Z",
    }]
    assert run_cli("instances", "unbind", "thread", "thread", "--yes", "--db", db).stdout == "thread is unbound.\n"
    missing = run_cli("instances", "unbind", "thread", "--yes", "--db", db, "--json")
    assert (missing.exit_code, missing.json_error["error"]["code"]) == (1, "thread_not_found")
    with open_store(path=db) as store:
        assert store.instances.gc().instance_ids == ("laptop",)


def test_a_page_that_is_full_says_how_to_go_on(db: Path, run_cli: RunCli) -> None:
    """D4: it looked as if that were all."""
    with open_store(path=db) as store:
        store.instances.add("desk", nickname="Desk", actor="operator")
        for name in ("a b", "c"):
            store.instances.enroll(name, nickname=name, actor="operator")
            store.instances.revoke(name, actor="operator", reason="old")
            store.instances.remove(name, actor="operator", reason="old")
    listed = run_cli("instances", "list", "--limit", "1", "--db", db)
    assert listed.stderr == "There may be more: go on with --after 1.\n"
    entombed = run_cli("instances", "tombstones", "--limit", "1", "--db", db)
    assert entombed.stderr == "There may be more: go on with --after 'a b'.\n"


def test_a_folder_without_files_of_an_older_server_is_refused(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    """D8: a mistyped folder was "0 instances brought in", with exit code 0."""
    (tmp_path / "empty").mkdir()
    ran = run_cli("instances", "add", "--from", tmp_path / "empty", "--db", db, "--json")
    assert (ran.exit_code, ran.json_error["error"]["code"]) == (1, "not_found")
    assert ran.json_error["error"]["message"] == f"There is no file of an older server in {tmp_path / 'empty'}."
