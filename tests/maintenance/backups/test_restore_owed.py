"""What a store owes after older content was put back: nothing that went out since is sent again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.errors import StaleFence, TooOld
from hermes_state.outbox import Failed, NotAdmitted
from maintenance.backups import backup
from maintenance.backups.drilling import drill
from tests.maintenance.adopting import nobody
from tests.maintenance.backups.making import put_back, query, tidy
from tests.maintenance.owing import LEAST, ONCE, horizon, owe, owing_store, send, sent, states
from tests.maintenance.replacement.replacing import STATES, overwrite
from tests.support.cli import RunCli
from tests.support.native_release import FOLDER

SINCE = "it may have been sent since the copy that it comes from was made"


@pytest.mark.parametrize("policy", [ONCE, LEAST])
def test_what_was_sent_after_the_backup_is_not_sent_again(tmp_path: Path, policy: str) -> None:
    db = owing_store(tmp_path, "sent", "tried", "refunded", "owed", policy=policy)
    made = backup(db)
    with open_store(path=db) as store:
        send(store, "sent")
        send(store, "tried", Failed(why="no"))
        send(store, "refunded", NotAdmitted(why="busy"))
        owe(store, "later", policy)
        owe(store, "later sent", policy)
        send(store, "later sent")
    tidy(db)
    before = states(db)
    done = put_back(made.path, db)
    assert states(db) == before and horizon(db) == 0
    assert query(db, "SELECT dedupe_id, fence, refunds FROM outbox ORDER BY id") == [
        ("sent", 1, 0), ("tried", 1, 0), ("refunded", 1, 1), ("owed", 0, 0), ("later", 0, 0), ("later sent", 1, 0),
    ]
    assert sent(db, "sent", "later sent", "owed", "later") == ["owed", "later"]
    assert done.replaced is not None and done.replaced.obligations.document() == {
        "verdicts": 1, "brought": 2, "added": 2, "unknown": 0, "marked": 0, "ended": 0,
    }


def test_what_was_being_sent_is_judged_by_its_policy_and_its_sender_is_refused(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "stop")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
    made = backup(tidy(db))
    with open_store(path=db) as store:
        (stop,), (reply,) = store.outbox.claim(["stop"]), store.outbox.claim(["reply"])
    put_back(made.path, tidy(db))
    why = "its sender had it when the content of the store was replaced"
    assert states(db) == {"stop": ("unknown", 0, 1, why), "reply": ("pending", 0, 1, why)}
    with open_store(path=db) as store:
        for claim in (stop, reply):
            with pytest.raises(StaleFence):
                store.outbox.renew(claim)
        (again,) = store.outbox.claim(["stop", "reply"])
        assert again.primary.recovered and again.primary.fence > reply.primary.fence


@pytest.mark.parametrize("state", [name for name in STATES if name != "healthy"])
def test_over_a_store_that_cannot_be_read_nothing_is_sent_as_if_for_the_first_time(tmp_path: Path, state: str) -> None:
    db = owing_store(tmp_path, "stop", "sent")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
        send(store, "sent")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        at = store.core.clock.now()
        owe(store, "after it")
        send(store, "stop")
    STATES[state](tidy(db))
    done = put_back(made.path, db, new_store=True)
    assert states(db) == {
        "stop": ("unknown", 0, 1, SINCE), "sent": ("accepted", 0, 0, "Accepted"), "reply": ("pending", 0, 1, SINCE),
    }
    assert done.replaced is not None and done.replaced.obligations.document() == {
        "verdicts": 0, "brought": 0, "added": 0, "unknown": 1, "marked": 1, "ended": 0,
    }
    with open_store(path=db) as store:
        assert horizon(db) > at
        with pytest.raises(TooOld):
            owe(store, "after it", made_at=at)
        owe(store, "new")
        (claim,) = store.outbox.claim(["reply"])
        assert claim.primary.recovered and claim.primary.fence > 1_000_000
    assert sent(db, "stop", "sent", "new") == ["new"]


def test_of_an_outbox_with_a_damaged_index_verdicts_are_believed_and_the_rest_is_not(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "sent", "owed")
    made = backup(db)
    with open_store(path=db) as store:
        send(store, "sent")
        owe(store, "later", LEAST)
    tidy(db)
    (root,) = query(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox_settled'")[0]
    with db.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    put_back(made.path, db)
    assert states(db) == {
        "sent": ("accepted", 0, 0, "Accepted"), "owed": ("unknown", 0, 1, SINCE), "later": ("pending", 0, 1, SINCE),
    }
    assert horizon(db) > 0


@pytest.mark.parametrize(("policy", "state"), [(ONCE, "unknown"), (LEAST, "suppressed")])
def test_what_was_settled_and_forgotten_is_not_owed_again(tmp_path: Path, policy: str, state: str) -> None:
    db = owing_store(tmp_path, "forgotten", policy=policy)
    made = backup(db)
    with open_store(path=db) as store:
        send(store, "forgotten")
        store.outbox.upkeep(blank_after_seconds=0.0, most_settled=0)
    tidy(db)
    assert states(db) == {} and (old := horizon(db)) > 0
    put_back(made.path, db)
    assert states(db)["forgotten"][0] == state and sent(db, "forgotten") == [] and horizon(db) == old


def test_a_backup_of_another_history_takes_back_no_verdict_and_gives_no_number_twice(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "first")
    early = backup(db, to=tmp_path / "early")
    with open_store(path=db) as store:
        send(store, "first")
        owe(store, "lost with it", LEAST)
    late = backup(tidy(db), to=tmp_path / "late")
    overwrite(db, bytes(4096))
    put_back(early.path, db)
    with open_store(path=db) as store:
        owe(store, "other", LEAST, lane="a")
        owe(store, "another", LEAST, lane="a")
    put_back(late.path, tidy(db))
    found = query(db, "SELECT id, dedupe_id, state, recoveries FROM outbox ORDER BY id")
    assert [row[1:] for row in found] == [
        ("first", "accepted", 0), ("lost with it", "pending", 1), ("other", "pending", 0), ("another", "pending", 0),
    ]
    assert sent(db, "other", "another", "first") == ["other"]


def test_a_repeated_one_names_its_original_and_bodies_come_with_it(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "sent")
    made = backup(db)
    with open_store(path=db) as store:
        send(store, "sent", Failed(why="no", for_good=True))
        again = store.outbox.retry("sent")
    put_back(made.path, tidy(db))
    with open_store(path=db) as store:
        assert store.outbox.get(again.dedupe_id) == again


def test_a_backup_from_before_the_outbox_gets_the_tables_when_the_store_owes(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress((FOLDER / "0.4.0-filled.db.gz").read_bytes()))
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(old.read_bytes())
    with open_store(path=db) as store:
        owe(store, "later")
        owe(store, "sent")
        send(store, "sent")
    put_back(old, tidy(db))
    assert {name: one[0] for name, one in states(db).items()} == {"later": "pending", "sent": "accepted"}


def test_a_drill_compares_what_is_owed_and_judges_nothing(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "stop", "reply")
    with open_store(path=db) as store:
        send(store, "reply")
    assert drill(backup(tidy(db)).path, scanner=nobody).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("readable", [True, False])
def test_the_plan_and_the_report_say_what_becomes_of_obligations(
    tmp_path: Path, run_cli: RunCli, readable: bool
) -> None:
    db = owing_store(tmp_path, "sent", "tried", "owed", "stop")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
    made = backup(tidy(db))
    with open_store(path=db) as store:
        send(store, "sent")
        send(store, "tried", Failed(why="no"))
        for name, policy in (("later", ONCE), ("later reply", LEAST)):
            owe(store, name, policy)
        store.outbox.claim(["stop", "reply"], limit=2)
    tidy(db)
    if not readable:
        db.write_bytes(b"x" * 4096)
    dry = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    counted = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run", "--json").json["obligations_then"]
    assert "outbox" not in dry.stdout  # as a table of which rows are gone
    may = [
        "may have been sent, and at most once: unknown, not sent again; a person decides",
        "may have been sent, and at least once: sent again, marked as recovered",
    ]
    since = (
        "carried over from the store: 1 with the verdict that they have got since, 1 with the attempts made since,"
        " 2 recorded since"
    )
    lines = [line.strip() for line in dry.stdout.splitlines()]
    once, again = f"{1 if readable else 4} obligation{'' if readable else 's'} {may[0]}", f"1 obligation {may[1]}"
    expected = [f"4 obligations would be {since}", once, again]
    if not readable:
        expected[0] = (
            "what the store knows of obligations cannot be read whole: what the backup owes may have been sent since"
        )
    assert [line for line in lines if "obligation" in line] == expected
    done = run_cli("sessions", "restore", made.path, "--db", db, "--yes", "--json").json
    assert counted == {"known": readable, **done["obligations"]} and done["obligations_then"] == counted


@pytest.mark.slow
def test_the_report_to_people_names_what_was_carried_over(tmp_path: Path, run_cli: RunCli) -> None:
    db = owing_store(tmp_path, "sent")
    made = backup(db)
    with open_store(path=db) as store:
        send(store, "sent")
    ran = run_cli("sessions", "restore", made.path, "--db", tidy(db), "--yes")
    assert ran.exit_code == 0, ran.stderr
    assert (
        "1 obligation was carried over from the store: 1 with the verdict that they have got since.\n" in ran.stdout
    )
