"""Selection: the same filters choose the same conversations in every verb, and what must stay is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maintenance.dialects.detect import dialect_of
from maintenance.marks import Marks
from maintenance.selection import AgeLimit, Filters, Selection, prune_filters, removal_units, select
from tests.support.foreign import Foreign

NOW = 100_000_000.0
DAY = 86_400.0
NO_MARKS = Marks(path=Path("none"))
OLD = NOW - 200 * DAY


def chosen(store: Foreign, filters: Filters, marks: Marks = NO_MARKS) -> Selection:
    return select(store, dialect_of(store), marks, filters, NOW)


def ids(selection: Selection) -> list[str]:
    return [entry.id for entry in selection.conversations]


def pruned(
    store: Foreign, filters: Filters, marks: Marks = NO_MARKS, *, deletes: bool = True
) -> tuple[Any, dict[str, str]]:
    selection = chosen(store, prune_filters(filters) if deletes else filters, marks)
    units = removal_units(store, dialect_of(store), marks, selection, NOW, deletes=deletes)
    return units.ids, {item.session_id: item.reason for item in units.kept}


def ended(store: Foreign, key: str, at: float = OLD, **columns: Any) -> str:
    return store.session(key, started_at=at - 60, **{"ended_at": at, "end_reason": "cli_close", **columns})


def test_entries_come_newest_activity_first_and_unknown_times_last() -> None:
    store = Foreign(session_extra="last_activity_at REAL")
    store.session("no time", started_at="garbage")
    store.session("by start", started_at=50.0)
    store.session("by end", started_at=1.0, ended_at=60.0)
    store.session("by stamp", started_at=1.0, last_activity_at=70.0)
    store.session("by message", started_at=1.0)
    store.message("by message", timestamp=80.0)
    assert ids(chosen(store, Filters())) == ["by message", "by stamp", "by end", "by start", "no time"]


def test_a_message_later_than_the_end_does_not_make_a_session_young() -> None:
    store = Foreign()
    ended(store, "a")
    store.message("a", timestamp=NOW)
    assert pruned(store, Filters())[0] == ("a",)


def test_a_compressed_conversation_is_one_entry_with_the_tips_id_and_the_roots_start() -> None:
    store = Foreign()
    store.session("a", started_at=10.0, ended_at=20.0, end_reason="compression", message_count=3, title="old name")
    store.session("b", parent_session_id="a", started_at=20.0, message_count=4)
    [entry] = chosen(store, Filters()).conversations
    assert (entry.id, entry.segments, entry.facts.started_at, entry.facts.message_count) == ("b", ("a", "b"), 10.0, 7)
    # Sums decide, and the tip's names; the whole conversation is chosen or none of it.
    assert ids(chosen(store, Filters(min_messages=7))) == ["b"]
    assert ids(chosen(store, Filters(max_messages=4))) == []
    assert ids(chosen(store, Filters(end_reason="compression"))) == []
    # A tip without a title has the title of its newest segment with one, as the list shows it.
    assert ids(chosen(store, Filters(title="OLD"))) == ["b"]


def test_archived_delegates_and_tools_are_left_out_and_counted_by_session() -> None:
    store = Foreign(session_extra="hidden INTEGER NOT NULL DEFAULT 0")
    store.session("plain")
    store.session("archived", archived=1)
    store.session("d", parent_session_id="plain", model_config=json.dumps({"_delegate_from": "plain"}))
    store.session("t", source="tool")
    store.session("bot", hidden=1)
    selection = chosen(store, Filters(hidden_sources=("tool",)))
    assert ids(selection) == ["plain"]
    left = selection.left_out
    assert (left.archived, left.delegates, left.by_source, left.hidden) == (1, 1, 1, 1)
    assert len(selection.ids) + left.total == 5
    assert set(ids(chosen(store, Filters(include_archived=True, include_delegates=True)))) == {
        "plain",
        "archived",
        "d",
        "t",
    }
    assert ids(chosen(store, Filters(sources=("tool",), hidden_sources=("tool",)))) == ["t"]


def test_old_files_have_delegates_without_a_marker() -> None:
    store = Foreign()
    store.session("owner")
    store.session("helper", source="subagent", parent_session_id="owner")
    assert set(ids(chosen(store, Filters()))) == {"owner", "helper"}
    store.run("UPDATE schema_version SET version = 14")
    selection = chosen(store, Filters())
    assert (ids(selection), selection.left_out.delegates) == (["owner"], 1)
    [helper] = [entry for entry in chosen(store, Filters(sources=("subagent",))).conversations]
    assert (helper.id, helper.facts.delegate) == ("helper", True)


def test_a_delegate_whose_owner_is_gone_is_an_entry_of_its_own() -> None:
    store = Foreign()
    ended(store, "lost", model_config='{"_delegate_from": "__orphaned__"}')
    assert pruned(store, Filters())[0] == ("lost",)


def test_malformed_model_config_is_no_marker_and_stops_nothing() -> None:
    store = Foreign()
    for number, config in enumerate(
        ['{"_delegate_from":', "[]", '"x"', b'{"_delegate_from": 1}', '{"_delegate_from": null}']
    ):
        store.session(str(number), model_config=config)
    assert len(chosen(store, Filters()).conversations) == 5


def test_marks_stand_for_columns_that_the_file_lacks() -> None:
    store = Foreign()
    ended(store, "kept")
    ended(store, "hidden")
    marks = Marks(path=Path("none"), pinned=frozenset({"kept"}), archived=frozenset({"hidden"}))
    assert ids(chosen(store, Filters(), marks)) == ["kept"]
    assert pruned(store, Filters(), marks) == ((), {"kept": "it is pinned"})
    assert pruned(store, Filters(include_pinned=True, include_archived=True), marks)[0] == ("hidden", "kept")


def test_a_bare_prune_takes_ended_sessions_older_than_90_days_that_nobody_pinned_or_archived() -> None:
    store = Foreign(session_extra="pinned INTEGER NOT NULL DEFAULT 0")
    ended(store, "old")
    ended(store, "young", NOW - 89 * DAY)
    ended(store, "archived", archived=1)
    ended(store, "pinned", pinned=1)
    store.session("open", started_at=OLD)
    assert pruned(store, Filters()) == (("old",), {"pinned": "it is pinned", "open": "it has not ended"})


def test_any_real_filter_removes_the_90_days_and_a_zero_one_does_not() -> None:
    store = Foreign()
    ended(store, "young", NOW - DAY)
    assert pruned(store, Filters())[0] == ()
    assert pruned(store, Filters(min_messages=0))[0] == ()
    assert pruned(store, Filters(sources=("cli",)))[0] == ("young",)
    assert pruned(store, Filters(older_than=AgeLimit(default=0.0)))[0] == ("young",)
    assert prune_filters(Filters(include_archived=True)).older_than == AgeLimit(default=90 * DAY)


def test_each_source_can_have_its_own_retention() -> None:
    store = Foreign()
    for source in ("cron", "cli", "telegram"):
        ended(store, f"{source}-10d", NOW - 10 * DAY, source=source)
        ended(store, f"{source}-100d", NOW - 100 * DAY, source=source)
    filters = Filters(older_than=AgeLimit(by_source={"cron": 7 * DAY, "cli": 90 * DAY}))
    assert set(pruned(store, filters)[0]) == {"cron-10d", "cron-100d", "cli-100d"}


def test_never_active_sessions_go_after_30_days_though_nothing_ended_them() -> None:
    store = Foreign()
    store.session("ghost", started_at=NOW - 31 * DAY, session_key="k")
    store.session("new ghost", started_at=NOW - 29 * DAY, session_key="k")
    store.session("talked", started_at=NOW - 31 * DAY, session_key="k")
    store.message("talked", timestamp=NOW - 31 * DAY)
    store.session("no key", started_at=NOW - 31 * DAY)
    assert pruned(store, Filters(never_active=True)) == (("ghost",), {})


def test_an_idle_session_that_never_ended_can_be_archived_and_not_pruned() -> None:
    store = Foreign()
    store.session("idle", started_at=NOW - 20 * DAY)
    store.session("busy", started_at=NOW - 20 * DAY)
    store.message("busy", timestamp=NOW - DAY)
    filters = Filters(state="open", older_than=AgeLimit(default=14 * DAY))
    assert pruned(store, filters, deletes=False) == (("idle",), {})
    assert pruned(store, filters) == ((), {"idle": "it has not ended"})


def test_a_recent_part_keeps_the_whole_conversation_and_its_delegates() -> None:
    store = Foreign()
    ended(store, "a", end_reason="compression")
    ended(store, "b", NOW - DAY, parent_session_id="a")
    ended(store, "d", parent_session_id="a", model_config='{"_delegate_from": "a"}')
    assert pruned(store, Filters()) == ((), {})
    assert pruned(store, Filters(sources=("cli",)))[0] == ("a", "b", "d")


def test_a_pinned_or_running_delegate_keeps_its_owner() -> None:
    for columns, reason in (
        ({"pinned": 1}, "it is pinned"),
        ({"ended_at": None, "started_at": NOW - 60}, "a delegate of it was active within the last day"),
    ):
        store = Foreign(session_extra="pinned INTEGER NOT NULL DEFAULT 0")
        ended(store, "a")
        store.session("d", parent_session_id="a", model_config='{"_delegate_from": "a"}', **columns)
        assert pruned(store, Filters()) == ((), {"d": reason})


def test_sessions_that_a_lease_a_lock_or_the_ledger_guards_are_kept_with_the_reason() -> None:
    store = Foreign(
        sql="""
        CREATE TABLE session_turn_leases(conversation_id TEXT, holder TEXT, acquired_at REAL, expires_at REAL);
        CREATE TABLE compression_locks(session_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL);
        CREATE TABLE session_admissions(seq INTEGER PRIMARY KEY,
            target_session_id TEXT REFERENCES sessions(id) ON DELETE RESTRICT, status TEXT);"""
    )
    ended(store, "root", end_reason="compression")
    for key in ("tip", "expired", "unreadable", "locked", "admitted"):
        ended(store, key, parent_session_id="root" if key == "tip" else None)
    store.run(
        "INSERT INTO session_turn_leases VALUES"
        " ('root', 'gw', 0, ?), ('expired', 'gw', 0, ?), ('unreadable', X'00', 0, 'x')",
        (NOW + 60, NOW - 1),
    )
    store.run("INSERT INTO compression_locks VALUES ('locked', 'pid=7', 0, ?)", (NOW + 60,))
    store.run("INSERT INTO session_admissions VALUES (1, 'admitted', 'terminal')")
    assert pruned(store, Filters()) == (
        ("expired",),
        {
            "root": "a turn is running (lease of gw)",
            "unreadable": "a turn is running (lease of <blob 1 bytes>)",
            "locked": "it is being compressed (lock of pid=7)",
            "admitted": "the runtime ledger has rows for it (session_admissions)",
        },
    )


@pytest.mark.parametrize("version", ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"])
def test_real_files_of_every_release_are_selected_and_add_up(version: str, store_copy: Any) -> None:
    from hermes_state.engine import open_read

    with open_read(store_copy(version)) as store, store.snapshot():
        dialect = dialect_of(store)
        selection = select(store, dialect, NO_MARKS, Filters(), 1_795_975_000.0)
        counts = dialect.counts(store)
        assert len(selection.ids) + selection.left_out.total == counts.sessions == 12
        assert len(selection.conversations) == 10
        by_filter = {
            entry.id
            for source, _, _ in counts.by_source
            for entry in select(store, dialect, NO_MARKS, Filters(sources=(source,)), 0.0).conversations
        }
        assert by_filter == {entry.id for entry in selection.conversations}
