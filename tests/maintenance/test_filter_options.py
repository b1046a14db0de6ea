"""Filter options that would widen what a verb takes are refused before anything is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import add_session, empty_store, ids
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

VERBS = ["sessions prune --yes --allow-large", "sessions archive --yes", "sessions list", "sessions export out.jsonl"]


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    path = empty_store(store_copy("0.19.0"))
    add_session(path, "old")
    return path


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", ["--title", "--source", "--end-reason"])
def test_an_empty_filter_stops_every_verb(verb: str, option: str, db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    refused = run_cli(*verb.split(), f"{option}=")
    assert (refused.exit_code, refused.stdout, ids(db)) == (2, "", {"old"})
    assert refused.stderr == (
        f"Error: {option} is empty, which filters nothing.\n"
        "Why: The caller's fault: an argument cannot be used.\n"
        "Try: An unset shell variable does that. Give it a value, or leave the option away.\n"
    )
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_year_is_not_taken_for_days(verb: str, db: Path, run_cli: RunCli) -> None:
    refused = run_cli(*verb.split(), "--before", "2026", "--json")
    assert (refused.exit_code, ids(db)) == (2, {"old"})
    assert refused.json_error["error"]["message"] == "--before: 2026 may be a year or a number of days."
