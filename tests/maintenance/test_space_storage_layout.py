"""The smaller search layout, pinned: names, view text, columns, trigger events, gates of storage version 3."""

from __future__ import annotations

import re

import pytest

from hermes_state.engine import Store, open_exclusive
from maintenance.space.storage import convert
from maintenance.space.storage.layout import ALL_TRIGGERS, create_statements
from tests.support.stores import StoreCopy

GATE_NEW = (
    "(new.id > coalesce((select cast(value as integer) from state_meta where key = 'fts_rebuild_high_water'), -1) "
    "or new.id <= coalesce((select cast(value as integer) from state_meta where key = 'fts_rebuild_progress'), -1))"
)
SESSION_NEW = (
    "exists (select 1 from sessions where id = new.session_id and source not in ('cron', 'subagent') and "
    "json_extract(case when json_valid(model_config) then model_config else '{}' end, '$._delegate_from') is null)"
)


def flat(sql: str) -> str:
    """One line, lower case, single blanks: how a text is compared."""
    return re.sub(r"\s+", " ", sql).strip().lower().replace("( ", "(").replace(" )", ")")


def objects(store: Store) -> dict[str, str]:
    return {
        str(name): flat(str(sql))
        for name, sql in store.rows(
            "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name LIKE 'messages_fts%' "
            "AND type IN ('view', 'trigger') OR name IN ('messages_fts', 'messages_fts_trigram')"
        )
    }


def converted(store: Store, *, trigram: bool = True) -> None:
    convert.stage(store, trigram=trigram)
    while convert.teardown_step(store) is not None:
        pass
    while convert.backfill_step(store, trigram=trigram) is not None:
        pass
    convert.finish(store)


def test_names_views_and_tables_are_those_of_storage_version_3(store_copy: StoreCopy) -> None:
    with open_exclusive(store_copy(), foreign=True) as store:
        converted(store)
        found = objects(store)
        meta = dict(store.rows("SELECT key, value FROM state_meta WHERE key LIKE 'fts%'"))
    assert set(found) == {
        "messages_fts", "messages_fts_src", "messages_fts_trigram", "messages_fts_trigram_src", *ALL_TRIGGERS,
    }
    assert meta == {"fts_storage_version": "3"}
    assert found["messages_fts_src"] == (
        "create view messages_fts_src as select id, "
        "case when role = 'tool' then substr(coalesce(content, ''), 1, 8192) else content end as content, "
        "tool_name, tool_calls from messages"
    )
    assert found["messages_fts"] == (
        "create virtual table messages_fts using fts5(content, tool_name, tool_calls, content='messages_fts_src', "
        "content_rowid='id')"
    )
    assert found["messages_fts_trigram_src"] == (
        "create view messages_fts_trigram_src as select m.id, m.role, m.content, m.tool_name "
        "from messages as m join sessions as s on s.id = m.session_id "
        "where m.role <> 'tool' and s.source not in ('cron', 'subagent') and "
        "json_extract(case when json_valid(s.model_config) then s.model_config else '{}' end, '$._delegate_from') "
        "is null"
    )
    assert found["messages_fts_trigram"] == (
        "create virtual table messages_fts_trigram using fts5(content, tool_name, content='messages_fts_trigram_src', "
        "content_rowid='id', tokenize='trigram')"
    )


def test_triggers_fire_only_for_what_is_indexed_and_only_within_the_marks(store_copy: StoreCopy) -> None:
    with open_exclusive(store_copy(), foreign=True) as store:
        converted(store)
        found = objects(store)
    assert found["messages_fts_insert"] == (
        f"create trigger messages_fts_insert after insert on messages when {GATE_NEW} begin "
        "insert into messages_fts(rowid, content, tool_name, tool_calls) values (new.id, case when new.role = 'tool' "
        "then substr(coalesce(new.content, ''), 1, 8192) else new.content end, new.tool_name, new.tool_calls); end"
    )
    assert found["messages_fts_trigram_insert"] == (
        "create trigger messages_fts_trigram_insert after insert on messages "
        f"when new.role <> 'tool' and {SESSION_NEW} and {GATE_NEW} begin "
        "insert into messages_fts_trigram(rowid, content, tool_name) "
        "values (new.id, new.content, new.tool_name); end"
    )
    assert " after update of content, tool_name, tool_calls, role on messages " in found["messages_fts_update"]
    assert " after update of content, tool_name, role on messages " in found["messages_fts_trigram_update"]
    for event in ("delete", "update"):
        for index in ("messages_fts", "messages_fts_trigram"):
            assert GATE_NEW.replace("new.", "old.") in found[f"{index}_{event}"]
            assert "'delete', old.id, " in found[f"{index}_{event}"]


def test_the_trigram_index_that_is_off_keeps_its_names_and_shows_nothing(store_copy: StoreCopy) -> None:
    with open_exclusive(store_copy(), foreign=True) as store:
        converted(store, trigram=False)
        found = objects(store)
        assert store.rows("SELECT count(*) FROM messages_fts_trigram_src") == [(0,)]
    for event in ("insert", "delete", "update"):
        assert found[f"messages_fts_trigram_{event}"] == (
            f"create trigger messages_fts_trigram_{event} after {event} on messages when 0 begin select 1; end"
        )
    assert "content='messages_fts_trigram_src'" in found["messages_fts_trigram"]


@pytest.mark.parametrize("trigram", [True, False])
def test_every_trigger_name_is_in_the_layout_once(trigram: bool) -> None:
    text = "\n".join(create_statements(trigram=trigram))
    assert [text.count(f"CREATE TRIGGER {name} ") for name in ALL_TRIGGERS] == [1] * 6
