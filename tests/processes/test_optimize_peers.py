"""Files that were optimized or converted here, in the hands of the real releases and their own sqlite3 library.

Needs HERMES_PEERS (see `tests/support/peers.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import peers
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.peers import Peer
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.campaign

PAIRS = [(version, peer) for version in peers.VERSIONS for peer in peers.same_and_next(version)]
CONVERTIBLE = [(version, peer) for version, peer in PAIRS if version in ("0.17.0", "0.18.2", "0.19.0")]


def named(pairs: list[tuple[str, Peer]]) -> list[str]:
    return [f"{version} in {peer.version}" for version, peer in pairs]


def require_usable(peer: Peer, db: Path, *, substrings: bool = True) -> None:
    """The release opens, checks, appends, flips a flag, finds old and new text, deletes, and checks again."""
    assert peer.index_check(db).problems == {}
    sample = peer.sample(db)
    ids = peer.open_and_append(
        db, session="afterwards", texts=["zebrafish migration plan", "\u8bf7\u7a0d\u5019\u7247\u523b reply", "third"]
    )
    found = peer.search(db, "zebrafish", "\u8bf7\u7a0d\u5019\u7247\u523b", sample.word[1] if sample.word else "x")
    assert found["zebrafish"] == [ids[0]]
    if sample.word:
        assert sample.word[0] in found[sample.word[1]]
    if substrings:
        assert found["\u8bf7\u7a0d\u5019\u7247\u523b"] == [ids[1]]
        assert peer.substring(db, "brafis") == [ids[0]]
        if sample.piece:
            assert sample.piece[0] in peer.substring(db, sample.piece[1])
    else:
        assert peer.substring(db, "brafis") == []
    check = peer.index_check(db)
    assert (check.problems, check.triggers) == ({}, 6)


def copied(db: Path, peer: Peer) -> Path:
    target = db.parent.with_name(f"in-{peer.version}") / "state.db"
    target.parent.mkdir()
    shutil.copy(db, target)
    return target


@pytest.mark.parametrize(("version", "peer"), PAIRS, ids=named(PAIRS))
def test_an_optimized_file_is_as_good_as_new(
    store_copy: StoreCopy, run_cli: RunCli, version: str, peer: Peer
) -> None:
    db = store_copy(version)
    for how in ((), ("--via-copy", "--reclaim", "always")):
        done = run_cli("sessions", "optimize", *how)
        assert done.exit_code == 0, done.stderr
    require_usable(peer, copied(db, peer))


@pytest.mark.parametrize(("version", "peer"), CONVERTIBLE, ids=named(CONVERTIBLE))
def test_a_converted_file_is_as_good_as_new(
    store_copy: StoreCopy, run_cli: RunCli, version: str, peer: Peer
) -> None:
    db = store_copy(version)
    done = run_cli("sessions", "optimize-storage")
    assert done.exit_code == 0, done.stderr
    require_usable(peer, copied(db, peer))


@pytest.mark.parametrize(("version", "peer"), CONVERTIBLE, ids=named(CONVERTIBLE))
def test_without_the_trigram_index_only_substrings_are_not_found(
    store_copy: StoreCopy, run_cli: RunCli, version: str, peer: Peer
) -> None:
    db = store_copy(version)
    done = run_cli("sessions", "optimize-storage", "--trigram", "off", "--yes")
    assert done.exit_code == 0, done.stderr
    require_usable(peer, copied(db, peer), substrings=False)
    back = run_cli("sessions", "optimize-storage", "--trigram", "on")
    assert back.exit_code == 0, back.stderr
    assert peer.index_check(db).problems == {}


@pytest.mark.parametrize(("version", "peer"), CONVERTIBLE, ids=named(CONVERTIBLE))
@pytest.mark.parametrize("point", ["staged", "some of the old index gone", "some rows indexed", "all rows indexed"])
def test_a_release_that_opens_a_half_converted_file_does_it_no_harm(
    store_copy: StoreCopy, child: Children, run_cli: RunCli, version: str, peer: Peer, point: str
) -> None:
    from tests.processes.test_optimize_storage_killed import CONVERT

    db = store_copy(version)
    victim = child(CONVERT, db, point, 1)
    victim.wait_for("stopped")
    victim.kill()
    ids = peer.open_and_append(db, session="midway", texts=["zebrafish midway", "plain reply"])
    assert peer.search(db, "zebrafish")["zebrafish"] == [ids[0]]
    assert peer.index_check(db).triggers == 6

    done = run_cli("sessions", "optimize-storage")
    assert done.exit_code == 0, done.stderr
    assert peer.index_check(db).problems == {}
    assert peer.search(db, "zebrafish")["zebrafish"] == [ids[0]]
