"""The example in docs/cron.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.store import open_store
from tests.cron_store.conftest import NOW

PAGE = Path(__file__).parents[2] / "docs" / "cron.md"


def test_the_example_declares_a_job_and_runs_what_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    clock = FakeClock(tmp_path / "clock.json", now=NOW)
    monkeypatch.setenv(CLOCK_FILE_VARIABLE, str(clock.path))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    exec(example, {})
    clock.advance(3 * 86_400)
    exec(example.replace("policies=", "replace=True, policies="), {})
    with open_store(tmp_path / "home", read_only=True, clock=clock) as store:
        from cron_store.looking import Looking

        look = Looking(store)
        assert [(run.job_id, run.state) for run in look.history()] == [("report", "succeeded")]
        assert [one.target for one in store.outbox.page()] == ["chat 7"]
        assert look.job("report").version == 1
