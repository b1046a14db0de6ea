"""Every block of the README is run; what it shows is what the program prints.

In a `console` block a line that starts with `$ ` is a command and the lines below it are its output. Output is compared
line by line, in order, after numbers and blanks are made equal: sizes and times differ between machines. A line `…`
stands for any lines. The store is the fixture of hermes-agent 0.19.0, as in `./dev demo`, on the day of `CAPTURED`, for
what is old enough for prune depends on the day. Commands run one after another on that one store.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes_state.clock import FakeClock
from tests.support.children import PROJECT

README = PROJECT / "README.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTURED = 1_795_953_600.0  # 2026-11-29 12:00 UTC
# Commands of a shell that the other tests and ./dev itself run.
NOT_RUN_HERE = ("git", "pip", "pipx", "uv", "cd", "source", "python", "python3")


class Shown(NamedTuple):
    """One command of a console block."""

    command: str  # what stands after `$ `
    output: tuple[str, ...]  # the lines below it


def blocks(language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(README.read_text(encoding="utf-8")) if kind == language]


def commands() -> list[Shown]:
    found: list[Shown] = []
    for body in blocks("console"):
        for line in body.splitlines():
            if line.startswith("$ "):
                found.append(Shown(line[2:], ()))
            elif found:
                found[-1] = Shown(found[-1].command, (*found[-1].output, line))
    return found


def even(line: str) -> str:
    """A line without what differs between machines."""
    line = re.sub(r"\S*/state\.db", "state.db", line)
    line = re.sub(r"\d[\d,.]*", "#", line)
    line = re.sub(r"\b(today|#-#-#)\b", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def unprinted(shown: Iterable[str], *streams: str) -> list[str]:
    """The shown lines that no stream has, each stream read in order: a terminal mixes a plan and its result."""
    printed = [[even(line) for line in stream.splitlines()] for stream in streams]
    missing = []
    for line in shown:
        found = next((lines for lines in printed if line in lines), None)
        if found is not None:
            del found[: found.index(line) + 1]
        elif line not in ("", "…"):
            missing.append(line)
    return missing


def test_readme_has_blocks_of_known_kinds_only() -> None:
    kinds = {kind for kind, _ in FENCE.findall(README.read_text(encoding="utf-8"))}
    assert kinds <= {"console", "python", "sh", "text", "json"}
    assert commands() and blocks("python")


@pytest.mark.slow
def test_every_command_prints_what_the_readme_shows(run_cli, store_copy, fake_clock: FakeClock) -> None:
    fake_clock.step_wall(CAPTURED - fake_clock.now())
    store_copy("0.19.0")
    wrong = []
    for shown in commands():
        words = shlex.split(shown.command, comments=True)
        if words[0] in NOT_RUN_HERE:
            continue
        if words[0] == "./dev":
            assert f'"{words[1]}"' in (PROJECT / "dev").read_text(encoding="utf-8"), shown.command
            continue
        assert words[0] in ("hermes", "hermes-state"), f"the README runs {words[0]}, which this test does not know"
        ran = run_cli(*words[1:], program=words[0])
        if ran.exit_code not in (0, 3):
            wrong.append(f"$ {shown.command}: exit {ran.exit_code}\n{ran.stderr}")
        missing = unprinted(map(even, shown.output), ran.stdout, ran.stderr)
        if missing:
            wrong.append(f"$ {shown.command} does not print, in this order: {missing}\n{ran.stdout}{ran.stderr}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_every_python_block_runs_with_and_without_a_named_home(
    child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    library = FENCE.findall((PROJECT / "docs" / "library.md").read_text(encoding="utf-8"))
    bodies = [*blocks("python"), *(body for kind, body in library if kind == "python")]
    assert len(bodies) == 2
    for number, body in enumerate(bodies):
        for named in (True, False):
            folder = tmp_path / f"{number}-{named}"
            folder.mkdir()
            env = {"HOME": str(folder), **({"HERMES_HOME": str(folder / "home")} if named else {})}
            for _time in range(2):  # the library's example is tried again
                child(f"import os; os.chdir({str(folder)!r})\n{body}", env=env).finish()


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", README.read_text(encoding="utf-8"))
    assert [link for link in links if not (PROJECT / link).exists()] == []


def test_documents_link_to_existing_files_only() -> None:
    wrong = []
    for path in (PROJECT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if not (path.parent / Path(link)).exists():
                wrong.append(f"{path.name}: {link}")
    assert wrong == []
