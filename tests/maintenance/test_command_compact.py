"""`sessions compact` and `sessions view` as people run them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.compaction import plan
from hermes_state.compaction.planning.plans import POLICIES
from maintenance.reading.compaction_reasons import for_people
from tests.hermes_state.compaction.passes.talks import rows, talk
from tests.hermes_state.compaction.planning.histories import one_task, seed_probe

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
    for words in (window, "trigger 2805", "summarised", "a pass is due above 2805"):
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
    size = (
        f"That is {shown['tokens_before']} tokens by the built-in estimate, which does not fit the 4000 tokens of its"
        " last window with what was fixed and kept for the reply.\n"
    )
    looked = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0", "--dry-run")
    assert looked.stdout == "Session one would be seen through its whole history.\n" + size
    back = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0")
    assert (back.exit_code, back.stdout) == (0, (
        f"Session one is seen through its whole history.\n{size}"
        f"Where it was: hermes-state sessions compact --db {db} one --rollback 1\n"
    ))
    with open_store(path=db, read_only=True) as store:
        assert (rows(store), store.messages.context("one")) == (said, whole)


def test_going_back_and_forth_says_in_numbers_whether_it_fits(run_cli, db: Path) -> None:
    after = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--json").json["tokens_after"]
    run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0")
    shown = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "1", "--json").json
    assert [shown[name] for name in ("seen_before", "seen_through", "already_done", "tokens", "window", "fits")] == [
        None, 1, False, after, 4000, True,
    ]
    again = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "1")
    assert again.stdout.startswith("Session one is seen through generation 1.\nThat is ")
    assert "which fits the 4000 tokens" in again.stdout and "Where it was" not in again.stdout


@pytest.mark.parametrize("plan", [(), ("--plan",)])
@pytest.mark.parametrize("turns", [0, 1])
def test_of_a_session_that_fits_there_is_nothing_to_do_and_that_is_no_failure(
    run_cli, db: Path, turns: int, plan: tuple[str, ...]
) -> None:
    with open_store(path=db) as store:
        store.sessions.create(id="small", source="cli")
        for _ in range(turns):
            store.messages.append("small", role="user", content="hello")
    ran = run_cli("sessions", "compact", "small", "--db", db, *WINDOW, *plan)
    tokens = turns and 6
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith(
        f"Session small: nothing to do, it fits (not_worth_it): {tokens} of 3300 tokens. A pass would free about 0 "
    )
    assert ran.stdout.endswith(
        "Next: send the session as it is; a pass is due above 2805 tokens. A smaller --window makes one now.\n"
    )
    shown = run_cli("sessions", "compact", "small", "--db", db, *WINDOW, *plan, "--json")
    assert (shown.exit_code, shown.json["state"], shown.json["fits"]) == (0, "not_compacted", True)


def test_a_plan_gives_its_reasons_in_tokens_and_places_of_the_view(run_cli, db: Path) -> None:
    ran = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--plan")
    because = next(line for line in ran.stdout.splitlines() if line.startswith("because"))
    over = r"the messages have \d+ tokens and a pass is due above 2805; the tail takes \d+ of 825 tokens;"
    assert re.search(over, because)
    places = [
        one["position"] for one in run_cli("sessions", "view", "one", "--db", db, "--json").json["messages"]
    ]
    first = run_cli("sessions", "compact", "one", "--db", db, *WINDOW, "--plan", "--json").json["plan"]["end"] - 1
    assert re.search(rf"messages? (\d+ to )?{places[first]} before it would need \d+ tokens", because)


def test_every_reason_of_a_plan_has_words() -> None:
    for talk_of in (one_task(40), seed_probe()):
        for policy in POLICIES:
            for window in (1200, 4096, 16_384, 60_000, 200_000):
                made = plan(talk_of, window=window, policy=policy, reply_reserve=window // 2)
                told = for_people(made.reasons, list(range(1, 1 + len(talk_of))))
                assert not set(told) & set(made.reasons), (policy, window)


@pytest.mark.parametrize("table", ["compaction_clips SET clip", "compactions SET anchors", "compactions SET error"])
def test_a_damaged_row_is_named_by_doctor_and_going_back_is_possible(run_cli, db: Path, table: str) -> None:
    with open_store(path=db) as store:
        store.messages.append("one", role="user", content="x y " * 20_000)
    for _ in range(2):
        run_cli("sessions", "compact", "one", "--db", db, *WINDOW)
    with open_store(path=db) as store, store.core.writer.transaction() as tx:
        tx.execute(f"UPDATE {table} = 'zzz'")
    assert run_cli("sessions", "view", "one", "--db", db).exit_code == 0
    told = run_cli("doctor", "--db", db, "--json")
    assert told.exit_code == 3
    found = next(one for one in told.json["findings"] if one["code"] == "compaction_unreadable")
    assert found["next_command"] == f"hermes-state sessions compact --db {db} one --rollback 0"
    back = run_cli("sessions", "compact", "one", "--db", db, "--rollback", "0")
    assert (back.exit_code, back.stderr) == (0, "")


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
