"""What doctor calls damaged is not written to: not by a run that deletes, and not by any verb beside a damaged WAL."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.errors import Corrupt
from maintenance.gate import exclusive, online, preflight
from tests.maintenance.damage import PAGE, leaves, opened, overwrite
from tests.maintenance.removal_stores import context, ledger_lines
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

SESSION = "20260719_000011_954ec3"


def free_list_of_live_pages(db: Path) -> Path:
    """A free list whose pages hold messages: what is written next goes over them."""
    wrong = leaves(db, "messages")[:6]
    content = bytearray(db.read_bytes())
    pages = len(content) // PAGE
    trunk = bytearray(PAGE)
    struct.pack_into(f">II{len(wrong)}I", trunk, 0, 0, len(wrong), *wrong)
    content += trunk
    struct.pack_into(">III", content, 28, pages + 1, pages + 1, len(wrong) + 1)
    for counter in (24, 92):
        struct.pack_into(">I", content, counter, struct.unpack_from(">I", content, counter)[0] + 1)
    db.write_bytes(content)
    return db


def damaged_wal(db: Path, *, commits: int = 20) -> Path:
    """A WAL with commits that no other file has, and one wrong bit in its header."""
    connection = opened(db)
    for number in range(commits):
        connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (f"title {number}", SESSION)).fetchall()
    connection.close()
    wal = Path(f"{db}-wal")
    overwrite(wal, 3, bytes([wal.read_bytes()[3] ^ 1]))
    return wal


def fingerprints(*paths: Path) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


# --- pages ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "prune --older-than 1d --allow-large --yes",
        "prune --older-than 1d --allow-large --yes --reclaim never",
        "prune --older-than 1d --allow-large --yes --online",
        f"delete {SESSION} --yes",
        f"delete {SESSION} --yes --online",
    ],
)
def test_a_run_that_deletes_writes_nothing_into_a_store_whose_free_list_names_live_pages(
    store_copy: StoreCopy, run_cli: RunCli, words: str
) -> None:
    db = free_list_of_live_pages(store_copy("0.19.0"))
    before = fingerprints(db)
    done = run_cli("sessions", *words.split(), "--json")
    assert (done.exit_code, done.stdout) == (65, "")
    error = done.json_error["error"]
    assert error["message"].startswith(f"{db} is damaged, found before anything was deleted: ")
    assert error["try"] == (
        f"Rewriting a damaged file can lose rows. Run `hermes-state doctor --db {db}` first."
    )
    assert fingerprints(db) == before
    assert ledger_lines(db) == []


@pytest.mark.slow
def test_a_dry_run_shows_its_plan_and_says_that_damage_would_stop_the_run(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = free_list_of_live_pages(store_copy("0.19.0"))
    done = run_cli("sessions", "prune", "--older-than", "1d", "--dry-run")
    assert done.exit_code == 65
    assert done.stdout.splitlines()[0].startswith("Delete ")
    assert (
        "  Every page is checked first, without a lock; damage stops the run before anything is deleted."
        in done.stdout.splitlines()
    )
    assert done.stderr.startswith(f"Error: {db} is damaged, found before anything was deleted: ")


# --- the WAL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["online", "exclusive", "preflight"])
def test_no_door_opens_a_store_whose_wal_holds_commits_that_sqlite_cannot_see(
    store_copy: StoreCopy, door: str
) -> None:
    db = store_copy("0.19.0")
    wal = damaged_wal(db)
    before = fingerprints(db, wal)
    ctx = context(db)
    with pytest.raises(Corrupt) as refused:
        if door == "preflight":
            preflight(ctx, "sessions prune", beside=True)
        else:
            with online(ctx, "sessions prune") if door == "online" else exclusive(ctx, "sessions prune"):
                pass
    assert refused.value.message == (
        "The header of the WAL is damaged, so SQLite ignores all 161.0 KiB of it; committed rows may be in there. Copy "
        "both files before Hermes runs again. `sessions prune` would write over that WAL, so it was refused. Nothing "
        f"was changed in {db}."
    )
    assert refused.value.hint == (
        f"Copy what is there: `mkdir {db}.damaged-copy && cp -p {db} {wal} {db}.damaged-copy/`. "
        f"Then run `hermes-state doctor --db {db}`."
    )
    assert (refused.value.exit_code, refused.value.facts["finding"]) == (65, "wal_header_damaged")
    assert fingerprints(db, wal) == before


def test_a_wal_that_was_damaged_in_the_middle_closes_the_doors_too(store_copy: StoreCopy) -> None:
    db = store_copy("0.19.0")
    wal = damaged_wal(db)
    overwrite(wal, 3, bytes([wal.read_bytes()[3] ^ 1]))
    overwrite(wal, 32 + 5 * (24 + PAGE) + 24 + 100, b"\xff" * 8)
    with pytest.raises(Corrupt) as refused, online(context(db), "sessions rename"):
        pass
    assert refused.value.facts["finding"] == "wal_end_damaged"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "optimize", "optimize --online", "optimize --force", "optimize --via-copy", "optimize-storage",
        "prune --older-than 1d --allow-large --yes", "prune --older-than 1d --allow-large --yes --online",
        "prune --older-than 1d --dry-run", f"delete {SESSION} --yes", f"rename {SESSION} other", f"archive {SESSION}",
    ],
)
def test_every_verb_that_writes_leaves_a_damaged_wal_as_it_is(
    store_copy: StoreCopy, run_cli: RunCli, words: str
) -> None:
    db = store_copy("0.19.0")
    wal = damaged_wal(db)
    before = fingerprints(db, wal)
    done = run_cli("sessions", *words.split())
    assert done.exit_code == 65
    assert "Error: The header of the WAL is damaged, so SQLite ignores all 161.0 KiB of it; " in done.stderr
    assert fingerprints(db, wal) == before


@pytest.mark.slow
def test_beside_a_holder_whose_commits_can_be_seen_the_doors_stay_open(
    store_copy: StoreCopy, child: Children
) -> None:
    db = store_copy("0.19.0")
    writer = child(
        """
        import sys, gates
        from hermes_state.engine import open_write
        with open_write(sys.argv[1], foreign=True) as store:
            for number in range(20):
                with store.transaction(durability="process") as tx:
                    tx.execute("UPDATE sessions SET title = ? WHERE rowid = 1", (f"title {number}",))
            gates.reach("written")
            gates.wait("end")
        """,
        db,
    )
    writer.wait_for("written")
    with online(context(db), "sessions rename") as opened_store, opened_store.store.transaction() as tx:
        tx.execute("UPDATE sessions SET title = 'ours' WHERE rowid = 1")
    with open_read(db) as store:
        assert store.rows("SELECT title FROM sessions WHERE rowid = 1") == [("ours",)]
