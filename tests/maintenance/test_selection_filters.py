"""Filters: what people write, what it means in SQL and in Python, and that both are the same."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.errors import InvalidInput
from maintenance.dialects.detect import dialect_of
from maintenance.selection import AgeLimit, Filters, parse_age_limit, parse_moment
from maintenance.selection.ages import parse_duration
from maintenance.selection.conditions import condition_of
from maintenance.selection.options import filters_from
from maintenance.selection.predicate import matches
from tests.support.foreign import Foreign

NOW = 1_000_000.0
DAY = 86_400.0


def test_durations_have_units_and_a_bare_number_is_days() -> None:
    found = [parse_duration(text, "--x") for text in ("30s", "15m", "12h", "1.5d", "2w", "3", " 4 D ")]
    assert found == [30.0, 900.0, 43_200.0, 1.5 * DAY, 14 * DAY, 3 * DAY, 4 * DAY]


@pytest.mark.parametrize("text", ["", "soon", "-3d", "1y", "nan", "1e9d", "999999999w", "3 d d"])
def test_what_is_not_a_duration_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_duration(text, "--older-than")
    assert caught.value.message == f"--older-than: {text!r} is not a duration."
    assert (caught.value.exit_code, caught.value.option) == (2, "--older-than")  # type: ignore[attr-defined]


def test_ages_may_differ_by_source() -> None:
    limit = parse_age_limit("cron=7d,cli=90d", NOW)
    assert [limit.seconds(name) for name in ("cron", "cli", "telegram")] == [7 * DAY, 90 * DAY, None]
    mixed = parse_age_limit("30,cron=1h", NOW)
    assert [mixed.seconds(name) for name in ("cron", "telegram")] == [3600.0, 30 * DAY]
    assert parse_age_limit("1970-01-02T00:00Z", NOW).default == NOW - DAY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cron=7d,cron=8d", "--older-than: 'cron=7d,cron=8d' gives two ages for the same sessions."),
        ("7d,8d", "--older-than: '7d,8d' gives two ages for the same sessions."),
        ("=7d", "--older-than: '=7d' names no source before '='."),
        ("cron=x", "--older-than: 'x' is neither a duration nor a date."),
    ],
)
def test_ages_that_contradict_themselves_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_age_limit(text, NOW)
    assert caught.value.message == message


def test_times_are_local_unless_they_say_their_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_moment("2026-03-01", "--after", NOW) == 1_772_290_800.0
        assert parse_moment("2026-03-01T00:00Z", "--after", NOW) == 1_772_323_200.0
        assert parse_moment("2026-03-01T00:00+01:00", "--after", NOW) == 1_772_319_600.0
        assert parse_moment("2d", "--after", NOW) == NOW - 2 * DAY
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_time_that_cannot_be_read_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_moment("yesterday", "--before", NOW)
    assert caught.value.message == "--before: 'yesterday' is neither a duration nor a date."
    assert caught.value.hint == "Write 30d, 2026-03-01, 2026-03-01T18:00 (local time) or 2026-03-01T18:00Z."


@pytest.mark.parametrize("option", ["--before", "--after"])
def test_a_number_that_may_be_a_year_is_refused_with_both_spellings(option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_moment("2026", option, NOW)
    assert caught.value.message == f"{option}: 2026 may be a year or a number of days."
    assert caught.value.hint == "Write 2026-01-01 for the year's beginning, or 2026d for that many days ago."
    assert parse_moment("2026d", option, NOW) == NOW - 2026 * DAY
    assert parse_moment("1500", option, NOW) == NOW - 1500 * DAY


def test_bounds_that_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        Filters(min_messages=5, max_messages=3)
    assert caught.value.message == "--min-messages 5 is more than --max-messages 3, so no session can match."
    with pytest.raises(InvalidInput) as caught:
        Filters(max_cost=math.nan)
    assert caught.value.message == "--max-cost: nan is not a number from 0 to 9007199254740992."
    with pytest.raises(InvalidInput):
        Filters(min_tool_calls=-1)


def test_a_filter_that_is_zero_or_empty_is_no_filter() -> None:
    assert not Filters(min_messages=0, min_cost=0.0, title="", older_than=AgeLimit(default=0.0)).narrows
    assert not Filters(include_archived=True, include_pinned=True, include_delegates=True).narrows
    for filters in (
        Filters(max_messages=0),
        Filters(title="x"),
        Filters(state="open"),
        Filters(sources=("cron",)),
        Filters(older_than=AgeLimit(by_source={"cron": 1.0})),
        Filters(never_active=True),
    ):
        assert filters.narrows


def _raw(**given: Any) -> dict[str, Any]:
    """Option values as click hands them over."""
    raw: dict[str, Any] = dict.fromkeys(
        (
            "older_than",
            "newer_than",
            "before",
            "after",
            "state",
            "min_messages",
            "max_messages",
            "min_tokens",
            "max_tokens",
            "min_tool_calls",
            "max_tool_calls",
            "min_cost",
            "max_cost",
        )
    )
    raw |= dict.fromkeys(
        ("title", "model", "branch", "workspace", "end_reason", "provider", "cwd", "user", "chat_id", "chat_type")
    )
    raw |= dict.fromkeys(("never_active", "include_archived", "include_pinned", "include_delegates"), False)
    return raw | {"sources": ()} | given


def test_option_values_become_filters() -> None:
    raw = _raw(sources=("cron", "cli"), older_than="90", cwd="/srv/code/", before="1970-01-02T00:00Z")
    filters = filters_from(raw, NOW)
    assert filters == Filters(
        older_than=AgeLimit(default=90 * DAY), before=DAY, sources=("cron", "cli"), cwd="/srv/code"
    )
    assert filters.facts() == {
        "older_than": {"seconds": 90 * DAY, "seconds_by_source": {}},
        "before": DAY,
        "sources": ["cron", "cli"],
        "cwd": "/srv/code",
    }


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, f"--{name.replace('_', '-')}")
        for name in (
            "title", "model", "branch", "workspace", "end_reason", "provider", "cwd", "user", "chat_id", "chat_type"
        )
    ]
    + [("sources", "--source")],
)
def test_an_empty_text_filter_is_refused_because_it_would_widen_a_delete(name: str, option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        filters_from(_raw(**{name: ("cron", "") if name == "sources" else ""}), NOW)
    assert caught.value.message == f"{option} is empty, which filters nothing."
    assert caught.value.hint == "An unset shell variable does that. Give it a value, or leave the option away."


def _one_row(**columns: Any) -> Foreign:
    store = Foreign()
    store.session("s", **columns)
    return store


@pytest.mark.parametrize(("needle", "title"), [("100%", "at 100 done"), ("a_b", "axb"), ("%", "plain"), ("_", "plain")])
def test_wildcards_are_ordinary_characters(needle: str, title: str) -> None:
    for stored, expected in ((title, []), (f"-{needle.upper()}-", ["s"])):
        store = _one_row(title=stored)
        dialect = dialect_of(store)
        condition = condition_of(Filters(title=needle), dialect.fields, NOW)
        assert [facts.id for facts in dialect.facts(store, condition)] == expected


def test_a_directory_means_itself_and_what_is_below_it() -> None:
    store = Foreign()
    for number, cwd in enumerate(["/srv/code", "/srv/code/a", "/srv/codeshop", "/srv", None, "/srv/code_"]):
        store.session(str(number), cwd=cwd)
    dialect = dialect_of(store)
    condition = condition_of(Filters(cwd="/srv/code"), dialect.fields, NOW)
    assert {facts.id for facts in dialect.facts(store, condition)} == {"0", "1"}


text = st.one_of(
    st.none(), st.sampled_from(["", "a", "A%b", "a_b", "x\x00a", "É", "é", "/srv/a", "/srv/ab", b"a", 7, "cron", "cli"])
)
number = st.one_of(
    st.none(), st.sampled_from([0, 1, 2, 50, -1, 1.5, "7", "x", b"1", math.inf, -math.inf, 2**62, 1e308, NOW - DAY])
)
moment = st.one_of(number, st.floats(NOW - 10 * DAY, NOW + DAY))
stored_row = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["cli", "cron", "", b"cron"]),
        "started_at": moment.filter(lambda item: item is not None),
    },
    optional={
        **dict.fromkeys(
            (
                "title",
                "model",
                "git_branch",
                "git_repo_root",
                "cwd",
                "end_reason",
                "billing_provider",
                "user_id",
                "chat_id",
                "chat_type",
                "session_key",
            ),
            text,
        ),
        **dict.fromkeys(
            (
                "message_count",
                "tool_call_count",
                "input_tokens",
                "output_tokens",
                "estimated_cost_usd",
                "actual_cost_usd",
            ),
            number,
        ),
        **dict.fromkeys(("ended_at", "last_activity_at"), moment),
    },
)
needle = st.sampled_from(["", "", "", "a", "A", "%", "_", "é", "b", "cron"])
bound = st.one_of(st.none(), st.none(), st.sampled_from([0, 1, 2, 60]))


@st.composite
def any_filters(draw: st.DrawFn) -> Filters:
    values: dict[str, Any] = {
        name: draw(needle)
        for name in ("title", "model", "branch", "workspace", "end_reason", "provider", "user", "chat_id", "chat_type")
    }
    for name in ("messages", "tokens", "tool_calls", "cost"):
        low, high = draw(bound), draw(bound)
        if low is not None and high is not None and low > high:
            low, high = high, low
        values |= {f"min_{name}": low, f"max_{name}": high}
    values["older_than"] = draw(
        st.sampled_from(
            [
                None,
                None,
                AgeLimit(default=DAY),
                AgeLimit(by_source={"cron": DAY}),
                AgeLimit(default=5 * DAY, by_source={"": 0.0, "cli": DAY}),
            ]
        )
    )
    values["newer_than"] = draw(st.sampled_from([None, None, DAY, 6 * DAY]))
    values["before"] = draw(st.sampled_from([None, None, NOW - DAY]))
    values["after"] = draw(st.sampled_from([None, None, NOW - DAY]))
    values["sources"] = draw(st.sampled_from([(), (), ("cron",), ("cli", "")]))
    values["cwd"] = draw(st.sampled_from(["", "", "/srv/a", "/"]))
    values["state"] = draw(st.sampled_from(["any", "any", "ended", "open"]))
    values["never_active"] = draw(st.sampled_from([False, False, True]))
    return Filters(**values)


@given(st.lists(stored_row, max_size=6), st.lists(any_filters(), min_size=1, max_size=6), st.booleans())
def test_sql_and_python_select_the_same_rows_whatever_the_cells_hold(
    rows: list[dict[str, Any]], choices: list[Filters], indexed: bool
) -> None:
    store = Foreign(session_extra="last_activity_at REAL", indexes=indexed)
    if indexed:
        store.run("DROP INDEX idx_sessions_title_unique")
    for key, columns in enumerate(rows):
        store.session(str(key), **columns)
        if key % 2:
            store.message(str(key), timestamp=columns.get("last_activity_at") or NOW)
    dialect = dialect_of(store)
    whole = dialect.sessions(store, [str(key) for key in range(len(rows))])
    for filters in choices:
        condition = condition_of(filters, dialect.fields, NOW)
        in_sql = {facts.id for facts in dialect.facts(store, condition)}
        in_python = {key for key, row in whole.items() if matches(filters, row, NOW)}
        assert in_sql == in_python
    store.close()
