"""`sessions compact` and `sessions view` as people run them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermes_state import open_store
from tests.hermes_state.compaction.passes.talks import rows, talk

pytestmark = pytest.mark.slow
WINDOW = ("--window", "4000", "--fixed-tokens", "200")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "native" / "state.db"
    with open_store(path=path) as store:
        talk(store, 9)
    return path


def test_a_plan_changes_nothing_and_prints_budget_cut_and_reasons(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--plan")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Session one: a pass would be made (manual). It was asked for.\n")
    window = "4000 tokens (given): 200 fixed, 500 for the reply, 3300 usable"
    for words in (window, "trigger 2805", "summarised", "over "):
        assert words in ran.stdout
    with open_store(path=db, read_only=True) as store:
        assert store.compaction.generations("one") == ()


def test_a_pass_its_list_its_view_and_the_way_back(run_cli, db: Path) -> None:
    with open_store(path=db, read_only=True) as store:
        said, whole = rows(store), store.messages.context("one")
    ran = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--json")
    shown = ran.json
    assert (ran.exit_code, shown["state"], shown["form"], shown["fits"]) == (0, "compacted", "extractive", True)
    listed = run_cli("sessions", "compact", "one", "--db", db, "--generations", "--json").json
    assert [(one["generation"], one["state"]) for one in listed["generations"]] == [(1, "done")]
    assert listed["seen_through"] == 1
    view = run_cli("sessions", "view", "one", "--db", db, "--json").json
    assert (view["generation"], view["messages"][0]["summary"]) == (1, True)
    assert run_cli("sessions", "view", "one", "--db", db, "--as-of", "0", "--json").json["generation"] is None
    looked = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0", "--dry-run")
    assert looked.stdout == "Session one would be seen through its whole history.\n"
    back = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0")
    assert (back.exit_code, back.stdout) == (0, "Session one is seen through its whole history.\n")
    with open_store(path=db, read_only=True) as store:
        assert (rows(store), store.messages.context("one")) == (said, whole)


def test_what_cannot_be_compacted_exits_1_and_says_what_fills_the_window(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, "--window", "4096", "--fixed-tokens", "4500")
    assert ran.exit_code == 1
    assert "given up (prefix_too_large)" in ran.stdout and "4500  fixed" in ran.stdout and "Try: " in ran.stdout


def test_a_plan_says_that_the_reserve_was_lowered_and_what_comes_next(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, "--window", "4096", "--reply-reserve", "3000", "--plan")
    assert ran.exit_code == 0
    assert "1024 for the reply (of 3000 asked for: at most a quarter of the window), 3072 usable" in ran.stdout
    assert ran.stdout.endswith("Nothing was changed. Next: the same command without --plan makes the pass.\n")


def test_a_prefix_that_only_the_estimate_finds_too_large_is_warned_of(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, "--window", "4096", "--fixed-tokens", "3500", "--plan")
    assert ran.exit_code == 0 and "512 usable for messages" in ran.stdout
    assert ran.stderr.startswith("Warning: prefix_estimated: by the estimate the fixed part takes 3500 of 4096 tokens")


def test_a_program_makes_the_summary(run_cli, db: Path, tmp_path: Path) -> None:
    program = tmp_path / "summarise.py"
    program.write_text("print('Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005.')")
    ran = run_cli(
        "sessions", "compact", "one", "--db", db, *WINDOW, "--json", "--summarizer",
        f"command:{sys.executable} {program}",
    )
    assert (ran.exit_code, ran.json["form"], ran.json["warnings"]) == (0, "model", [])


def test_wrong_words_are_refused(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--summarizer", "magic")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "--summarizer is extractive, command:PROGRAM or openai:URL, not 'magic'." in ran.stderr
    unknown = run_cli("sessions", "compact", "one", "--db", db)
    assert unknown.exit_code == 1 and "has no model, so its window is not known." in unknown.stderr
    missing = run_cli("sessions", "view", "one", "--db", db, "--as-of", "7")
    assert missing.exit_code == 1 and "has no generation 7 that it can be seen through." in missing.stderr


def test_a_file_of_hermes_agent_is_refused_with_the_command_that_adopts_it(run_cli, store_copy) -> None:
    store = store_copy("0.19.0")
    for verb in ("compact", "view"):
        ran = run_cli("sessions", verb, "anything", "--db", store, "--json")
        assert ran.exit_code == 1 and ran.json_error["error"]["code"] == "foreign_store"
        assert "adopt" in ran.json_error["error"]["try"]
