"""Recovered files in the hands of the real releases and their own sqlite3 library.

Needs HERMES_PEERS (see `tests/support/peers.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hermes_state.testing.damage_cases import CASES
from maintenance.recovery import recover
from tests.maintenance.recovery.recovering import foreign_store, little_space
from tests.support import peers
from tests.support.peers import Peer

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("little_space")]
__all__ = ["little_space"]
PAIRS = [(version, peer) for version in peers.VERSIONS for peer in peers.same_and_next(version)]
DAMAGE = ("root_zeroed", "twenty_leaves_zeroed", "header_zeroed", "page_1_zeroed", "cut_to_70_percent")


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize(("version", "peer"), PAIRS, ids=[f"{version} in {peer.version}" for version, peer in PAIRS])
def test_a_recovered_file_opens_checks_appends_and_is_searched(
    tmp_path: Path, version: str, peer: Peer, case: str
) -> None:
    db = foreign_store(tmp_path / "home", version, grown=4)
    CASES[case].apply(db, "messages", 1)
    report = recover(db, tmp_path / "recovered.db", allow_partial=True)
    there = tmp_path / "there" / "state.db"
    there.parent.mkdir()
    shutil.copy(report.output, there)
    assert peer.index_check(there).problems == {}
    sample = peer.sample(there)
    ids = peer.open_and_append(there, session="afterwards", texts=["zebrafish migration plan", "second", "third"])
    found = peer.search(there, "zebrafish", sample.word[1] if sample.word else "zebrafish")
    assert found["zebrafish"] == [ids[0]]
    if sample.word:
        assert sample.word[0] in found[sample.word[1]]
    check = peer.index_check(there)
    assert (check.problems, check.triggers) == ({}, 6)
