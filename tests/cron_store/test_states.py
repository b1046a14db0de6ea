"""The tables of transitions, fully enumerated, and what the schema says of the same states."""

from __future__ import annotations

import itertools
import re

import pytest

from cron_store.cron import Cron
from cron_store.states import (
    INCIDENT,
    OPEN_RUNS,
    OPEN_SLOTS,
    RUN,
    SLOT,
    SLOT_EVENT,
    IncidentEvent,
    IncidentState,
    JobState,
    RunEvent,
    RunState,
    SlotEvent,
    SlotState,
)
from hermes_state.engine.schema import schema_sql
from hermes_state.store import Store

S, E = SlotState, SlotEvent


def test_every_pair_of_a_slots_state_and_an_event_has_its_outcome_or_none() -> None:
    """The issue's states: what is claimed may be due again; what ran is so only where it is idempotent."""
    wanted = {
        (S.DUE, E.CLAIM): S.CLAIMED, (S.DUE, E.MISS): S.MISSED, (S.DUE, E.SKIP): S.SKIPPED,
        (S.DUE, E.INTERRUPT): S.INTERRUPTED, (S.CLAIMED, E.INTERRUPT): S.INTERRUPTED,
        (S.CLAIMED, E.START): S.RUNNING, (S.CLAIMED, E.GIVE_BACK): S.DUE, (S.CLAIMED, E.FAIL): S.FAILED,
        (S.CLAIMED, E.SKIP): S.SKIPPED, (S.RUNNING, E.SUCCEED): S.SUCCEEDED, (S.RUNNING, E.FAIL): S.FAILED,
        (S.RUNNING, E.INTERRUPT): S.INTERRUPTED, (S.RUNNING, E.REPEAT): S.DUE,
    }
    for pair in itertools.product(SlotState, SlotEvent):
        assert SLOT.get(pair) == wanted.get(pair), pair
    assert {state for state, _event in SLOT} == OPEN_SLOTS
    assert S.UNKNOWN not in SLOT.values()


def test_every_pair_of_a_runs_state_and_an_event_has_its_outcome_or_none() -> None:
    wanted = {
        (RunState.CLAIMED, RunEvent.START): RunState.RUNNING, (RunState.CLAIMED, RunEvent.FAIL): RunState.FAILED,
        (RunState.CLAIMED, RunEvent.RELEASE): RunState.RELEASED,
        (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCEEDED, (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED,
        (RunState.RUNNING, RunEvent.INTERRUPT): RunState.INTERRUPTED,
    }
    for pair in itertools.product(RunState, RunEvent):
        assert RUN.get(pair) == wanted.get(pair), pair
    assert {state for state, _event in RUN} == OPEN_RUNS
    for (state, event), _to in RUN.items():
        assert (SlotState(state), SLOT_EVENT[event]) in SLOT, "what happens to a run happens to its slot"


def test_every_pair_of_an_incidents_state_and_an_event_has_its_outcome_or_none() -> None:
    states, events = IncidentState, IncidentEvent
    lasting = {
        (state, event): to for state in (states.DETECTED, states.ALERTED) for event, to in (
            (events.REPEAT, state), (events.ALERT, states.ALERTED), (events.SUCCEED, states.RESOLVED),
            (events.CLOSE, states.CLOSED),
        )
    }
    wanted = lasting | {
        (states.RESOLVED, events.REPEAT): states.DETECTED, (states.RESOLVED, events.CLOSE): states.CLOSED,
    }
    for pair in itertools.product(states, events):
        assert INCIDENT.get(pair) == wanted.get(pair), pair


@pytest.mark.parametrize(
    ("table", "states"),
    [
        ("cron_occurrences", SlotState), ("cron_executions", RunState), ("cron_incidents", IncidentState),
        ("cron_runtime", JobState),
    ],
)
def test_the_schema_has_the_same_states(table: str, states: type[SlotState]) -> None:
    body = schema_sql().split(f"CREATE TABLE {table} (")[1].split(") STRICT")[0]
    found = re.search(r"state TEXT NOT NULL CHECK \(state IN \((.*?)\)\)", body, re.DOTALL)
    assert found is not None
    assert re.findall(r"'(\w+)'", found[1]) == [str(state) for state in states]


@pytest.mark.parametrize("durability", ["power"])
def test_what_claims_starts_and_settles_is_on_disk_when_it_returns(
    cron: Cron, store: Store, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims, starts, verdicts and declarations are committed at `power`; heartbeats and renewals are not."""
    from cron_store.records import Succeeded
    from cron_store.schedule import Interval
    from hermes_state.clock import FakeClock

    asked: list[str] = []
    core = store.core
    plain = core.write

    def write(work, *, durability="process", deadline_seconds=None):  # type: ignore[no-untyped-def]
        asked.append(durability)
        return plain(work, durability=durability, deadline_seconds=deadline_seconds)

    monkeypatch.setattr(core, "write", write)
    clock = core.clock
    assert isinstance(clock, FakeClock)
    cron.add("job", Interval(seconds=60, anchor=int(clock.now())))
    clock.advance(60)
    [claim] = cron.take(None).claims
    cron.start(claim)
    cron.settle(claim, Succeeded())
    cron.pause("job", reason="stop")
    cron.remove("job", actor="me", reason="done")
    assert asked == [durability] * 6
    cron.heartbeat()
    cron.renew([claim])
    assert asked[6:] == ["process", "process"]


def test_importing_the_package_loads_neither_croniter_nor_watchfiles() -> None:
    import subprocess
    import sys

    code = "import sys, cron_store.cron; print(sorted({'croniter', 'watchfiles', 'click', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
