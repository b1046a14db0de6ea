"""A home is not green while its wall clock is in doubt, or while jobs are silent because it was wrong (T3.23)."""

from __future__ import annotations

from cron_store.cron import Cron
from cron_store.home import STANDS_SECONDS
from cron_store.ticker import Light, home_status
from hermes_state.clock import FakeClock
from tests.cron_store.conftest import NOW, Jobs

DAY = 86_400




def test_a_step_in_doubt_is_no_green_light_and_says_by_what_since_when_and_what_to_do(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    jobs.every("job", 600)
    cron.heartbeat(succeeded=True)
    assert home_status(cron).light is Light.GREEN
    fake_clock.step_wall(3 * 3600)
    cron.heartbeat(succeeded=True)
    fake_clock.advance(20)
    status = home_status(cron)
    assert (status.light, status.is_green) == (Light.CLOCK_IN_DOUBT, False)
    assert status.clock_step is not None and status.clock_step.seconds == 3 * 3600
    assert status.clock_since_at == NOW + 3 * 3600
    assert status.text == (
        "The wall clock moved by +10800 s and is not believed, since 2027-01-15T11:00:00Z by that clock: jobs go by the"
        " boot clock. It is believed at a tick 40 s from now if it stays so. If it is right, run `hermes-state cron"
        " accept-clock`; else set it back."
    )
    fake_clock.advance(STANDS_SECONDS - 20)
    cron.heartbeat(succeeded=True)
    assert home_status(cron).light is Light.GREEN


def test_a_step_that_no_ticker_noted_yet_is_said_beside_what_is_worse(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    jobs.every("job", 600)
    cron.heartbeat(succeeded=True)
    fake_clock.step_wall(2 * DAY)
    status = home_status(cron)
    assert (status.light, status.clock_since_at) == (Light.SILENT, None)
    assert status.text == (
        "Nobody was heard to tick this home for 172800 s. The wall clock moved by +172800 s and is not believed; no"
        " tick has noted it yet: jobs go by the boot clock. It is believed at a tick that comes 3600 s after one has"
        " noted it, if it stays so. If it is right, run `hermes-state cron accept-clock`; else set it back."
    )


def test_jobs_that_are_accounted_for_beyond_now_are_named_with_until_when(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    jobs.every("job", 600)
    jobs.every("other", 600)
    cron.heartbeat(succeeded=True)
    fake_clock.step_wall(2 * DAY)
    cron.accept_clock()
    for claim in cron.take(None, room=9).claims:
        jobs.fire(claim)
    fake_clock.step_wall(-2 * DAY)
    cron.heartbeat(succeeded=True)
    cron.accept_clock()
    status = home_status(cron)
    assert (status.light, status.is_green) == (Light.AHEAD, False)
    assert status.ahead == {"job": NOW + 2 * DAY, "other": NOW + 2 * DAY}
    assert status.ahead_since_at == NOW
    assert status.text == (
        "Accounted for beyond now, and silent until then, since the clock was set back at 2027-01-15T08:00:00Z: job"
        " (until 2027-01-17T08:00:00Z), other (until 2027-01-17T08:00:00Z). That is not taken back: add a job under"
        " another id to have it run before."
    )
