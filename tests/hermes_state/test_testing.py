"""What the library gives to tests of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.testing import Gate, GateNotOpened, temporary_store


def test_gate_lets_the_other_process_past_and_gives_it_the_text(tmp_path: Path, child) -> None:
    other = child(
        """
        import sys
        from hermes_state.testing import Gate
        gate = Gate(sys.argv[1])
        gate.open("ready", "7 rows")
        print(gate.wait("go"))
        """,
        tmp_path,
    )
    gate = Gate(tmp_path)
    assert gate.wait("ready") == "7 rows"
    assert (gate.is_open("ready"), gate.is_open("go")) == (True, False)
    gate.open("go", "now")
    assert other.finish() == "now\n"


def test_gate_that_nobody_opens_says_which(tmp_path: Path) -> None:
    with pytest.raises(GateNotOpened) as caught:
        Gate(tmp_path).wait("ready", seconds=0)
    assert caught.value.message == f"Gate 'ready' in {tmp_path} was not opened within 0 s."


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden"])
def test_gate_is_named_by_a_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Gate(tmp_path).open(name)
    assert caught.value.message == f"{name!r} cannot name a gate."


def test_temporary_store_is_there_for_the_block_and_gone_after() -> None:
    with temporary_store() as store:
        folder = store.path.parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert store.path.exists()
    assert not folder.exists()


def test_temporary_store_in_a_folder_of_the_caller_stays(tmp_path: Path, fake_clock: FakeClock) -> None:
    with temporary_store(tmp_path, clock=fake_clock) as store:
        identity = store.store_id
        assert store.core.clock is fake_clock
    with temporary_store(tmp_path) as store:
        assert store.store_id == identity


def test_no_test_framework_and_nothing_heavy_is_loaded(child) -> None:
    heavy = {"pytest", "apsw", "watchfiles", "psutil", "click", "rich", "sqlite3", "sqlite_utils", "zstandard"}
    other = child(f"import sys, hermes_state.testing\nprint({heavy} & set(sys.modules))")
    assert other.finish() == "set()\n"
