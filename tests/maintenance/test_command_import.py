"""`hermes-state sessions import`: what people see, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from hermes_state.store import open_store
from tests.maintenance.transcripts import CLAUDE_ID, CODEX_ID, claude, claude_talk, codex_talk, said, write
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy, versions

pytestmark = pytest.mark.slow

UNKNOWN = "does not say what wrote it: it is no store, no export and no transcript that is known."


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "state.db"
    open_store(path=path).close()
    return path


def test_it_says_what_it_imports_and_where_every_line_went(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    file = write(tmp_path / f"{CLAUDE_ID}.jsonl", claude_talk())
    planned = run_cli("sessions", "import", file, "--dry-run")
    body = (
        f"  {file} (claude): 1 session; 5 messages new, 0 there already\n"
        "      2 lines that are no message are kept with the message after them\n"
        "      1 line left out: progress\n"
    )
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert planned.stdout == f"Would import 5 messages and 1 session into {db}:\n{body}"
    unasked = run_cli("sessions", "import", file)
    assert (unasked.exit_code, unasked.stdout) == (1, "")
    assert unasked.stderr.splitlines()[-3::2] == [
        "Error: This needs an answer, and there is no terminal to ask on.",
        "Try: Add --yes, or look first with --dry-run.",
    ]
    done = run_cli("sessions", "import", file, "--yes", "--verify")
    assert done.stdout == (
        f"Imported 5 messages and 1 session into {db}:\n{body}Verified: 5 messages compared, all there.\n"
    )
    again = run_cli("sessions", "import", file)
    assert again.exit_code == 0
    assert again.stdout.splitlines()[0] == f"Already done: everything that can be imported is in {db}:"


def test_lines_that_cannot_be_used_are_named_and_the_rest_is_imported(
    db: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "x.jsonl", [claude("user", 1, said("user", "a")), "{broken", claude("user", 2, said("user", "b"))]
    )
    done = run_cli("sessions", "import", file, "--yes")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == f"Imported 2 messages and 1 session into {db}:"
    assert done.stderr.splitlines()[-1] == f"Not imported: {file}:2 is not JSON"
    partial = run_cli("sessions", "import", file, "--yes", "--allow-partial", "--json")
    assert (partial.exit_code, partial.stderr) == (0, "")
    [told] = partial.json["files"]
    assert told["problems"] == [{"line": 2, "reason": "is not JSON"}]
    assert sum(told["lines"][name] for name in ("messages_from", "kept", "refused")) == told["lines"]["lines"] == 3


def test_a_folder_stands_for_the_transcripts_below_it(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    write(folder / "app" / f"{CLAUDE_ID}.jsonl", claude_talk())
    agent = claude("user", 3, said("user", "go"), isSidechain=True, agentId="a1")
    write(folder / "app" / "agent-a1.jsonl", [agent])
    (folder / "empty.jsonl").touch()
    reason = f"{folder / 'empty.jsonl'} {UNKNOWN}"
    assert run_cli("sessions", "import", folder, "--dry-run").stderr == f"Skipped: {reason}\n"
    done = run_cli("sessions", "import", folder, "--yes", "--source", "laptop", "--json").json
    assert (done["sessions_new"], done["messages_new"]) == (2, 6)
    assert done["skipped"] == [{"path": str(folder / "empty.jsonl"), "reason": reason}]
    with open_store(path=db) as store:
        delegate = store.sessions.get(f"{CLAUDE_ID}.agent-a1")
        assert (delegate.parent_id, delegate.relation, delegate.source) == (CLAUDE_ID, "delegate", "laptop")


@pytest.mark.parametrize(
    ("content", "options", "exit_code", "message"),
    [
        ('{"a": 1}\n', (), 2, f"{{file}} {UNKNOWN}"),
        ("", (), 2, f"{{file}} {UNKNOWN}"),
        (json.dumps(codex_talk()[0]), ("--from", "claude"), 2, "{file} was written by codex, not by claude."),
        (None, (), 1, "There is no file {file}."),
    ],
)
def test_what_is_no_source_is_refused_by_name(
    content: str | None,
    options: tuple[str, ...],
    exit_code: int,
    message: str,
    db: Path,
    run_cli: RunCli,
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.jsonl"
    if content is not None:
        file.write_text(content)
    refused = run_cli("sessions", "import", file, "--yes", *options)
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (exit_code, f"Error: {message.format(file=file)}")


def test_a_store_is_not_imported_into_itself_nor_into_one_of_hermes_agent(
    db: Path, run_cli: RunCli, store_copy: StoreCopy, tmp_path: Path
) -> None:
    same = run_cli("sessions", "import", db, "--yes")
    assert (same.exit_code, same.stderr.splitlines()[0]) == (1, f"Error: {db} is the store to import into.")
    foreign = store_copy("0.19.0")
    before = foreign.read_bytes()
    refused = run_cli("sessions", "import", db, "--yes", "--db", foreign)
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        1,
        f"Error: {foreign} was written by hermes-agent or another program, not by this library.",
    )
    assert foreign.read_bytes() == before


def test_a_store_is_made_only_when_asked_for(run_cli: RunCli, tmp_path: Path) -> None:
    file, target = write(tmp_path / "x.jsonl", codex_talk()), tmp_path / "home" / "state.db"
    refused = run_cli("sessions", "import", file, "--yes")
    assert (refused.exit_code, target.exists()) == (1, False)
    assert run_cli("sessions", "import", file, "--new", "--dry-run").exit_code == 0
    assert not target.exists()
    assert run_cli("sessions", "import", file, "--new", "--yes").exit_code == 0
    with open_store(path=target, read_only=True) as store:
        assert store.messages.count(CODEX_ID) == 4


def test_every_release_comes_from_its_file_and_from_its_export_the_same(
    run_cli: RunCli, store_copy: StoreCopy, tmp_path: Path
) -> None:
    """Reports 128 and 219: moved with messages, chains and usage, in one verified step, and seen at once."""
    for number, version in enumerate(versions()):
        file, out = store_copy(version), tmp_path / f"{version}.jsonl"
        made = run_cli("sessions", "export", out, "--db", file, "--include-archived", "--all-messages", "--json").json
        one, other = (tmp_path / name / f"{number}.db" for name in ("one", "other"))
        told = run_cli("sessions", "import", file, "--db", one, "--new", "--yes", "--verify", "--json")
        assert told.exit_code == 0, told.stderr
        assert (told.json["messages_new"], told.json["verified"]["missing"]) == (made["messages"], 0)
        assert run_cli("sessions", "import", out, "--db", other, "--new", "--yes").exit_code == 0
        exports = []
        for path in (one, other):
            back = tmp_path / "back.jsonl"
            assert (
                run_cli(
                    "sessions", "export", back, "--db", path, "--include-archived", "--all-messages", "--force"
                ).exit_code
                == 0
            )
            # Rows of one session keep their order; which session was imported first gives the ids.
            found = [json.loads(line) for line in back.read_text().splitlines()]
            exports.append({record["id"]: plain(record) for record in found})
        assert exports[0] == exports[1] and len(exports[0]) == made["sessions"]
        # Seen at once: in the list, and by a search for what somebody said.
        listed = run_cli("sessions", "list", "--db", one, "--limit", "50", "--include-archived", "--json").json
        assert listed["sessions"], listed
        with open_store(path=one) as store:
            words = next(
                message["content"]
                for record in exports[0].values()
                for message in record["messages"]  # type: ignore[attr-defined]
                if message["role"] == "user" and isinstance(message["content"], str) and message["active"]
            )
            assert store.search(words.split()[0], limit=5, include_archived=True)


def test_a_conversation_moves_to_another_profile_with_all_its_parts(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    """Report 128: the chain with what hides its messages, its usage and its routing key, in one verified step."""
    with open_store(path=db) as store:
        store.sessions.create(id="a", source="telegram", title="Trip", session_key="telegram:7", chat_id="7")
        ids = [store.messages.append("a", role="user", content=text) for text in ("one", "two")]
        store.messages.rewind("a", ids[1])
        store.sessions.continue_as("a", new_id="b")
        store.messages.append("b", role="user", content="three")
        store.usage.record("b", model="m", input_tokens=11)
    out, other = tmp_path / "talk.jsonl", tmp_path / "other" / "state.db"
    done = run_cli("sessions", "export", out, "--session-id", "b", "--lineage", "logical", "--all-messages", "--json")
    assert (done.exit_code, done.json["sessions"], done.json["records"], done.json["messages"]) == (0, 2, 1, 3)
    told = run_cli("sessions", "import", out, "--db", other, "--new", "--yes", "--verify", "--json").json
    assert (told["sessions_new"], told["messages_new"], told["verified"]) == (2, 3, {"messages": 3, "missing": 0})
    with open_store(path=other, read_only=True) as store:
        assert [(session.id, session.state) for session in store.sessions.lineage("a")] == [
            ("a", "replaced"),
            ("b", "open"),
        ]
        tip = store.sessions.tip("a")
        assert (tip.title, tip.session_key, tip.chat_id) == ("Trip", "telegram:7", "7")
        assert store.usage.of_session("b").total.input_tokens == 11
        history = [
            message
            for name in ("a", "b")
            for message in store.messages.history(name, limit=10, include_rewound=True).messages
        ]
        assert [(message.content, message.hidden) for message in history] == [
            ("one", None),
            ("two", "rewind"),
            ("three", None),
        ]


def plain(record: dict[str, object]) -> dict[str, object]:
    messages = record.pop("messages")
    assert isinstance(messages, list)
    return record | {"messages": [{name: row[name] for name in row if name != "id"} for row in messages]}


def test_a_file_of_hermes_agent_is_no_target_and_is_left_as_it_is(run_cli: RunCli, store_copy: StoreCopy) -> None:
    target = store_copy("0.19.0")
    before = target.read_bytes()
    ran = run_cli("sessions", "import", target, "--db", target, "--yes")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[0] == (
        f"Error: {target} was written by hermes-agent or another program, not by this library."
    )
    assert target.read_bytes() == before


def test_a_database_of_another_program_is_no_target(run_cli: RunCli, db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)").fetchall()
    connection.close()
    before = other.read_bytes()
    ran = run_cli("sessions", "import", db, "--db", other, "--yes")
    assert (ran.exit_code, ran.stdout, other.read_bytes()) == (1, "", before)


def test_a_json_array_is_refused_by_name(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    with open_store(path=db) as store:
        for name in ("a", "b"):
            store.sessions.create(id=name, source="cli")
            store.messages.append(name, role="user", content=name)
    file = tmp_path / "all.json"
    assert run_cli("sessions", "export", file, "--format", "json").exit_code == 0
    refused = run_cli("sessions", "import", file, "--yes")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.splitlines() == [
        f"Error: {file} is one JSON array, as `sessions export --format json` writes it; only JSON lines can be "
        "imported.",
        "Why: The caller's fault: an argument cannot be used.",
        "Try: Export again with --format jsonl.",
    ]
