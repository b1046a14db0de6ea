"""The doctor on the outbox, and what a scrub makes of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import ReadStore, open_read
from hermes_state.errors import IdempotencyConflict, TooOld
from hermes_state.outbox.verdicts import Lost
from hermes_state.store import Store, open_store
from maintenance.dialects.native import owed
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_outbox import outbox_findings
from tests.maintenance.owing import LEAST, owe, send
from tests.maintenance.scrub.scrubbing import scrubbed
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.native_release import FOLDER


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db", clock=fake_clock) as opened:
        yield opened


def findings(store: Store, *, deep: bool = False) -> dict[str, Finding]:
    with open_read(store.core.path) as reader:
        return {one.code: one for one in outbox_findings(reader, store.core.clock, deep=deep)}


def force(store: Store, *statements: str) -> None:
    """Change what the library never does, as another program can."""
    with store.core.writer.transaction() as tx:
        for statement in statements:
            tx.execute(statement)


class _Told:
    """A store that is read, with what it is asked."""

    def __init__(self, reader: ReadStore) -> None:
        self._reader = reader
        self.sql: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._reader, name)
        if name not in ("rows", "row", "iterate"):
            return real

        def ask(sql: str, said: Any = ()) -> Any:
            self.sql.append((sql, said))
            return real(sql, said)

        return ask


def test_what_is_owed_is_counted(store: Store) -> None:
    assert findings(store)["outbox"].sentence == "Nothing is owed."
    for name in ("owed", "sent", "held"):
        owe(store, name)
    send(store, "sent")
    store.outbox.claim(["held"])
    told = findings(store)
    assert set(told) == {"outbox"} and told["outbox"].severity is Severity.OK
    assert told["outbox"].sentence == "1 obligation to be sent, 1 being sent, 1 settled."


def test_what_waits_for_long_names_its_transports_and_a_command(store: Store, fake_clock: FakeClock) -> None:
    owe(store, "one", transport="telegram")
    owe(store, "two", transport="gateway")
    fake_clock.advance(3601)
    late = findings(store)["outbox_overdue"]
    assert late.sentence == (
        "2 obligations are due for more than an hour, for gateway, telegram: no sender that is up for it takes them."
    )
    assert late.next_command == f"hermes-state outbox list --db {store.core.path} --state pending"
    assert late.severity is Severity.INFO


def test_claims_that_ran_out_are_left_to_the_next_claim(store: Store, fake_clock: FakeClock) -> None:
    owe(store, "stop")
    store.outbox.claim(["stop"], term_seconds=5)
    fake_clock.advance(6)
    assert findings(store)["outbox_claims_left"].facts == {"obligations": ["stop"]}


def test_claims_of_a_killed_process_are_seen_at_once(tmp_path: Path, child: Children) -> None:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        owe(store, "stop")
    sender = child(
        """
        import sys, gates
        from hermes_state import open_store
        with open_store(path=sys.argv[1]) as store:
            store.outbox.claim(["stop"])
            gates.reach("claimed")
            gates.wait("never")
        """,
        path,
    )
    sender.wait_for("claimed")
    with open_store(path=path) as store:
        assert "outbox_claims_left" not in findings(store)
        sender.kill()
        assert findings(store)["outbox_claims_left"].facts == {"obligations": ["stop"]}


def test_what_nobody_knows_the_end_of_is_for_a_person(store: Store) -> None:
    owe(store, "stop")
    send(store, "stop", Lost(why="gone"))
    told = findings(store)["outbox_unknown"]
    assert told.sentence == (
        "Of 1 obligation nobody knows whether it went out (stop): a person decides, by what the receiver shows."
    )
    assert told.next_command == f"hermes-state outbox list --db {store.core.path} --state unknown"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE outbox SET payload = '{\"text\":\"other\"}'", "outbox_altered"),
        ("UPDATE outbox SET lane = 'other'", "outbox_altered"),
        ("UPDATE outbox SET payload = '{'", "outbox_unreadable"),
        ("UPDATE outbox SET schedule = '7'", "outbox_unreadable"),
        ("UPDATE outbox SET verdict = 'no JSON'", "outbox_unreadable"),
        ("INSERT INTO outbox_horizon VALUES (1, 1.9e9)", "outbox_horizon_ahead"),
    ],
)
def test_what_would_stop_or_mislead_a_sender_is_a_problem(store: Store, change: str, code: str) -> None:
    owe(store, "owed")
    force(store, change)
    assert findings(store)[code].severity is Severity.WARNING


def test_a_place_in_a_lane_that_is_not_the_rows_is_a_problem_and_recovery_puts_it_right(
    tmp_path: Path, run_cli: RunCli
) -> None:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        for name in ("first", "second", "third"):
            owe(store, name, lane="l")
        owe(store, "urgent", lane="m")
        owe(store, "more urgent", lane="m", priority=1)
        owe(store, "alone")
        assert findings(store).keys() == {"outbox"}
        force(
            store, "UPDATE outbox SET follows = 1 WHERE dedupe_id IN ('first', 'alone')",
            "UPDATE outbox SET follows = 0 WHERE dedupe_id IN ('third', 'urgent')",
        )
        told = findings(store)["outbox_out_of_order"]
        assert told.severity is Severity.WARNING
        assert told.facts == {"early": ["third", "urgent"], "never": ["first", "alone"]}
        assert told.sentence == (
            "4 obligations have another place in the lane than the rows say (third, urgent, first, alone): 2 would be"
            " sent before what comes first, 2 never. Another program or damage changed them."
        )
    output = tmp_path / "out.db"
    ran = run_cli("sessions", "recover", "--source", path, "--output", output, "--yes")
    assert ran.exit_code == 0, ran.stderr
    with open_store(path=output) as store:
        assert findings(store).keys() == {"outbox"}


def test_what_is_settled_is_not_read_when_not_all_is_asked_for(store: Store) -> None:
    with open_read(store.core.path) as reader:
        told = _Told(reader)
        list(outbox_findings(told, store.core.clock, deep=False))  # type: ignore[arg-type]
        plans = {sql: [str(row[3]) for row in reader.rows(f"EXPLAIN QUERY PLAN {sql}", said)] for sql, said in told.sql}
    read_whole = [sql for sql, plan in plans.items() if "SCAN outbox" in plan]
    assert len(plans) > 8 and read_whole == []


def test_settled_rows_are_checked_with_deep_and_blanked_ones_have_nothing_to_check(store: Store) -> None:
    for name in ("one", "two"):
        owe(store, name)
        send(store, name)
    force(
        store, "DROP TRIGGER outbox_ends_once", "UPDATE outbox SET payload = NULL WHERE id = 1",
        "UPDATE outbox SET payload = '1' WHERE id = 2",
    )
    assert "outbox_altered" not in findings(store)
    assert findings(store, deep=True)["outbox_altered"].facts == {"obligations": ["two"]}


def test_what_a_wrong_clock_put_off_and_what_was_asked_to_be_due_much_later_is_told(
    store: Store, fake_clock: FakeClock
) -> None:
    month = 31 * 86_400.0
    fake_clock.step_wall(month)
    put_off_to = fake_clock.now()
    owe(store, "put off")
    fake_clock.step_wall(-month)
    store.outbox.append(
        dedupe_id="asked", kind="final", transport="telegram", payload=1, policy="at_least_once",
        due_at=fake_clock.now() + month,
    )
    told = findings(store)
    assert told["outbox_due_ahead"].sentence == (
        "1 obligation is due far ahead, by a clock that was wrong: further than the schedule can put off. The next"
        " claim makes them due; nothing has to be done."
    )
    assert told["outbox_due_ahead"].facts == {"obligations": 1, "due_at": put_off_to}
    assert told["outbox_asked_ahead"].sentence == (
        "1 obligation was recorded to be due more than 30 days from now, and they wait until then. If the clock was"
        " wrong when they were recorded, retry them."
    )
    assert {told[name].severity for name in ("outbox_due_ahead", "outbox_asked_ahead")} == {Severity.INFO}
    store.outbox.claim(["nothing"])
    assert "outbox_due_ahead" not in findings(store)


def test_a_store_without_an_outbox_says_so_and_a_store_of_this_release_is_fine(tmp_path: Path, run_cli: RunCli) -> None:
    for release, said in (("0.4.0", "Nothing is owed: the tables come"), ("0.5.0", "1 obligation to be sent, 1 being")):
        db = tmp_path / release / "state.db"
        db.parent.mkdir()
        db.write_bytes(gzip.decompress((FOLDER / f"{release}-filled.db.gz").read_bytes()))
        ran = run_cli("doctor", "--db", db, "--json")
        (told,) = [one for one in ran.json["findings"] if one["code"] == "outbox"]
        assert ran.exit_code == 0 and told["sentence"].startswith(said)


# --- scrub -----------------------------------------------------------------------------------------------------------


def test_a_scrub_replaces_the_texts_of_what_is_owed_and_of_what_is_settled(store: Store, fake_clock: FakeClock) -> None:
    for name, payload in (("owed", {"text": "it is hunter2"}), ("sent", "hunter2"), ("clean", "nothing")):
        store.outbox.append(
            dedupe_id=name, kind="final", transport=name, payload=payload, policy=LEAST, target="hunter2's chat",
        ) if name != "clean" else owe(store, name)
    send(store, "sent", Lost(why="hunter2 was refused"))
    assert scrubbed(store, fake_clock)["outbox"] == 2
    owed_now, sent_now = store.outbox.get("owed"), store.outbox.get("sent")
    assert owed_now.payload["text"].startswith("it is [redacted pattern ") and "hunter2" not in owed_now.target
    assert sent_now.payload.startswith("[redacted pattern ") and "hunter2" not in json.dumps(sent_now.verdict)
    assert findings(store, deep=True).keys() == {"outbox"}
    (claim,) = store.outbox.claim(["owed"])
    assert claim.primary.payload == owed_now.payload


def test_a_pattern_that_takes_the_end_of_a_text_leaves_json(store: Store, fake_clock: FakeClock) -> None:
    for name, payload in (("one", "password: hunter2"), ("two", ["password: hunter2"]), ("three", 5)):
        store.outbox.append(dedupe_id=name, kind="final", transport=name, payload=payload, policy=LEAST)
    scrubbed(store, fake_clock, r"password: (\S+)")
    assert str(store.outbox.get("one").payload).startswith("password: [redacted pattern ")
    assert store.outbox.get("two").payload == [store.outbox.get("one").payload]


def test_recording_again_what_was_scrubbed_sends_nothing(store: Store, fake_clock: FakeClock) -> None:
    made = fake_clock.now()
    for name in ("owed", "id of hunter2"):
        store.outbox.append(
            dedupe_id=name, kind="final", transport="t", payload={"text": "hunter2"}, policy=LEAST, made_at=made
        )
    fake_clock.advance(1)
    scrubbed(store, fake_clock)
    for name, error in (("owed", IdempotencyConflict), ("id of hunter2", TooOld)):
        with pytest.raises(error):
            store.outbox.append(
                dedupe_id=name, kind="final", transport="t", payload={"text": "hunter2"}, policy=LEAST, made_at=made
            )
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM outbox") == [(2,)]


def test_no_word_that_decides_about_sending_is_ever_replaced(store: Store, fake_clock: FakeClock) -> None:
    owe(store, "owed", LEAST)
    columns = "kind, transport, policy, state, schedule, payload_check, boot_id, time_namespace, owner"
    store.outbox.claim(["owed"])
    with store.core.reader() as reader:
        before = reader.rows(f"SELECT {columns} FROM outbox")
    assert scrubbed(store, fake_clock, "final|at_least_once|claimed|delays|[0-9a-f]{8}").get("outbox") is None
    with store.core.reader() as reader:
        assert reader.rows(f"SELECT {columns} FROM outbox") == before


def test_no_byte_of_the_store_holds_a_secret_that_was_owed(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        for name in ("owed", "sent", "blank"):
            store.outbox.append(
                dedupe_id=f"{name} hunter2", kind="final", transport=name, payload={"text": f"hunter2 {name}"},
                policy=LEAST, target="hunter2",
            )
        for name in ("sent", "blank"):
            (claim,) = store.outbox.claim([name])
            store.outbox.settle(claim, Lost(why="hunter2"))
    ran = run_cli("sessions", "scrub", "--pattern", "hunter2", "--yes", "--db", db, "--json")
    assert ran.exit_code == 0, ran.stderr
    assert (ran.exit_code, ran.json["complete"], ran.json["rows"]["outbox"]) == (0, True, 3)
    assert [path for path in db.parent.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()] == []


def test_the_check_of_a_row_is_that_of_what_append_recorded(store: Store) -> None:
    store.outbox.append(
        dedupe_id="all", kind="final", transport="t", payload={"text": "\u6708", "n": [1, None, 2.5]}, policy=LEAST,
        target="chat", lane="l", batch="b", priority=3,
    )
    with store.core.reader() as reader:
        (rows,) = list(owed.portions(reader.rows))
    assert owed.is_as_recorded(rows[0]) and not owed.is_as_recorded(rows[0] | {"priority": 4})
