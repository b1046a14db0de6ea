"""What of a record of hermes-agent is a job here, is refused, or is noted: one odd record stops no other."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from maintenance.cron_import import reading
from maintenance.cron_import.translating import Problem, Translated, job_of
from maintenance.cron_import.zones import FoundZone

AT = 1_800_000_000.0  # 2027-01-15T08:00:00Z
HALF_HOURLY = {"kind": "interval", "minutes": 30}


def translated(**record: Any) -> Translated | Problem:
    said = {"id": "a1", "name": "n", "schedule": HALF_HOURLY, "enabled": True, "state": "scheduled", **record}
    return job_of(said, FoundZone(name="Europe/Berlin", said_by="test"), source="/home", at=AT)


def cron(text: str) -> dict[str, str]:
    return {"kind": "cron", "expr": text}


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"repeat": {"times": float("nan")}}, "its repeat.times is no count"),
        ({"repeat": {"times": float("inf")}}, "its repeat.times is no count"),
        ({"repeat": {"times": 1e30}}, "its repeat.times is no count"),
        ({"repeat": {"times": None, "completed": 10**400}}, "its repeat.completed is no count"),
        ({"failure_streak": 1e30}, "its failure_streak is no count"),
        ({"timezone": "A" * 5000}, f"its zone is none: '{'A' * 79}"),
        ({"schedule": cron(f"*/{'9' * 5000} * * * *")}, "its cron expression has more than 500 characters"),
    ],
)
def test_a_record_that_says_nonsense_is_named_with_the_reason(record: dict[str, Any], why: str) -> None:
    assert translated(**record) == Problem(job_id="a1", why=why, runs_there=True)


def test_texts_that_no_column_takes_are_cut_and_stand_whole_beside_it() -> None:
    found = translated(name="a\0b", state="paused", paused_reason="x" * 5000, last_error="y" * 5000)
    assert isinstance(found, Translated)
    assert (found.name, len(found.paused_there), len(found.last_error or "")) == ("a b", 500, 500)
    kept = found.fields["imported_from_hermes_agent"]["record"]
    assert (kept["name"], kept["paused_reason"], kept["last_error"]) == ("a\0b", "x" * 5000, "y" * 5000)


@pytest.mark.parametrize(
    ("record", "note"),
    [
        ({"last_run_at": "2027-03-01T00:00:00+00:00"},
         "its last run lies ahead of the clock, so it has no slot before 2027-03-01T00:00:00Z"),
        ({"schedule": {"kind": "once", "run_at": "2040-01-01T00:00:00+00:00"}}, "it is due in more than 8 years"),
        ({"enabled": "false"}, "enabled is 'false', which hermes-agent takes for True"),
        ({"schedule": cron("0 0 */2 * 1")},
         "its day of month and its day of week must both hold here, in hermes-agent one of them"),
        ({"schedule": cron("0 0 1 * */2")},
         "its day of month and its day of week must both hold here, in hermes-agent one of them"),
        ({"schedule": cron("0 0 1 * 1")}, None), ({"schedule": cron("0 0 */2 * *")}, None), ({}, None),
    ],
)
def test_what_means_something_else_here_is_noted(record: dict[str, Any], note: str | None) -> None:
    found = translated(**record)
    assert isinstance(found, Translated)
    assert found.notes == (() if note is None else (note,))


def test_a_part_of_a_run_is_a_run() -> None:
    found = translated(repeat={"times": 2.7, "completed": 0})
    assert isinstance(found, Translated) and found.policies.repeat_times == 3


def test_a_file_that_is_nested_too_deeply_is_refused_by_name(tmp_path: Any) -> None:
    path = tmp_path / "cron" / "jobs.json"
    path.parent.mkdir()
    path.write_text('{"jobs": [' + "[" * 100_000 + "]" * 100_000 + "]}")
    with pytest.raises(InvalidInput) as caught:
        reading.read(tmp_path, FakeClock(tmp_path / "clock"))
    assert caught.value.message == f"{path} cannot be read as hermes-agent's jobs: it is nested too deeply."
