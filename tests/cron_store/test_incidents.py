"""Incidents and what people are told (T3.25, R75)."""

from __future__ import annotations

import pytest

from cron_store.cron import Cron
from cron_store.incidents import signature
from cron_store.records import Delivery, Failed, Settled
from hermes_state.errors import NotFound, Refused
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs

PING = Delivery(kind="alert", transport="telegram", target="1", payload="it failed", policy="at_least_once")


def fail(jobs: Jobs, error: str = "rate limit after 31 s", every: float = 600) -> Settled:
    [claim] = jobs.after(every)
    jobs.cron.start(claim)
    return jobs.cron.settle(claim, Failed(error=error, failure_type="rate_limit"), alert=PING)


def test_a_hundred_failures_are_one_incident_with_a_ping_every_six_hours(
    jobs: Jobs, cron: Cron, store: Store
) -> None:
    """T3.25: 100 runs of the same error, one every 10 minutes; its numbers differ."""
    jobs.every("job", 600)
    for number in range(100):
        fail(jobs, f"rate limit after {number} s")
    [incident] = cron.incidents()
    assert (incident.state, incident.count, incident.generation, incident.failure_type) == (
        "alerted", 100, 1, "rate_limit",
    )
    pings = sorted(one.made_at for one in store.outbox.page(limit=200))
    assert [(at - NOW - 600) / 3600 for at in pings] == [0.0, 6.0, 12.0]
    assert cron.job("job").failure_streak == 100


def test_a_closed_incident_pings_no_more_and_a_recovered_one_once(jobs: Jobs, cron: Cron, store: Store) -> None:
    """T3.25: closed: 0 pings; recovered, then the same error: 1 ping, generation 2."""
    jobs.every("job", 600)
    first = fail(jobs).incident
    assert first is not None
    [claim] = jobs.after(600)
    jobs.fire(claim)
    assert cron.incidents()[0].state == "resolved"
    assert cron.job("job").failure_streak == 0
    again = fail(jobs)
    assert again.alerted and again.incident is not None
    assert (again.incident.incident_id, again.incident.generation, again.incident.count) == (first.incident_id, 2, 1)
    assert len(store.outbox.page()) == 2
    assert cron.close_incident(first.incident_id).state == "closed"
    for _ in range(40):
        assert not fail(jobs).alerted
    assert len(store.outbox.page()) == 2
    [claim] = jobs.after(600)
    jobs.fire(claim)
    assert cron.incidents()[0].state == "closed"
    assert not fail(jobs).alerted


def test_another_error_is_another_incident(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 600)
    for error in ("disk full", "no such model"):
        assert fail(jobs, error).alerted
    assert {one.error for one in cron.incidents(job_id="job")} == {"disk full", "no such model"}
    assert cron.incidents(job_id="other") == []
    assert signature("job", "Timeout  after 3 s at 0xFF") == signature("job", "timeout after 77 s at 0x0a")
    assert signature("job", "a") != signature("boj", "a")


def test_a_failure_without_an_alert_owes_nothing(jobs: Jobs, store: Store) -> None:
    jobs.every("job", 600)
    [claim] = jobs.after(600)
    jobs.cron.start(claim)
    settled = jobs.cron.settle(claim, Failed(error="x" * 9000))
    assert settled.alerted and settled.incident is not None and len(settled.incident.error) == 500
    assert store.outbox.page() == []
    jobs.fire(jobs.cron.take_manual("job", "ok"))
    assert jobs.cron.job("job").last_state == "succeeded"


def test_a_clock_that_was_ahead_keeps_nobody_from_being_told(jobs: Jobs) -> None:
    jobs.every("job", 600)
    fail(jobs)
    jobs.clock.step_wall(86_400)
    assert fail(jobs).alerted
    jobs.clock.step_wall(-86_400)
    jobs.cron.start(claim := jobs.cron.take_manual("job", "run"))
    assert jobs.cron.settle(claim, Failed(error="rate limit after 31 s"), alert=PING).alerted


def test_what_is_not_open_is_not_closed(jobs: Jobs, cron: Cron, store: Store) -> None:
    with pytest.raises(NotFound) as missing:
        cron.close_incident("x-1")
    assert str(missing.value) == f"There is no cron incident 'x-1' in {store.path}."
    jobs.every("job", 600)
    incident = fail(jobs).incident
    assert incident is not None
    cron.close_incident(incident.incident_id)
    with pytest.raises(Refused) as closed:
        cron.close_incident(incident.incident_id)
    assert str(closed.value) == f"Cron incident {incident.incident_id!r} in {store.path} was closed before."
    assert cron.incidents(states=[]) == []
