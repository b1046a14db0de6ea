"""`sessions recover` as a person runs it: what it prints, its exit status, and --install."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_header, zero_leaves
from tests.maintenance.recovery.recovering import everything, foreign_store, native_store
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


def test_inspect_only_names_what_is_damaged_and_exits_3(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    before = sorted(path.name for path in db.parent.iterdir())
    ran = run_cli("sessions", "recover", "--inspect-only", "--source", db)
    assert ran.exit_code == 3
    assert f"Source: {db} (bare file; schema from: file)." in ran.stdout
    assert "The table messages is damaged" in ran.stdout
    assert sorted(path.name for path in db.parent.iterdir()) == before
    said = run_cli("sessions", "recover", "--inspect-only", "--source", db, "--json").json
    assert said["damaged"] and {table["table"]: table["state"] for table in said["tables"]}["messages"] == "damaged"
    command = f"hermes-state sessions recover --source {db}"
    assert [one["next_command"] for one in said["findings"] if one["severity"] == "damage"] == [command]


def test_lost_rows_exit_65_and_the_result_is_partial(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    ran = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "out.db")
    assert ran.exit_code == 65
    assert f"Rows are known to be lost: the result is {tmp_path / 'out.db.partial'}." in ran.stderr
    assert "known to be lost" in ran.stdout
    allowed = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "two.db", "--allow-partial")
    assert (allowed.exit_code, allowed.stderr) == (0, "")
    assert f"Recovered {db} into {tmp_path / 'two.db'}." in allowed.stdout


def test_json_is_the_report_that_was_written(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.18.2")
    zero_header(db)
    ran = run_cli(
        "sessions", "recover", "--source", db, "--output", tmp_path / "out.db", "--report", tmp_path / "r.json",
        "--json",
    )
    assert (ran.exit_code, ran.stderr) == (0, "")
    written = json.loads((tmp_path / "r.json").read_text())
    assert {name: value for name, value in ran.json.items() if name not in ("dry_run", "installed")} == written
    assert ran.json["installed"] is None


def test_install_puts_the_result_in_the_place_of_the_damaged_store(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.17.0", grown=2)
    rows = everything(db)
    inode = db.stat().st_ino
    zero_header(db)
    damaged = db.read_bytes()
    refused = run_cli("sessions", "recover", "--source", db, "--install")
    assert refused.exit_code == 1 and db.read_bytes() == damaged
    ran = run_cli("sessions", "recover", "--source", db, "--install", "--yes")
    assert ran.exit_code == 0, ran.stderr
    assert f"Installed into {db}; the damaged files are in " in ran.stdout
    assert db.stat().st_ino == inode
    assert everything(db) == rows
    aside = Path(ran.stdout.partition("the damaged files are in ")[2].splitlines()[0].rstrip("."))
    assert damaged in [path.read_bytes() for path in aside.iterdir()]
    assert run_cli("doctor", "--db", db).exit_code == 0


def test_a_partial_result_is_not_installed(run_cli: RunCli, tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=10)
    zero_leaves(db, "messages", 1, seed=1)
    damaged = db.read_bytes()
    ran = run_cli("sessions", "recover", "--source", db, "--install", "--yes")
    assert ran.exit_code == 65
    command = f"hermes-state sessions restore {db}.recovered.db.partial --db {db}"
    assert ran.stderr.splitlines()[-2:] == [
        f"Rows are known to be lost: the result is {db}.recovered.db.partial.",
        f"{db} was not replaced. Read {db}.recovered.db.recovery.json; to have what there is put in its place: "
        f"`{command}`.",
    ]
    assert db.read_bytes() == damaged
    assert run_cli(*command.split()[1:], "--yes").exit_code == 0
    assert run_cli("doctor", "--db", db).exit_code in (0, 3)


def test_a_second_recovery_with_install_takes_the_next_name_and_keeps_the_first(
    run_cli: RunCli, tmp_path: Path
) -> None:
    db = native_store(tmp_path / "home", sessions=10)
    command = ("sessions", "recover", "--source", str(db), "--install", "--allow-partial", "--yes")
    for seed in (1, 2):
        zero_leaves(db, "messages", 1, seed=seed)
        ran = run_cli(*command)
        assert ran.exit_code == 0, ran.stderr
    assert sorted(path.name for path in db.parent.glob("*.recovered.db")) == [
        "state.db.2.recovered.db", "state.db.recovered.db",
    ]
    assert len(list(db.parent.glob("state.db.replaced-*"))) == 2
    # Without --install nothing is named by itself: which result is meant is for the person to say.
    refused = run_cli("sessions", "recover", "--source", db)
    assert (refused.exit_code, f"{db}.recovered.db exists already." in refused.stderr) == (1, True)


def test_install_beside_a_holder_is_refused_before_the_work(run_cli: RunCli, child: Children, tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=4)
    holder = child(
        "import sys, gates\nfrom pathlib import Path\nfrom hermes_state import open_store\n"
        "with open_store(path=Path(sys.argv[1])):\n    gates.reach('open')\n    gates.wait('never')\n", db,
    )
    holder.wait_for("open")
    ran = run_cli("sessions", "recover", "--source", db, "--install", "--yes")
    assert ran.exit_code == 1
    assert ran.stderr.splitlines()[0] == (
        f"Error: `sessions recover` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )
    assert [path.name for path in db.parent.iterdir() if "recover" in path.name] == []
    holder.kill()
    assert run_cli("sessions", "recover", "--source", db, "--install", "--yes").exit_code == 0


@pytest.mark.parametrize(
    "ending", ["out.db", "out.db.partial", "out.db.recovery-apart.jsonl", "out.db.recovering/r", "out.db-wal"]
)
def test_a_report_under_the_name_of_something_else_is_refused(run_cli: RunCli, tmp_path: Path, ending: str) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0")
    ran = run_cli(
        "sessions", "recover", "--source", db, "--output", tmp_path / "out.db", "--report", tmp_path / ending
    )
    assert ran.exit_code == 2
    assert ran.stderr.splitlines() == [
        f"Error: --report names {tmp_path / ending}, which is made for something else.",
        "Why: The caller's fault: an argument cannot be used.",
        "Try: Name another file with --report, or leave it out.",
    ]
    assert list(tmp_path.glob("out.db*")) == []


def test_a_source_is_recovered_on_a_machine_without_any_store(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "elsewhere", "0.19.0")
    ran = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "out.db", home=tmp_path / "no-home")
    assert (ran.exit_code, ran.stderr) == (0, "")
    refused = run_cli("sessions", "recover", home=tmp_path / "no-home")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[0] == f"Error: There is no store at {tmp_path / 'no-home' / 'state.db'}."


def test_after_a_recovery_the_doctor_names_the_command_that_puts_its_result_in_place(
    run_cli: RunCli, tmp_path: Path
) -> None:
    db = native_store(tmp_path / "my home's", sessions=3, messages=2)
    rows = everything(db)
    zero_header(db)
    assert run_cli("sessions", "recover", "--source", db).exit_code == 0
    said = run_cli("doctor", "--db", db)
    restore = f"hermes-state sessions restore --db {shlex.quote(str(db))} {shlex.quote(f'{db}.recovered.db')}"
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (65, f"Next: {restore}")
    assert run_cli(*shlex.split(restore)[1:], "--yes").exit_code == 0
    assert run_cli("doctor", "--db", db).exit_code == 0
    back = everything(db)
    # Nothing was read of the store that went away, so ids of obligations made until then are too old, and the
    # generations of conversations begin above all that may have been given out.
    made = ("store", "outbox_horizon", "routing_home")
    assert {key: row for key, row in back.items() if key[0] not in made} == {
        key: row for key, row in rows.items() if key[0] not in made
    }
