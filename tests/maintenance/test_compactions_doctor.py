"""The doctor on compactions, and what recovery and scrub make of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.compaction.windows import Windows
from hermes_state.engine import open_read, open_write
from hermes_state.store import Store, open_store
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_compactions import compaction_findings
from maintenance.scrub import compactions as marks
from maintenance.scrub.patterns import Redactor, rules_for
from maintenance.scrub.work import look, replace
from tests.support.cli import RunCli
from tests.support.compacting import view_of
from tests.support.generations import SHORT, compacted, failed, started


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        opened.sessions.create(id="talk", source="cli")
        for number in range(1, 13):
            opened.messages.append(
                "talk", role="user" if number % 2 else "assistant", content=f"{number} of talk, password hunter2"
            )
        yield opened


def findings(store: Store, *, deep: bool = True) -> dict[str, Finding]:
    with open_read(store.core.path) as reader:
        return {one.code: one for one in compaction_findings(reader, store.core.clock, deep=deep)}


def force(store: Store, *statements: str) -> None:
    """Change what the library never does, as another program can."""
    with store.core.writer.transaction() as tx:
        for statement in statements:
            tx.execute(statement)


def test_sound_compactions_are_counted(store: Store) -> None:
    assert findings(store)["compactions"].sentence == "Nothing was compacted."
    compacted(store, "talk", cut_at=5, anchors=(1,), clips={8: SHORT})
    failed(store, "talk", cut_at=7)
    told = findings(store)
    assert set(told) == {"compactions", "compactions_running"}
    assert told["compactions"].sentence == "2 compactions, 1 done; 1 session is seen through one."
    assert told["compactions_running"].sentence == "No session is being compacted."


def test_a_pass_that_is_at_work_is_counted_and_one_that_is_late_is_left_to_the_next(store: Store) -> None:
    started(store, "talk", cut_at=5)
    assert findings(store)["compactions_running"].sentence == "1 session is being compacted."
    force(store, "UPDATE compactions SET expires_boottime = 0")
    late = findings(store)["compactions_left"]
    assert (late.severity, late.next_command) == (Severity.INFO, "")
    assert late.sentence == (
        "1 compaction of processes that are gone or late, in talk: the view is what it was before, and the next "
        "compaction of the session settles it; nothing has to be done."
    )


def test_a_head_that_is_not_done_or_of_another_session_is_a_problem(store: Store) -> None:
    one = compacted(store, "talk", cut_at=5)
    force(store, "UPDATE compactions SET state = 'superseded'")
    strange = findings(store)["compaction_head_strange"]
    assert strange.severity is Severity.WARNING
    assert strange.sentence == (
        "1 session is seen through a compaction that is not done, not there, or of another session: talk. An older one "
        "is used instead, or the whole history."
    )
    assert strange.next_command == f"hermes-state sessions compact --db {store.core.path} talk --plan"
    store.sessions.create(id="side", source="cli")
    force(
        store, f"UPDATE compaction_heads SET session_no = (SELECT no FROM sessions WHERE id = 'side'), compaction_id = "
        f"{one.id}",
    )
    assert findings(store)["compaction_head_strange"].facts == {"sessions": ["side"]}


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE compactions SET parent_id = id WHERE generation = 2", "compaction_parents"),
        ("UPDATE compactions SET watermark = 99 WHERE generation = 2", "compaction_outside"),
        ("UPDATE compactions SET anchors = '[5, null]' WHERE generation = 2", "compaction_unreadable"),
        ("UPDATE compactions SET anchors = '[9]' WHERE generation = 2", "compaction_unreadable"),
        ("UPDATE compactions SET error = 'no JSON' WHERE generation = 2", "compaction_unreadable"),
        ("UPDATE compaction_clips SET clip = '7'", "compaction_unreadable"),
        ("UPDATE compactions SET source_digest = 'x' WHERE generation = 2", "compaction_source_changed"),
        ("UPDATE compactions SET source_rows = 9 WHERE generation = 2", "compaction_source_changed"),
        ("UPDATE compactions SET state = 'superseded' WHERE generation = 1", "compaction_parents"),
    ],
)
def test_what_the_schema_cannot_enforce_is_a_problem(store: Store, statement: str, code: str) -> None:
    compacted(store, "talk", cut_at=5)
    compacted(store, "talk", cut_at=7, anchors=(5,), clips={8: SHORT})
    force(store, statement)
    told = findings(store)
    assert told[code].severity is Severity.WARNING
    assert told[code].facts == {"compactions": [["talk", 2]]}
    proven = store.compaction.verify("talk", 2)
    # verify proves the source; what it does not look at touches neither the source nor who it was made from.
    assert proven.ok is (code in ("compaction_outside",) or "error" in statement or "clip" in statement), proven


def test_a_damaged_row_that_nobody_is_seen_through_is_told_and_no_problem(store: Store) -> None:
    compacted(store, "talk", cut_at=5, clips={8: SHORT})
    compacted(store, "talk", cut_at=7)
    force(store, "UPDATE compaction_clips SET clip = '7' WHERE compaction_id = 1")
    told = findings(store)["compaction_unreadable"]
    assert (told.severity, told.next_command) == (Severity.INFO, "")


def test_evidence_of_a_window_that_cannot_be_read_is_named(store: Store) -> None:
    Windows(store.core).declare("qwen3:8b", "http://localhost:11434", 8192)
    force(store, "UPDATE model_windows SET evidence = 'zzz'")
    told = findings(store)["window_unreadable"]
    assert told.sentence == (
        "Where 1 window was seen cannot be read: declared of qwen3:8b. The number counts all the same."
    )
    assert told.next_command.endswith("--forget declared")
    assert Windows(store.core).resolve("qwen3:8b", "http://localhost:11434").tokens == 8192


def test_two_running_passes_are_a_problem(store: Store) -> None:
    started(store, "talk", cut_at=5)
    names = ", ".join(name for (name,) in store.core.writer.rows("SELECT name FROM pragma_table_info('compactions')"))
    again = names.replace("id, session_no, generation", "id + 1, session_no, generation + 1", 1)
    force(
        store, "DROP INDEX compactions_running", f"INSERT INTO compactions ({names}) SELECT {again} FROM compactions"
    )
    assert findings(store)["compactions_twice"].facts == {"sessions": ["talk"]}


def test_only_what_is_seen_is_compared_unless_deep(store: Store) -> None:
    compacted(store, "talk", cut_at=5)
    compacted(store, "talk", cut_at=7)
    force(store, "UPDATE compactions SET source_digest = 'x' WHERE generation = 1")
    assert "compaction_source_changed" in findings(store)
    force(store, "UPDATE compaction_heads SET compaction_id = NULL")
    assert "compaction_source_changed" not in findings(store, deep=False)


# --- scrub ---------------------------------------------------------------------------------------------------------


def test_a_scrub_takes_the_secret_out_of_summaries_and_keeps_generations_proven(store: Store) -> None:
    compacted(store, "talk", cut_at=5, summary="They said that the password is hunter2.")
    compacted(store, "talk", cut_at=7, summary="And again: hunter2.")
    failed(store, "talk", cut_at=9)
    force(store, "UPDATE compactions SET error = json_set(error, '$.message', 'hunter2') WHERE state = 'failed'")
    with open_write(store.core.path) as engine:
        assert look(engine, _redactor())["compactions"] == 3
        assert replace(engine, _redactor(), store.core.clock)["messages"] == 12
        assert look(engine, _redactor()) == Counter()
    told = findings(store)
    assert set(told) == {"compactions", "compactions_running"}
    assert "hunter2" not in json.dumps(view_of(store, "talk").messages)


def test_a_scrub_that_was_killed_between_messages_and_digests_is_finished_by_the_next(store: Store) -> None:
    compacted(store, "talk", cut_at=5)
    with open_write(store.core.path) as engine:
        marks.mark(engine)
        with engine.transaction() as tx:
            tx.execute("DROP TRIGGER messages_are_immutable")
            tx.execute("UPDATE messages SET row_check = 7 WHERE seq = 2")
        assert findings(store)["compaction_source_lost"].severity is Severity.INFO
        replace(engine, _redactor(), store.core.clock)
    assert not {code for code in findings(store) if code.startswith("compaction_source")}


def _redactor() -> Redactor:
    return Redactor(rules_for(("hunter2",), None))


# --- recovery ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_recovered_store_has_its_generations_and_none_that_runs(store: Store, run_cli: RunCli) -> None:
    compacted(store, "talk", cut_at=5, anchors=(1,), clips={8: SHORT})
    failed(store, "talk", cut_at=7)
    started(store, "talk", cut_at=7)
    before, db = view_of(store, "talk").messages, store.core.path
    store.close()
    target = db.with_name("out.db")
    done = run_cli("sessions", "recover", "--source", db, "--output", target)
    assert done.exit_code == 0, done.stderr
    with open_store(path=target) as found:
        assert view_of(found, "talk").messages == before
        with found.core.reader() as reader:
            assert reader.rows("SELECT generation, state FROM compactions ORDER BY generation") == [
                (1, "done"), (2, "failed"), (3, "failed")
            ]
        assert set(findings(found)) == {"compactions", "compactions_running"}
