"""The report says the same to people and to programs, and ends with the verdict and one command."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from maintenance.doctor.examine import Examination, with_met_damage
from maintenance.doctor.findings import Finding, Severity, exit_code, next_command
from maintenance.doctor.report import document, lines
from tests.maintenance.damage import change, examined, leaves, only, overwrite_page
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy


def a_finding(severity: Severity, *, derived: bool = False, name: str = "thing", command: str = "") -> Finding:
    return Finding(
        code="search_index_damaged" if derived else "found",
        severity=severity,
        object=name,
        sentence=f"Something about {name}.",
        derived=derived,
        next_command=command,
    )


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([a_finding(Severity.OK), a_finding(Severity.INFO)], 0),
        ([a_finding(Severity.WARNING)], 3),
        ([a_finding(Severity.DAMAGE, derived=True)], 3),
        ([a_finding(Severity.WARNING), a_finding(Severity.DAMAGE)], 65),
    ],
)
def test_the_exit_status_is_that_of_the_worst_finding(findings: list[Finding], code: int) -> None:
    assert exit_code(findings) == code


def test_the_next_command_is_that_of_the_worst_finding_and_a_note_never_hides_a_problem() -> None:
    note = a_finding(Severity.INFO, command="install")
    problem = a_finding(Severity.WARNING)
    index = a_finding(Severity.DAMAGE, derived=True, command="rebuild")
    store = a_finding(Severity.DAMAGE, command="copy")
    assert next_command([note]) == "install"
    assert next_command([note, problem]) == ""
    assert next_command([note, problem, index]) == "rebuild"
    assert next_command([index, store, note]) == "copy"


def test_the_report_is_one_line_a_finding_then_the_verdict_then_the_command() -> None:
    found = Examination(
        path=Path("/home/me/state.db"),
        findings=(
            a_finding(Severity.OK, name="pages"),
            a_finding(Severity.INFO, name="mode"),
            a_finding(Severity.WARNING, name="wal"),
            a_finding(Severity.DAMAGE, name="messages_fts", derived=True),
            a_finding(Severity.DAMAGE, name="messages", command="the command"),
        ),
    )
    assert list(lines(found)) == [
        "Store: /home/me/state.db",
        "ok       Something about pages.",
        "note     Something about mode.",
        "problem  Something about wal.",
        "DAMAGE   Something about messages_fts.",
        "DAMAGE   Something about messages.",
        "Verdict: damaged: messages; damaged search index: messages_fts; 1 problem.",
        "Next: the command",
    ]
    assert document(found)["damaged_objects"] == ["messages"]
    assert document(found)["damaged_search_indexes"] == ["messages_fts"]
    assert (document(found)["verdict"], document(found)["exit_code"]) == ("damaged", 65)


def test_a_dangling_row_is_counted_by_table(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "PRAGMA foreign_keys = 0", "UPDATE messages SET session_id = 'gone' WHERE id = 1", triggers=False)
    found = examined(path)
    assert only(found, "foreign_key_violated").sentence == (
        "1 row of messages refers to rows of sessions that do not exist."
    )
    assert found.exit_code == 3


def test_a_file_that_is_mostly_free_pages_names_the_command_that_returns_them(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(20000000))", "DROP TABLE filler")
    found = examined(path, quick=True)
    free = only(found, "free_pages")
    assert free.severity is Severity.INFO
    assert free.sentence.endswith("; a rewrite would return them.")
    assert free.next_command == f"hermes-state sessions optimize --db {path}"
    assert found.exit_code == 0


def test_sizes_are_given_by_table_and_search_index(store_copy: StoreCopy) -> None:
    found = examined(store_copy("0.17.0"), sizes=True)
    largest = found.objects[0]
    assert (largest.name, largest.kind) == ("messages_fts_trigram", "search index")
    assert sum(item.share for item in found.objects) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_command_prints_the_report_and_exits_with_its_status(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    healthy = run_cli("doctor")
    assert (healthy.exit_code, healthy.stderr) == (0, "")
    assert healthy.stdout.splitlines()[0] == f"Store: {path}"
    assert "Verdict: healthy." in healthy.stdout.splitlines()
    overwrite_page(path, leaves(path, "idx_sessions_source")[0])
    damaged = run_cli("doctor", "--json", "--sizes")
    assert damaged.exit_code == damaged.json["exit_code"] == 3
    assert damaged.json["damaged_objects"] == ["idx_sessions_source"]
    assert damaged.json["sizes"][0]["name"] == "messages_fts_trigram"


@pytest.mark.slow
def test_quick_and_deep_together_are_a_wrong_call(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy("0.17.0")
    result = run_cli("doctor", "--quick", "--deep")
    assert result.exit_code == 2
    assert "--quick leaves out what --deep asks for: give only one of them." in result.stderr


def test_every_problem_that_the_doctor_can_find_is_explained_in_the_recovery_guide(project: Path) -> None:
    guide = (project / "docs" / "recovery.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+)`", guide.partition("## What doctor says")[2].partition("\n## ")[0]))
    known: set[str] = set()
    problems: set[str] = set()
    for module in (project / "maintenance" / "doctor").glob("*.py"):
        tree = ast.parse(module.read_text())
        known |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            texts = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "code")]
            for part in (part for text in texts for part in ast.walk(text)):
                worse = "Severity.WARNING" in ast.unparse(call) or "Severity.DAMAGE" in ast.unparse(call)
                if worse and isinstance(part, ast.Constant) and re.fullmatch(r"\w+", str(part.value)):
                    problems.add(str(part.value))
    codes = {code for code in problems if "_" in code} - NOTES
    assert codes - explained == set()
    assert {code for code in explained if "_" in code} - known == set()


# Codes that stand in the same call as a problem, and are none.
NOTES = {"free_pages", "sessions_export"}


def test_a_check_that_damage_stopped_is_damage_unless_something_else_says_what_is_hit(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    stopped = Finding(
        code="foreign_keys_not_checked", severity=Severity.WARNING, object="x", sentence="x",
        facts={"sqlite_extended": 11},
    )
    of_index = Finding(
        code="not_checked", severity=Severity.WARNING, object="x", sentence="x", facts={"sqlite_extended": 267}
    )
    hit = Finding(code="table_damaged", severity=Severity.DAMAGE, object="messages", sentence="x")
    assert exit_code(with_met_damage([stopped], path)) == 65
    assert exit_code(with_met_damage([of_index], path)) == 3
    assert with_met_damage([stopped, hit], path) == [stopped, hit]
