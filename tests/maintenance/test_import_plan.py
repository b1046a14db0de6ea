"""The plan of an import: what is new is counted once over all files, and nothing is made before somebody agreed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state.store import open_store
from maintenance.intake.known import Known
from maintenance.intake.lines import LINE_BYTES, longest_line, read_lines
from maintenance.intake.model import Hide
from maintenance.intake.underway import hidden_by
from tests.support.cli import RunCli


def record(session: str, *texts: str) -> str:
    messages = [
        {"id": number, "role": "user", "content": text, "timestamp": 1_700_000_001.0 + number}
        for number, text in enumerate(texts, 1)
    ]
    return json.dumps({"id": session, "started_at": 1_700_000_000.0, "source": "cli", "messages": messages}) + "\n"


def export(path: Path, *records: str) -> Path:
    path.write_text("".join(records))
    return path


@pytest.mark.slow
def test_files_that_overlap_are_planned_as_they_are_imported(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    open_store(path=db).close()
    one = export(tmp_path / "one.jsonl", record("talk", "a", "b"))
    two = export(tmp_path / "two.jsonl", record("talk", "a", "b", "c"), record("more", "x"))
    planned = run_cli("sessions", "import", one, two, one, "--dry-run")
    body = (
        f"  {one} (hermes-agent): 1 session; 2 messages new, 0 there already\n"
        f"  {two} (hermes-agent): 2 sessions; 2 messages new, 2 there already\n"
        f"  {one} (hermes-agent): 1 session; 0 messages new, 2 there already\n"
    )
    assert planned.stdout == f"Would import 4 messages and 2 sessions into {db}:\n{body}"
    done = run_cli("sessions", "import", one, two, one, "--yes")
    assert done.stdout == f"Imported 4 messages and 2 sessions into {db}:\n{body}"


@pytest.mark.slow
def test_nothing_is_made_before_somebody_agreed_and_the_folder_with_the_store(tmp_path: Path, run_cli: RunCli) -> None:
    home = tmp_path / "new" / "home"
    file = export(tmp_path / "one.jsonl", record("talk", "a"))
    for asked in (["--dry-run"], []):
        run_cli("--home", home, "sessions", "import", file, "--new", *asked)
        assert not (tmp_path / "new").exists()
    refused = run_cli("--home", home, "sessions", "import", file, "--new")
    assert refused.stderr == (
        f"Import 1 message and 1 session into {home / 'state.db'}:\n"
        f"  {file} (hermes-agent): 1 session; 1 message new, 0 there already\n"
        "Error: This needs an answer, and there is no terminal to ask on.\n"
        "Why: Understood and not done, because it would be unsafe or was not confirmed.\n"
        "Try: Add --yes, or look first with --dry-run.\n"
    )
    assert run_cli("--home", home, "sessions", "import", file, "--new", "--yes").exit_code == 0
    with open_store(home=home, read_only=True) as store:
        assert store.messages.count("talk") == 1
    missing = run_cli("--home", tmp_path / "nowhere", "sessions", "import", file, "--yes")
    assert missing.stderr.startswith(f"Error: There is no store at {tmp_path / 'nowhere' / 'state.db'}.\n")


@pytest.mark.slow
def test_a_folder_of_markdown_is_refused_by_name(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="talk", source="cli")
        store.messages.append("talk", role="user", content="a")
    folder = tmp_path / "pages"
    assert run_cli("sessions", "export", folder, "--format", "md").exit_code == 0
    refused = run_cli("sessions", "import", folder, "--yes")
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"Error: Nothing in the folder {folder} can be imported. {folder / 'manifest.jsonl'} is the list of a Markdown "
        "export, which is for reading and cannot be imported.\n"
        "Why: The caller's fault: an argument cannot be used.\n"
        "Try: Name a file, or export again with --format jsonl.\n"
    )


def test_a_line_that_there_is_no_memory_for_is_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"id": "long", "text": "' + "x" * 5000 + '"}\n{"id": "short"}\n')

    first, second = read_lines(file, limit=4096)
    assert (first.number, first.value, first.reason) == (
        1, None, "is longer than 4,096 bytes, the longest line that there is memory for",
    )
    assert (second.number, second.value) == (2, {"id": "short"})


def test_a_line_may_have_a_sixteenth_of_the_free_memory_and_never_less_than_64_mib() -> None:
    assert longest_line(None) == longest_line(1 << 20) == LINE_BYTES
    assert longest_line(16 << 30) == 1 << 30


@pytest.mark.slow
def test_one_line_that_is_no_message_is_told_in_the_singular(tmp_path: Path, run_cli: RunCli) -> None:
    from tests.maintenance.transcripts import claude, said

    open_store(path=tmp_path / "home" / "state.db").close()
    file = tmp_path / "x.jsonl"
    lines: list[Any] = [claude("user", 1, said("user", "a")), claude("system", 2), claude("user", 3, said("user", "b"))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_cli("sessions", "import", file, "--dry-run")
    assert "      1 line that is no message is kept with the message after it\n" in done.stdout


@pytest.mark.parametrize(
    ("hide", "found"),
    [
        (Hide(session_id="b", kind="rewind", first_key="", last_key="", at=1.0, first_position=-5, last_position=-3),
         (-5, -3)),
        (Hide(session_id="b", kind="rewind", first_key="", last_key="", at=1.0, first_position=-5, last_position=0),
         (-5, 0)),
        (Hide(session_id="b", kind="rewind", first_key="k", last_key="k", at=1.0, first_position=-1, last_position=0),
         (-1, 7)),
    ],
)
def test_an_edit_in_what_a_branch_shares_keeps_both_its_ends(hide: Hide, found: tuple[int, int]) -> None:
    known = Known("n")
    known.add("k", 1, 7)
    hidden = hidden_by(hide, known)
    assert hidden is not None and (hidden.first, hidden.last) == found


@pytest.mark.slow
def test_a_branch_comes_through_an_export_with_the_same_context(tmp_path: Path, run_cli: RunCli) -> None:
    """A rewind in the branch that lies wholly in the part it shares with its parent."""
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="parent", source="cli")
        for number in range(1, 9):
            store.messages.append("parent", role="user", content=f"shared {number}")
        branch = store.sessions.branch("parent", new_id="branch")
        store.messages.append(branch.id, role="user", content="own")

        def hide(tx: Any) -> None:
            (no,) = tx.rows("SELECT no FROM sessions WHERE id = 'branch'")[0]
            tx.execute(
                "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at, reason)"
                " VALUES (?, 'rewind', -5, -3, 5.0, 'test')", (no,),
            )

        store.core.write(hide)
        before = [message["content"] for message in store.messages.context("branch")]
    assert "own" in before and len(before) == 6, before
    out = tmp_path / "out.jsonl"
    assert run_cli("sessions", "export", out, "--all-messages").exit_code == 0
    other = tmp_path / "other" / "state.db"
    done = run_cli("sessions", "import", out, "--db", other, "--new", "--yes")
    assert done.exit_code == 0, done.stderr
    with open_store(path=other, read_only=True) as store:
        assert [message["content"] for message in store.messages.context("branch")] == before
