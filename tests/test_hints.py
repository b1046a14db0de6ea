"""A command that a message tells a person to run can be pasted into a shell, whatever the path is called."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.errors import StateError
from hermes_state.shell_words import shell_word
from maintenance.doctor.findings import command
from tests.support.children import PROJECT

PACKAGES = ("hermes_state", "lockowners", "cron_store", "maintenance")
PROGRAMS = (
    "hermes-state ", "hermes sessions ", "hermes outbox ", "hermes instances ", "hermes doctor", "mkdir ", "cp -p ",
)
# What may stand in a command: one of ours that quotes, a verb or option without a path in it, a number.
# `target` and what is joined in `copy_command` are quoted before.
QUOTING = {"shell_word", "join", "command", "recover_command", "repair_command", "restore_command", "copy_command"}
WORDS = {
    "verb", "options", "pid", "number", "session", "chosen", "name", "code", "self.verb", "row.verb", "note.verb",
    "target",
}


def texts(tree: ast.AST) -> Iterator[ast.JoinedStr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node


def unquoted(text: ast.JoinedStr) -> Iterator[str]:
    """Values that a command in the text takes and that are not quoted."""
    open_command = False
    for part in text.values:
        if isinstance(part, ast.Constant):
            said = str(part.value)
            for program in PROGRAMS:
                if program in said:
                    open_command = True
            last = max((said.rfind(program) for program in PROGRAMS), default=-1)
            end = max(said.rfind(mark) for mark in ("`", "; ", ". ", ", "))
            if end > last:  # the command ended, or another sentence began
                open_command = False
        elif isinstance(part, ast.FormattedValue) and open_command:
            called = part.value.func if isinstance(part.value, ast.Call) else None
            name = getattr(called, "id", getattr(called, "attr", ""))
            fixed = isinstance(part.value, ast.IfExp) and all(
                isinstance(one, ast.Constant) for one in (part.value.body, part.value.orelse)
            )
            if not fixed and name not in QUOTING and ast.unparse(part.value) not in WORDS:
                yield ast.unparse(part.value)


def test_every_path_in_a_command_of_a_message_is_quoted_by_the_one_function() -> None:
    found = []
    for package in PACKAGES:
        for file in sorted((PROJECT / package).rglob("*.py")):
            content = file.read_text(encoding="utf-8")
            if not any(program in content for program in PROGRAMS):
                continue
            for text in texts(ast.parse(content)):
                found += [f"{file.relative_to(PROJECT)}:{text.lineno}: {value}" for value in unquoted(text)]
    assert found == []


def test_the_rule_sees_a_path_that_is_not_quoted() -> None:
    text = 'f"Run `hermes-state doctor --db {path}`, then look at {path}."'
    assert [value for node in texts(ast.parse(text)) for value in unquoted(node)] == ["path"]


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "it's.db", "a;b.db", "line\nbreak.db"])
def test_a_hint_gives_the_path_back_to_a_shell(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"no database at all " * 300)
    with pytest.raises(StateError) as refused:
        open_read(path)
    _before, _mark, said = str(refused.value.hint).partition("--db ")
    assert shlex.split(said.partition("`")[0]) == [str(path)]
    assert shlex.split(command("sessions restore", path, shell_word(path)))[3:] == ["--db", str(path), str(path)]


def test_a_path_that_needs_no_quotes_stays_as_it_is() -> None:
    for word in ("/a b", "it's", "", "plain-1.db", "a$b", "é", "a\nb", "~", "a:b,c@d%e+f=g"):
        assert shell_word(word) == shlex.quote(word)
    assert shell_word(Path("/home/me/.hermes/state.db")) == "/home/me/.hermes/state.db"
