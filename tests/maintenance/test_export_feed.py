"""Exports by message id: what a poller may rely on (report 210)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import Refused
from hermes_state.store import open_store
from maintenance.reading.export.feed import FeedHead, count_feed, write_feed
from maintenance.reading.export.items import ExportRecord, ExportTally
from tests.support.cli import RunCli
from tests.support.foreign import Foreign

pytestmark = pytest.mark.slow


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def kinds(text: str) -> list[str]:
    return [line["type"] for line in lines(text)]


@pytest.fixture
def native(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        for name in ("a", "b"):
            store.sessions.create(id=name, source="cli")
            for number in range(3):
                store.messages.append(name, role="user", content=f"{name} {number}")
        store.messages.rewind("b", 6)
    return path


def test_the_first_export_has_everything_and_names_the_id_to_go_on_from(native: Path, run_cli: RunCli) -> None:
    told = run_cli("sessions", "export", "-", "--since-id", "0", "--all-messages")
    assert (told.exit_code, told.stderr) == (0, "")
    assert kinds(told.stdout) == ["export", *["session", *["message"] * 3] * 2, "end"]
    first, last = lines(told.stdout)[0], lines(told.stdout)[-1]
    with open_store(path=native, read_only=True) as store:
        store_id, incarnation = store.store_id, store.incarnation
    assert {
        name: first[name] for name in ("format", "version", "since_id", "high_id", "dialect", "store_id", "incarnation")
    } == {
        "format": "hermes-state/messages",
        "version": 1,
        "since_id": 0,
        "high_id": 6,
        "dialect": "native",
        "store_id": store_id,
        "incarnation": incarnation,
    }
    assert last == {"type": "end", "high_id": 6, "sessions": 2, "messages": 6}
    found = {line["message"]["id"]: line["message"] for line in lines(told.stdout) if line["type"] == "message"}
    hidden = found[6]
    assert (sorted(found), hidden["session_id"], hidden["active"]) == ([1, 2, 3, 4, 5, 6], "b", 0)


def test_the_next_export_has_only_what_is_newer_and_an_idle_store_gives_an_empty_one(
    native: Path, run_cli: RunCli
) -> None:
    with open_store(path=native) as store:
        store.messages.append("a", role="assistant", content="late")
        store.sessions.create(id="c", source="cli")
    told = run_cli("sessions", "export", "-", "--since-id", "6").stdout
    assert kinds(told) == ["export", "session", "message", "end"]
    assert lines(told)[2]["message"]["content"] == "late"
    assert lines(told)[-1]["high_id"] == 7
    idle = run_cli("sessions", "export", "-", "--since-id", "7").stdout
    assert (kinds(idle), lines(idle)[-1]["high_id"]) == (["export", "end"], 7)
    beyond = run_cli("sessions", "export", "-", "--since-id", "99").stdout
    assert lines(beyond)[-1]["high_id"] == 99


def test_a_file_says_its_ids_in_json_and_in_words(native: Path, run_cli: RunCli, tmp_path: Path) -> None:
    told = run_cli("sessions", "export", tmp_path / "x.jsonl", "--since-id", "2", "--json").json
    assert (told["since_id"], told["high_id"], told["sessions"], told["messages"]) == (2, 6, 2, 3)
    said = run_cli("sessions", "export", tmp_path / "y.jsonl", "--since-id", "2")
    assert said.stdout.splitlines()[-1] == "Next time: --since-id 6"
    whole = run_cli("sessions", "export", tmp_path / "z.jsonl", "--json").json
    assert (whole["since_id"], whole["high_id"]) == (None, None)


def test_a_store_of_hermes_agent_gives_the_same_lines(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "home").mkdir()
    store = Foreign(tmp_path / "home" / "state.db")
    store.session("a")
    for text in ("one", "two"):
        store.message("a", text)
    store.close()
    told = run_cli("sessions", "export", "-", "--since-id", "1").stdout
    assert kinds(told) == ["export", "session", "message", "end"]
    assert (lines(told)[0]["store_id"], lines(told)[0]["dialect"], lines(told)[-1]["high_id"]) == (None, "foreign", 2)


@pytest.mark.parametrize("options", [("--format", "html"), ("--lineage", "logical")])
def test_other_formats_have_no_ids(options: tuple[str, ...], native: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "export", "-", "--since-id", "0", *options)
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        2,
        "Error: --since-id writes a line for each message: it goes with --format jsonl and --lineage single.",
    )


def test_an_id_that_no_store_can_have_is_a_usage_error(native: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "export", "-", "--since-id", "99999999999999999999")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--since-id" in refused.stderr
    assert run_cli("sessions", "export", "-", "--since-id", str(2**63 - 1)).exit_code == 0


def test_a_file_without_its_end_or_with_other_counts_does_not_verify(tmp_path: Path) -> None:
    out, tally = io.StringIO(), ExportTally(sessions=1, messages=2)
    head = FeedHead(since_id=0, high_id=2, dialect="native", store_id="s", incarnation="i", made_at=None)
    rows: list[dict[str, Any]] = [{"id": 1}, {"id": 2}]
    write_feed([ExportRecord(session={"id": "a"}, messages=iter(rows))], out, head, tally)
    whole = out.getvalue().splitlines(keepends=True)
    path = tmp_path / "x.jsonl"
    path.write_text("".join(whole))
    assert count_feed(path) == (1, 2)
    for broken in (whole[:-1], whole[:2] + whole[3:], [*whole[:-1], whole[-1][:-5]]):
        path.write_text("".join(broken))
        with pytest.raises(Refused) as caught:
            count_feed(path)
        assert caught.value.message == (
            "The export x.jsonl does not read back as it was written, so it was not put in place."
        )
