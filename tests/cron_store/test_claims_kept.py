"""What a claim is worth after its store's content was replaced, its bytes were altered, or its history was imported."""

from __future__ import annotations

import dataclasses

import pytest

from cron_store.cron import Cron
from cron_store.records import Delivery, Succeeded
from cron_store.runs import rows
from cron_store.runs.handing import HandOff
from cron_store.states import RunState
from hermes_state.errors import InvalidInput, StaleFence
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs


def test_a_claim_of_replaced_content_is_nobodys(jobs: Jobs, cron: Cron) -> None:
    """After a restore the same fence may be another run's."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    other = dataclasses.replace(claim, incarnation="before the restore")
    for call in (lambda: cron.settle(other, Succeeded()), lambda: cron.start(other)):
        with pytest.raises(StaleFence):
            call()
    assert cron.renew([other]) == [other]
    assert not cron.release(other)
    assert cron.is_running("job")


def test_imported_runs_are_history_and_prove_no_slot(jobs: Jobs, cron: Cron, store: Store) -> None:
    jobs.every("job")
    fence = store.core.write(lambda tx: rows.write_imported(
        tx, job_id="job", state=RunState.UNKNOWN, claimed_at=NOW - 60.0, started_at=None, finished_at=NOW - 50.0,
        error="gone", result='{"old": 1}',
    ))
    run = cron.run(fence)
    assert (run.source, run.state, run.slot, run.owner, run.result) == ("import", "unknown", None, None, {"old": 1})
    assert cron.history(job_id="job", source="import") == [run]
    assert cron.in_flight() == []
    [claim] = jobs.after(60)
    assert claim.slot == NOW + 60


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"job_id": 1, "fence": "x"}'])
def test_what_hands_nothing_off_is_said(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        HandOff.from_json(text)
    assert str(refused.value) == f"{text!r} hands nothing off."


def test_a_result_that_is_no_json_leaves_the_run_in_flight(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    with pytest.raises(InvalidInput) as refused:
        cron.settle(claim, Succeeded(result={"at": object()}))
    assert str(refused.value) == "The result of a run is JSON: Object of type object is not JSON serializable."
    wrong = Delivery(kind="", transport="t", target="", payload=1, policy="at_most_once")
    with pytest.raises(InvalidInput):
        cron.settle(claim, Succeeded(), deliveries=[wrong])
    assert cron.is_running("job")
    cron.settle(claim, Succeeded())
    assert not cron.is_running("job")
