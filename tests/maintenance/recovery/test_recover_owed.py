"""Obligations of a damaged store: verdicts stand, what is not certain is not sent as if for the first time."""

from __future__ import annotations

import gzip
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.errors import TooOld
from hermes_state.outbox.append import check_of
from hermes_state.testing.pages import DatabaseFile
from maintenance.recovery.install import install
from maintenance.recovery.owing import later_of
from maintenance.recovery.records import Report
from maintenance.recovery.run import recover
from tests.maintenance.adopting import nobody
from tests.maintenance.backups.making import leave_wal, query, tidy
from tests.maintenance.owing import LEAST, ONCE, horizon, owe, owing_store, send, sent, states
from tests.maintenance.recovery.recovering import little_space
from tests.support.native_release import FOLDER
from tests.support.space import context

__all__ = ["little_space"]
pytestmark = pytest.mark.usefixtures("little_space")
NOT_SURE = "its row was recovered and is not certain; it may have been sent"
HIDDEN = "commits of its store may be lost; it may have been sent"
HAD = "a sender had it when its store was damaged"
ALTERED = "its content is not what was recorded"


def recovered(db: Path, **options: bool) -> Report:
    return recover(db, db.with_name("out.db"), allow_partial=True, **options)


def decisions(report: Report, *what: str) -> list[tuple[str, object]]:
    return [(said["what"], said.get("key")) for said in report.decisions if said["what"] in what]


def zero(db: Path, page: int) -> None:
    with db.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))


def altered(db: Path, old: bytes, new: bytes) -> None:
    content = db.read_bytes()
    assert old in content and len(old) == len(new)
    db.write_bytes(content.replace(old, new))


def test_a_sound_store_comes_back_with_what_it_owes_and_claims_end_by_their_policy(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "owed", "sent", "stop")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
        send(store, "sent")
        store.outbox.claim(["stop", "reply"], limit=2)
    report = recovered(tidy(db))
    assert states(report.output) == {
        "owed": ("pending", 0, 0, None), "sent": ("accepted", 0, 0, "Accepted"), "stop": ("unknown", 0, 1, HAD),
        "reply": ("pending", 0, 1, HAD),
    }
    assert horizon(report.output) == 0
    assert decisions(report, "obligation_unknown", "obligation_marked", "horizon_raised") == [
        ("obligation_unknown", 3), ("obligation_marked", 4),
    ]
    assert sent(report.output, "owed", "sent", "stop", "reply") == ["owed", "reply"]


def test_triggers_of_the_outbox_are_in_the_result_and_hold(tmp_path: Path) -> None:
    report = recovered(owing_store(tmp_path, "owed"))
    with pytest.raises(apsw.ConstraintError, match="an obligation that is not settled is never deleted"):
        query(report.output, "DELETE FROM outbox")


def test_lost_obligations_raise_the_horizon_and_no_number_is_given_again(tmp_path: Path) -> None:
    db = owing_store(tmp_path)
    with open_store(path=db) as store:
        for number in range(60):
            owe(store, f"owed {number}", LEAST if number % 2 else ONCE, made_at=store.core.clock.now())
    tidy(db)
    with DatabaseFile(db) as file:
        page = file.tree(file.object("outbox").root).leaves[-1]
    zero(db, page)
    report = recovered(db)
    left = states(report.output)
    assert 0 < len(left) < 60 and {one[0] for one in left.values()} == {"pending"}
    assert report.lost and report.table("outbox").lost_keys == 60 - len(left)
    assert ("horizon_raised", 1) in decisions(report, "horizon_raised")
    with open_store(path=report.output) as store:
        at = horizon(report.output)
        with pytest.raises(TooOld):
            owe(store, "owed 59", ONCE, made_at=at - 1)
        assert not store.outbox.append(
            dedupe_id="owed 0", kind="final", transport="owed 0", payload={"text": "owed 0"}, policy=ONCE,
            made_at=at - 1,
        ).new
        owe(store, "new")
    assert query(report.output, "SELECT max(id) FROM outbox") == [(61,)]


def test_a_table_without_root_gives_rows_that_are_not_sent_as_if_they_were_new(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "stop", "sent")
    with open_store(path=db) as store:
        for number in range(60):
            owe(store, f"reply {number}", LEAST)
        send(store, "sent")
    tidy(db)
    (root,) = query(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'")[0]
    zero(db, root)
    report = recovered(db)
    found = states(report.output)
    assert found["stop"] == ("unknown", 0, 1, NOT_SURE) and found["sent"][0] == "accepted"
    assert found["reply 7"] == ("pending", 0, 1, NOT_SURE) and horizon(report.output) > 0
    assert report.table("outbox").uncertain == len(found)


@pytest.mark.parametrize("policy", [ONCE, LEAST])
def test_content_that_is_not_what_was_recorded_goes_out_to_nobody(tmp_path: Path, policy: str) -> None:
    db = owing_store(tmp_path, "a long name of a reply", "owed", policy=policy)
    altered(db, b'{"text":"a long name of a reply"}', b'{"text":"a long name of a repay"}')
    report = recovered(db)
    assert states(report.output) == {
        "a long name of a reply": ("unknown", 0, 1, ALTERED), "owed": ("pending", 0, 0, None),
    }
    assert sent(report.output, "a long name of a reply", "owed") == ["owed"]


def test_what_is_no_json_any_more_stops_no_sender_and_is_kept_as_a_text(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "a long name of a reply", "owed", "sent")
    with open_store(path=db) as store:
        send(store, "sent")
    tidy(db)
    altered(db, b'{"text":"a long name of a reply"}', b'{"text":"a long name of a reply\x01}')
    altered(db, b'{"verdict": "Accepted"', b'{"verdict": "Accepted}')
    report = recovered(db)
    with open_store(path=report.output) as store:
        (claim,) = store.outbox.claim(["a long name of a reply", "owed"], limit=9)
        assert claim.primary.dedupe_id == "owed"
        assert store.outbox.get("a long name of a reply").payload == '{"text":"a long name of a reply\x01}'
        assert store.outbox.get("sent").verdict["why"] == "what was said of it cannot be read"


def test_a_verdict_in_a_part_of_the_wal_that_sqlite_does_not_read_stands(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "stop", "sent")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
    verdict = "state = 'accepted', fence = 1, settled_at = 2e9, verdict = '{\"verdict\":\"Accepted\"}'"
    leave_wal(
        tidy(db), "UPDATE sessions SET cwd = '/work'", f"UPDATE outbox SET {verdict} WHERE dedupe_id = 'sent'",
        "UPDATE sessions SET cwd = '/home'",
    )
    with Path(f"{db}-wal").open("r+b") as file:
        file.seek(32 + 30)  # within the first frame
        file.write(b"\xff\x00\xff")
    report = recovered(db)
    assert states(report.output) == {
        "stop": ("unknown", 0, 1, HIDDEN), "sent": ("accepted", 0, 0, "Accepted"), "reply": ("pending", 0, 1, HIDDEN),
    }
    assert horizon(report.output) > 0 and report.table("outbox").duplicate_rows == 1


def test_what_is_recovered_from_a_store_of_an_earlier_release_says_nothing_of_an_outbox(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.write_bytes(gzip.decompress((FOLDER / "0.4.0-filled.db.gz").read_bytes()))
    report = recovered(db)
    assert not report.lost and horizon(report.output) == 0 and decisions(report, "horizon_raised") == []


def test_of_two_versions_the_settled_one_is_later_and_else_the_one_with_the_higher_fence() -> None:
    names = ("id", "dedupe_id", "fence", "settled_at")
    pending, claimed, done = (1, "a", 0, None), (1, "a", 1, None), (1, "a", 1, 5.0)
    assert [later_of(names, one, two) for one, two in (
        (pending, claimed), (claimed, pending), (claimed, done), (done, claimed), (done, (1, "a", 9, None)),
        (pending, pending), (pending, (1, "b", 1, 5.0)),
    )] == [True, False, True, False, False, None, None]


def test_an_install_over_the_very_store_leaves_what_it_owes_and_over_a_later_one_carries_verdicts(
    tmp_path: Path,
) -> None:
    db = owing_store(tmp_path, "stop", "sent")
    report = recovered(db)
    done = install(context(db), report, scanner=nobody)
    assert states(db) == {"stop": ("pending", 0, 0, None), "sent": ("pending", 0, 0, None)}
    assert sum(done.obligations.document().values()) == 0
    with open_store(path=db) as store:
        send(store, "sent")
    done = install(context(tidy(db)), report, scanner=nobody)
    assert states(db) == {"stop": ("pending", 0, 0, None), "sent": ("accepted", 0, 0, "Accepted")}
    assert done.obligations.verdicts == 1


@pytest.mark.parametrize("policy", [ONCE, LEAST])
def test_a_payload_that_nobody_can_read_is_kept_as_a_text_and_sent_by_nobody(tmp_path: Path, policy: str) -> None:
    """Its check holds: it is what was recorded, and the text in its place is not."""
    db = owing_store(tmp_path, "deep", "owed", policy=policy)
    deep = "[" * 100_000 + "]" * 100_000
    with open_store(path=db) as store:
        row = store.outbox.get("deep")
        check = check_of(row.kind, row.transport, row.target, None, None, 0, row.policy, deep)
        store.core.write(lambda tx: tx.execute(
            "UPDATE outbox SET payload = ?, payload_check = ? WHERE dedupe_id = 'deep'", (deep, check)
        ))
    report = recovered(tidy(db))
    assert states(report.output)["deep"] == ("unknown", 0, 1, "its content cannot be read")
    assert sent(report.output, "deep", "owed") == ["owed"]
    with open_store(path=report.output, read_only=True) as store:
        assert store.outbox.get("deep").payload == deep
