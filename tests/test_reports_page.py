"""docs/reports.md names every report of this release, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

NUMBERS = {
    3, *range(10, 13), *range(14, 47), 49, *range(52, 57), 58, 59, *range(62, 65), *range(66, 140), *range(141, 172),
    *range(172, 187),
    *range(187, 208),
    *range(208, 211), 216, *range(218, 225), *range(227, 234), 237, 238, *range(239, 246), *range(246, 259), 261,
}
# What no test here can answer: numbers without a report, and what is not part of this program yet.
UNKNOWN = {
    24, 26, 34, 36, 39, 69, 94, 99, 101, 104, 107, 108, 118, 150, 152, 163, 166, 173, 175, 189, 199, 205, 218,
    253, 258,
}
LATER: set[int] = {138, 139}


def table(project: Path) -> dict[int, list[str]]:
    """The cells of each row by number."""
    page = (project / "docs" / "reports.md").read_text(encoding="utf-8")
    found = [line.strip("|").split(" | ") for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    return {int(cells[0]): [cell.strip() for cell in cells[1:]] for cells in found}


def names_in(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_report_of_this_release_is_in_the_table_once(project: Path) -> None:
    page = (project / "docs" / "reports.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)]
    assert numbers == sorted(NUMBERS)


def test_every_report_has_a_link_and_a_test_or_says_why_not(project: Path) -> None:
    for number, (link, expected, tests, why) in table(project).items():
        assert expected, number
        if number in UNKNOWN:
            assert (link, tests, why) == ("none", "none", "No report with this number is on record"), number
        else:
            assert re.fullmatch(r"\[[\w-]+#\d+\]\(https://github\.com/\S+/\d+\)", link), number
        if number in LATER:
            assert tests == "none" and why.startswith("Not in this release: "), number
        elif number not in UNKNOWN:
            assert "::" in tests, number


def test_every_test_that_the_table_names_exists(project: Path) -> None:
    named = [name for cells in table(project).values() for name in re.findall(r"`([^`]+\.py::\w+)`", cells[2])]
    known: dict[str, set[str]] = {}
    assert len(named) > len(NUMBERS - UNKNOWN - LATER)
    for name in named:
        path, _, test = name.partition("::")
        assert test in known.setdefault(path, names_in(project / path)), name


def test_every_test_of_the_reports_is_in_the_table(project: Path) -> None:
    page = (project / "docs" / "reports.md").read_text(encoding="utf-8")
    modules = sorted((project / "tests" / "reports").glob("test_reports_*.py"))
    assert modules
    for module in modules:
        for test in names_in(module):
            assert f"`tests/reports/{module.name}::{test}`" in page, test
