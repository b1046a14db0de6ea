"""After a prune or a delete, hermes-agent of the same release and the next one works on the file, and its own SQLite
finds every index sound. Campaign: it needs the real packages, each in an environment of its own (HERMES_PEERS)."""

from __future__ import annotations

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import add_session, change, ids, rows
from tests.support import peers
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy, versions

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("manner", ["alone", "online"])
@pytest.mark.parametrize("share", ["all", "some"])
def test_peers_open_append_and_search_after_a_prune_and_find_the_indexes_sound(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, version: str, manner: str, share: str
) -> None:
    found = peers.same_and_next(version)
    assert found, "HERMES_PEERS names no folder with this release"
    for peer in found:
        db = store_copy(version)
        add_session(db, "untouched", days_old=1, text="ordinary words about lighthouses")
        if share == "all":
            change(db, "UPDATE sessions SET ended_at = started_at, end_reason = 'cli_close' WHERE ended_at IS NULL")
        else:
            # Every session with a NUL, and only a few of the others.
            change(
                db,
                "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE rowid % 2",
                "UPDATE sessions SET parent_session_id = NULL",
                "UPDATE sessions SET ended_at = started_at, end_reason = 'cli_close' WHERE id IN"
                " (SELECT session_id FROM messages WHERE instr(CAST(content AS BLOB), x'00'))",
            )
        left = rows(db, "SELECT count(*) FROM messages")[0][0]
        options = ["--online"] if manner == "online" else []
        done = run_cli(
            "sessions", "prune", "--older-than", "2d", "--yes", "--allow-large", "--json", *options, home=db.parent
        )
        assert done.exit_code == 0, done.stderr
        assert done.json["session_count"] > 0
        left -= done.json["message_count"]
        assert rows(db, "SELECT count(*) FROM messages") == [(left,)]
        assert not ids(db) & set(done.json["sessions"])
        assert peer.index_check(db).problems == {}
        peer.open_and_append(db, session="fresh", texts=["a sentence about zeppelins", "another about zeppelins"])
        assert len(peer.search(db, "zeppelins")["zeppelins"]) == 2
        assert len(peer.search(db, "lighthouses")["lighthouses"]) == 2
        assert peer.index_check(db).problems == {}
