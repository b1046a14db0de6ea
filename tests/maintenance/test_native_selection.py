"""Filters over native rows: SQL and Python choose the same, whatever the rows hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.engine import Store, open_write
from maintenance.dialects.detect import dialect_of
from maintenance.selection.conditions import condition_of
from maintenance.selection.filters import Filters
from maintenance.selection.predicate import matches
from tests.maintenance.native_stores import DAY, NOW, insert_messages, new_store
from tests.maintenance.test_selection_filters import any_filters

text = st.sampled_from([None, "", "a", "A", "ab%", "é", "/srv/a", "/srv/ab", "/srv/a/b", "cron", "x\0a"])
moment = st.sampled_from([NOW, NOW - DAY, NOW - 3 * DAY, NOW - 10 * DAY])
row = st.fixed_dictionaries(
    {"source": st.sampled_from(["cli", "cron", "tool"]), "started_at": moment, "active_at": moment},
    optional={
        **dict.fromkeys(("model", "git_branch", "git_repo_root", "cwd", "user_id", "chat_id", "chat_type"), text),
        **dict.fromkeys(("session_key", "end_reason"), text),
        "ended_at": st.one_of(st.none(), moment),
        "messages": st.integers(0, 3),
        "calls": st.integers(0, 3),
        "totals": st.tuples(
            st.integers(0, 3), st.integers(0, 60), text, st.one_of(st.none(), st.sampled_from([0.0, 1.0])),
            st.one_of(st.none(), st.sampled_from([0.5, 2.0])),
        ),
    },
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = new_store(tmp_path_factory.mktemp("native"))
    with open_write(path) as opened:
        yield opened


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(row, max_size=6), st.lists(any_filters(), min_size=1, max_size=6))
def test_sql_and_python_select_the_same_native_rows(
    store: Store, rows: list[dict[str, Any]], choices: list[Filters]
) -> None:
    with store.transaction() as tx:
        for table in ("messages", "session_totals", "sessions"):
            tx.execute(f"DELETE FROM {table}")
        for key, given_row in enumerate(rows):
            columns = dict(given_row)
            messages, calls = columns.pop("messages", 0), columns.pop("calls", 0)
            totals = columns.pop("totals", None)
            columns |= {"id": str(key), "title": f"t{key}", "state": "ended" if columns.get("ended_at") else "open"}
            names = ", ".join(columns)
            tx.execute(
                f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * len(columns))})", list(columns.values())
            )
            no = tx.last_insert_rowid()
            insert_messages(tx, no, ["words"] * messages, columns["active_at"], calls=calls)
            if totals is not None:
                tx.execute(
                    "INSERT INTO session_totals (session_no, input_tokens, output_tokens, provider, actual_cost_usd,"
                    " estimated_cost_usd) VALUES (?, ?, ?, ?, ?, ?)",
                    (no, *totals),
                )
    dialect = dialect_of(store)
    whole = dialect.sessions(store, [str(key) for key in range(len(rows))])
    assert len(whole) == len(rows)
    for filters in choices:
        in_sql = {facts.id for facts in dialect.facts(store, condition_of(filters, dialect.fields, NOW))}
        assert in_sql == {key for key, one in whole.items() if matches(filters, one, NOW)}
