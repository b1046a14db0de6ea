"""`sessions window`: what is known, asked, declared and forgotten, on a native store and on others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens import Factors
from hermes_state.compaction.windows import Windows
from hermes_state.store import open_store
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.slow
SERVER = "http://localhost:11434"


@pytest.fixture
def db(tmp_path: Path, fake_clock: FakeClock) -> Path:
    path = tmp_path / "state.db"
    with open_store(path=path):
        return path


def test_nothing_is_known_at_first_and_the_next_command_is_named(db: Path, run_cli) -> None:
    ran = run_cli("sessions", "window", "qwen@localhost:11434/v1", "--db", db)
    assert (ran.exit_code, ran.stderr) == (3, "")
    assert ran.stdout == (
        f"Nothing is known of the window of qwen@{SERVER}.\n"
        f"Next: hermes-state sessions window --db {db} qwen@{SERVER} --probe\n"
    )


def test_a_declaration_is_kept_shown_and_forgotten(db: Path, run_cli) -> None:
    declared = run_cli("sessions", "window", "qwen@localhost:11434", "--declare", "16384", "--db", db)
    assert declared.exit_code == 0, declared.stderr
    assert declared.stdout.splitlines()[0] == (
        f"qwen@{SERVER}: 16384 tokens, declared, and no server has said otherwise."
    )
    shown = run_cli("sessions", "window", f"qwen@{SERVER}/v1", "--db", db, "--json").json
    assert (shown["window"]["tokens"], shown["window"]["kind"]) == (16384, "declared")
    assert shown["window"]["evidence"] == {"source": "hermes sessions window"}
    assert shown["window"]["observed_at"] == "2027-01-15T08:00:00.000Z"
    forgotten = run_cli("sessions", "window", f"qwen@{SERVER}", "--forget", "declared", "--db", db, "--json")
    assert (forgotten.exit_code, forgotten.json["window"], forgotten.json["forgot"]) == (0, None, "declared")


def test_a_probe_asks_keeps_and_says_which_number_counts_and_why(db: Path, run_cli, fake_clock: FakeClock) -> None:
    with open_store(path=db) as store:
        for _ in range(3):
            Factors(store.core).learn("qwen", SERVER, "estimate", 1000, {"prompt_tokens": 1300})
    with ModelServer({
        "GET /api/ps": (200, {"models": [{"name": "qwen:latest", "context_length": 4096}]}),
        "POST /api/show": (200, {"model_info": {"qwen.context_length": 131072}}),
    }) as server:
        name = f"qwen@{server.endpoint}"
        dry = run_cli("sessions", "window", name, "--probe", "--dry-run", "--db", db)
        assert dry.exit_code == 0
        assert dry.stdout.splitlines()[0] == "Would keep: 4096 served, 131072 trained. Nothing was changed."
        with open_store(path=db) as store:
            assert Windows(store.core).known("qwen", server.endpoint) == ()
            Windows(store.core).declare("qwen", server.endpoint, 131072)
        asked = run_cli("sessions", "window", name, "--probe", "--db", db)
    assert asked.exit_code == 0, asked.stderr
    first, _, *rows = asked.stdout.splitlines()
    assert first == (
        f"{name}: 4096 tokens, which the server says that it serves; 131072 was declared; the model was trained for"
        " 131072."
    )
    assert [row.split()[:2] for row in rows] == [["4096", "served"], ["131072", "declared"], ["131072", "trained"]]
    assert "probe: field context_length, path /api/ps, server ollama" in rows[0]
    shown = run_cli("sessions", "window", f"qwen@{SERVER}", "--db", db)
    assert shown.exit_code == 3
    factors = run_cli("sessions", "window", f"qwen@{SERVER}", "--db", db, "--json").json["factors"]
    assert [(one["tokenizer"], one["samples"]) for one in factors] == [("estimate", 3)]


def test_a_server_that_says_no_window_is_told_on_stderr(db: Path, run_cli) -> None:
    with ModelServer({"GET /v1/models": (200, {"data": [{"id": "qwen"}]})}) as server:
        ran = run_cli("sessions", "window", f"qwen@{server.endpoint}", "--probe", "--db", db)
    assert ran.exit_code == 3
    assert ran.stderr == (
        f"{server.endpoint} answers, and does not say what it serves of qwen (GET /v1/models: 200, GET /props: 404,"
        " GET /api/v0/models: 404, GET /api/ps: 404).\n"
    )


def test_nobody_who_answers_is_an_error_without_the_password(db: Path, run_cli) -> None:
    ran = run_cli("sessions", "window", "qwen@http://me:secret@127.0.0.1:9/v1?key=secret", "--probe", "--db", db)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[0] == (
        "Error: No model server answers at http://127.0.0.1:9: ConnectionRefusedError at GET /v1/models, within 3 s."
    )
    assert "secret" not in ran.stderr


@pytest.mark.parametrize(("words", "message"), [
    (("qwen", "--probe"), "A probe needs the address of a server: qwen@ENDPOINT."),
    (("qwen", "--declare", "5", "--dry-run"), "A window is a whole number of tokens from 128 to 2147483647, not 5."),
])
def test_what_cannot_be_meant_is_a_usage_error(db: Path, run_cli, words: tuple[str, ...], message: str) -> None:
    ran = run_cli("sessions", "window", *words, "--db", db, "--json")
    assert (ran.exit_code, ran.json_error["error"]["message"]) == (2, message)


def test_a_file_of_hermes_agent_can_be_looked_at_and_keeps_nothing(store_copy, run_cli) -> None:
    path = store_copy("0.19.0")
    before = path.read_bytes()
    looked = run_cli("sessions", "window", "qwen@localhost:1", "--db", path, "--json")
    assert (looked.exit_code, looked.json["known"]) == (3, [])
    refused = run_cli("sessions", "window", "qwen@localhost:1", "--declare", "8192", "--db", path, "--json")
    assert (refused.exit_code, refused.json_error["error"]["code"]) == (1, "foreign_store")
    assert path.read_bytes() == before
