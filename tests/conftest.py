"""Fixtures of every test: private stores, real children with gates, the command line, and the live-store audit."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from tests.support import stores
from tests.support.children import PROJECT, SUPPORT, Children
from tests.support.cli import RunCli
from tests.support.warm import WARM

sys.path.insert(0, str(SUPPORT / "audit"))
import live_store_audit

# Without compiled files pytest rewrites every test module in every worker, and every child compiles the program anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# One run equals the next, on slow machines too.
settings.register_profile("hermes-state", deadline=None, derandomize=True)
settings.load_profile("hermes-state")


@pytest.fixture(scope="session")
def _audit_report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file in which children write their breaches; it also covers processes that a test starts by itself."""
    folder = tmp_path_factory.mktemp("audit")
    report = folder / "breaches"
    report.touch()
    live_store_audit.install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(live_store_audit.REPORT_VARIABLE, str(report))
        patch.setenv("PYTHONPATH", str(SUPPORT / "audit"))
        yield report


@pytest.fixture(autouse=True)
def _nobody_at_former_homes(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what the process of the tests was at the test's home: each look at all descriptors would find them for ever.

    It is asked for first, so it ends last: after the stores that a test's fixtures opened.
    """
    yield
    folder = request.node.funcargs.get("tmp_path")
    presence = sys.modules.get("hermes_state.owners.presence")
    if folder is not None and presence is not None:
        presence.end_below(folder)


@pytest.fixture(autouse=True)
def live_store_audit_hook(_nobody_at_former_homes: None, _audit_report: Path) -> Iterator[object]:
    """Fail any test in which Python code opens a store's files while APSW has that store open in the same process."""
    live_store_audit.breaches.clear()
    live_store_audit.protected.clear()
    before = _audit_report.stat().st_size
    yield live_store_audit
    in_children = _audit_report.read_bytes()[before:].decode(errors="replace").splitlines()
    seen = list(dict.fromkeys([*live_store_audit.breaches, *in_children]))
    assert not seen, "a live store was opened by other means than APSW:\n" + "\n".join(seen)


def pytest_sessionfinish() -> None:
    """End the process that forks runs of the program."""
    WARM.close()


@pytest.fixture
def store_copy(tmp_path: Path) -> stores.StoreCopy:
    """`store_copy(version)` is the path of a fresh private copy, laid out as a home: <tmp>/home/state.db."""
    return stores.StoreCopy(tmp_path)


@pytest.fixture(scope="session")
def fixture_versions() -> tuple[str, ...]:
    """The releases of hermes-agent that a fixture file exists for."""
    return stores.versions()


def pytest_collection_finish() -> None:
    """Keep the collector from going through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()


# Files that take longest: whoever shares the work begins with them, so that no process is left with one at the end.
LONGEST = (
    "faults/test_fault_rounds.py", "campaigns/test_accidents.py", "hermes_state/test_leases_machine.py",
    "processes/test_recover_killed.py", "maintenance/repair/test_repair_steps.py", "test_benchmarks_run.py",
    "maintenance/test_doctor_beside_writer.py", "test_cli_contract.py", "maintenance/test_import_properties.py",
    "maintenance/recovery/test_carve_damage.py", "processes/test_repair_killed.py", "processes/test_restore_killed.py",
    "maintenance/recovery/test_recover_cases.py", "campaigns/test_append_kills.py", "maintenance/test_doctor_cases.py",
    "processes/test_replacement_killed.py", "maintenance/replacement/test_replace.py",
    "maintenance/test_standard_streams.py", "reports/test_reports_shared_homes.py", "faults/test_fault_harness.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the longest files to the front; the order within a file stays."""
    tests = PROJECT / "tests"
    place = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))


@pytest.fixture
def fake_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock that moves when told to, shared with every process that the test starts from here on."""
    path = tmp_path / "clock.json"
    monkeypatch.setenv(CLOCK_FILE_VARIABLE, str(path))
    return FakeClock(path, now=1_800_000_000.0)


@pytest.fixture
def child(live_store_audit_hook: object) -> Iterator[Children]:
    """Start real children that stop at gates; all are killed when the test ends."""
    children = Children()
    yield children
    children.close()


@pytest.fixture
def run_cli(tmp_path: Path, live_store_audit_hook: object) -> RunCli:
    """`run_cli("sessions", "list")` runs the program in a process of its own."""
    return RunCli(tmp_path)


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the source tree."""
    return PROJECT
