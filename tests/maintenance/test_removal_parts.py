"""The parts of removal by themselves: pacing, files, ledger runs, words."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import open_read, open_write
from maintenance import ledger
from maintenance.dialects.detect import dialect_of
from maintenance.marks import set_mark
from maintenance.removal.describe import words
from maintenance.removal.files import SessionFiles
from maintenance.removal.pacing import ONLINE_LEAST_ROWS, ONLINE_ROWS, Pace
from maintenance.removal.recheck import FreshMarks, Snapshot, Watch, what_changed
from maintenance.removal.record import Record, interrupted_runs
from maintenance.removal.repeat import duration_option, exact_duration, options_of
from maintenance.selection import AgeLimit, Filters, filter_options
from maintenance.selection.ages import parse_duration
from maintenance.selection.options import filters_from
from tests.maintenance.removal_stores import DAY, NOW, add_session, empty_store
from tests.support.stores import StoreCopy

# --- pacing ---------------------------------------------------------------------------------------------------


def test_slow_transaction_makes_the_next_one_smaller_and_rests_twice_as_long(fake_clock: FakeClock) -> None:
    pace = Pace.online()
    before = fake_clock.monotonic()
    pace.rest(fake_clock, waited_seconds=0.0, held_seconds=0.02)
    assert pace.rows == 25
    assert fake_clock.monotonic() - before == pytest.approx(0.04)


def test_fast_transactions_grow_the_next_one_up_to_the_bound(fake_clock: FakeClock) -> None:
    pace = Pace.online()
    for _ in range(5):
        pace.rest(fake_clock, waited_seconds=0.0, held_seconds=0.0001)
    assert pace.rows == ONLINE_ROWS


def test_waiting_for_the_lock_makes_the_rest_longer_but_never_more_than_a_second(fake_clock: FakeClock) -> None:
    pace = Pace.online()
    before = fake_clock.monotonic()
    pace.rest(fake_clock, waited_seconds=0.3, held_seconds=0.01)
    assert fake_clock.monotonic() - before == pytest.approx(0.32)
    before = fake_clock.monotonic()
    pace.rest(fake_clock, waited_seconds=5.0, held_seconds=5.0)
    assert fake_clock.monotonic() - before == pytest.approx(1.0)
    assert pace.rows == ONLINE_LEAST_ROWS


def test_alone_there_is_nobody_to_rest_for(fake_clock: FakeClock) -> None:
    pace = Pace.alone()
    before = (pace.rows, fake_clock.monotonic())
    pace.rest(fake_clock, waited_seconds=1.0, held_seconds=3.0)
    assert (pace.rows, fake_clock.monotonic()) == before


# --- files ----------------------------------------------------------------------------------------------------


def test_files_of_a_session_are_those_whose_whole_name_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    own = {"a.json", "a.jsonl", "session_a.json", "request_dump_a_1.json"}
    for name in (*own, "a.txt", "ab.json", "session_ab.json", "request_dump_a_b_1.json", "request_dump_ab_1.json"):
        (folder / name).touch()
    asked = []
    files = SessionFiles(tmp_path / "state.db", lambda prefix: asked.append(prefix) or ["a_b"])
    assert {path.name for path in files.of("a")} == own
    assert asked == ["a_"]
    assert SessionFiles(tmp_path / "nowhere" / "state.db", lambda prefix: []).of("a") == []


@pytest.mark.parametrize("key", ["", "../a", "a/b", "a\0b"])
def test_id_that_cannot_be_part_of_a_name_has_no_files(tmp_path: Path, key: str) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "a.json").touch()
    assert SessionFiles(tmp_path / "state.db", lambda prefix: []).of(key) == []


def test_ids_with_a_prefix_are_all_of_them_and_the_prefix_is_literal(store_copy: StoreCopy) -> None:
    db = empty_store(store_copy())
    for name in ("a", "a_", "a_b", "a_b_c", "ab", "a%b", "b_a"):
        add_session(db, name, messages=0)
    with open_read(db) as store:
        assert set(dialect_of(store).ids_with_prefix(store, "a_")) == {"a_", "a_b", "a_b_c"}


# --- ledger runs ----------------------------------------------------------------------------------------------


def test_run_without_its_last_line_is_interrupted_and_names_its_sessions(tmp_path: Path, fake_clock: FakeClock) -> None:
    db = tmp_path / "state.db"
    killed = Record(db=db, verb="sessions prune", reason="old", filters={}, clock=fake_clock)
    killed.before(["a", "b"], 4)
    killed.kept(["b"], "b: it was used meanwhile")
    done = Record(db=db, verb="sessions delete", reason="named", filters={}, clock=fake_clock)
    done.before(["c"], 1)
    done.close("finished")
    (found,) = interrupted_runs(db)
    assert (found.run, found.verb, found.sessions) == (killed.run, "sessions prune", ("a", "b"))
    killed.close("settled")
    assert interrupted_runs(db) == ()


def test_run_of_a_process_that_still_lives_is_not_interrupted(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "state.db"
    monkeypatch.setattr(ledger.os, "getpid", os.getppid)
    Record(db=db, verb="sessions prune", reason="old", filters={}, clock=fake_clock).before(["a"], 1)
    monkeypatch.undo()
    assert interrupted_runs(db) == ()


# --- what changes meanwhile -----------------------------------------------------------------------------------


def test_mark_set_during_a_run_is_seen(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    marks = FreshMarks(db)
    assert (marks.now().pinned, marks.now().archived) == (frozenset(), frozenset())
    set_mark(db, ["a"], "pinned", True)
    assert marks.now().pinned == {"a"}
    set_mark(db, ["b"], "archived", True)
    assert (marks.now().pinned, marks.now().archived) == ({"a"}, {"b"})


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_session_archived_after_the_plan_stays_whether_the_file_has_a_column_for_it_or_not(
    store_copy: StoreCopy, version: str
) -> None:
    db = empty_store(store_copy(version))
    add_session(db, "one")
    with open_write(db, foreign=True) as store:
        dialect = dialect_of(store)
        snapshot = Snapshot(
            facts={key: row.facts for key, row in dialect.sessions(store, ["one"]).items()},
            newest_message=dialect.newest_message(store), children={}, pinned_too=False,
        )
        watch = Watch(db, dialect, snapshot)
        assert what_changed(store, dialect, snapshot, ["one"], watch=watch, now=0.0) == {}
        if dialect.has_archived:
            with store.transaction() as tx:
                dialect.set_archived(tx, ["one"], True)
        else:
            set_mark(db, ["one"], "archived", True)
        changed = what_changed(store, dialect, snapshot, ["one"], watch=watch, now=0.0)
        assert changed == {"one": "it was archived meanwhile"}


def test_watch_sees_a_new_message_whatever_time_it_carries(store_copy: StoreCopy) -> None:
    db = empty_store(store_copy())
    add_session(db, "one")
    with open_write(db, foreign=True) as store:
        dialect = dialect_of(store)
        snapshot = Snapshot(
            facts={}, newest_message=dialect.newest_message(store), children={}, pinned_too=False
        )
        watch = Watch(db, dialect, snapshot)
        assert watch.written(store) == set()
        with store.transaction() as tx:
            tx.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('one', 'user', 'x', -1)")
        assert watch.written(store) == {"one"}
        assert watch.written(store) == {"one"}


# --- words ----------------------------------------------------------------------------------------------------


def test_filters_are_said_as_a_person_would_and_their_age_can_be_repeated() -> None:
    filters = Filters(
        older_than=AgeLimit(default=90 * DAY, by_source={"cron": 7 * DAY}), sources=("cron", "cli"), min_messages=3,
        before=NOW, include_pinned=True,
    )
    assert words(filters) == (
        "ended; last activity longer ago than 90 d, cron 7 d; last activity before 2027-01-15T08:00:00.000Z; "
        "sources cron, cli; min messages 3; not archived; pinned ones too"
    )
    assert options_of(filters) == (
        " --older-than 90d,cron=7d --before 2027-01-15T08:00:00+00:00 --source cron --source cli --min-messages 3 "
        "--include-pinned"
    )
    assert options_of(Filters()) == ""


@pytest.mark.parametrize(
    ("seconds", "words_of_it", "option"),
    [
        (0.0, "0 s", "0s"), (1.5, "1.5 s", "1.5s"), (90.0, "1 min 30 s", "90s"), (5400.0, "1 h 30 min", "90m"),
        (90 * DAY, "90 d", "90d"), (1.5 * DAY, "1 d 12 h", "36h"), (23328012.25, "270 d 12.25 s", "23328012.25s"),
    ],
)
def test_a_length_of_time_is_said_exactly_and_can_be_typed_again(seconds: float, words_of_it: str, option: str) -> None:
    assert exact_duration(seconds) == words_of_it
    assert duration_option(seconds) == option
    assert parse_duration(option, "--older-than") == seconds


def test_every_filter_that_an_option_sets_is_repeated_and_one_without_an_option_stops_all() -> None:
    given = {
        "older_than": "90m,cron=1.5d", "newer_than": "400d", "before": "2026-11-01T10:00:00.25Z",
        "after": "2024-01-01T00:00Z",
        "sources": ["cron", "a b"], "title": "it's", "max_tool_calls": 0, "min_cost": 0.25, "never_active": True,
        "include_archived": True, "cwd": "/home/max/my project", "chat_id": "-100",
    }
    names = ("older_than", "newer_than", "before", "after", "sources", "state", "title", "model", "branch", "workspace",
             "end_reason", "provider", "cwd", "user", "chat_id", "chat_type", "min_cost", "max_cost", "never_active",
             "include_archived", "include_pinned", "include_delegates",
             *(f"{end}_{name}" for name in ("messages", "tokens", "tool_calls") for end in ("min", "max")))
    flags = ("never_active", "include_archived", "include_pinned", "include_delegates")
    empty = {name: False if name in flags else [] if name == "sources" else None for name in names}
    filters = filters_from(empty | given, NOW)
    said = options_of(filters)
    assert said is not None

    @click.command()
    @filter_options
    def again(*, filters: Filters) -> Filters:
        return filters

    repeated = again.main(shlex.split(said), standalone_mode=False)
    assert repeated == filters
    assert options_of(Filters(include_hidden=True)) is None
    assert options_of(Filters(title="two\nlines")) is None
