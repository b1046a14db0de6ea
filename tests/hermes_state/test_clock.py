"""Time is an argument; the fake clock is one for all processes of a test."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM, ClockDomain, FakeClock, clock_from_environment, machine_domain


def test_system_clock_never_goes_back_on_its_monotonic_side() -> None:
    first, second = SYSTEM.monotonic(), SYSTEM.monotonic()
    assert second >= first
    assert SYSTEM.boottime() >= 0
    assert SYSTEM.now() > 1_700_000_000


def test_sleeping_on_the_fake_clock_moves_both_sides(fake_clock: FakeClock) -> None:
    start = fake_clock.now(), fake_clock.monotonic(), fake_clock.boottime()
    fake_clock.sleep(2.5)
    assert (fake_clock.now(), fake_clock.monotonic(), fake_clock.boottime()) == tuple(side + 2.5 for side in start)


def test_stepping_the_wall_leaves_the_monotonic_side(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    now = fake_clock.now()
    fake_clock.step_wall(-3600)
    assert (fake_clock.now(), fake_clock.monotonic()) == (now - 3600, before)


def test_child_sees_the_same_time(fake_clock: FakeClock, child) -> None:
    fake_clock.advance(17)
    other = child(
        """
        from hermes_state.clock import clock_from_environment
        clock = clock_from_environment()
        print(clock.now(), clock.monotonic())
        clock.advance(3)
        """
    )
    assert other.finish().split() == [str(fake_clock.now() - 3), "17.0"]
    assert fake_clock.monotonic() == 20.0


def test_without_the_variable_the_clock_is_the_machines(monkeypatch) -> None:
    monkeypatch.delenv("HERMES_STATE_CLOCK", raising=False)
    assert clock_from_environment() is SYSTEM


def test_boot_times_are_comparable_within_one_known_domain_only() -> None:
    here = ClockDomain(boot_id="b", time_namespace="t")
    assert here.comparable(ClockDomain(boot_id="b", time_namespace="t"))
    assert not here.comparable(ClockDomain(boot_id="other", time_namespace="t"))
    assert not here.comparable(ClockDomain(boot_id="b", time_namespace="other"))
    for unknown in (ClockDomain(boot_id="", time_namespace="t"), ClockDomain(boot_id="b", time_namespace="")):
        assert not unknown.comparable(unknown)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_system_clock_names_its_boot_and_time_namespace() -> None:
    domain = SYSTEM.domain()
    assert domain.comparable(SYSTEM.domain())
    assert domain.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_domain_without_a_process_table_is_unknown(tmp_path: Path) -> None:
    domain = machine_domain(proc_root=tmp_path)
    assert not domain.comparable(domain)


def test_kernel_without_time_namespaces_has_one(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("abc\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    if sys.platform.startswith("linux"):
        assert machine_domain(proc_root=tmp_path) == ClockDomain(boot_id="abc", time_namespace="none")


def test_same_inode_with_another_offset_is_another_time_namespace(tmp_path: Path) -> None:
    """Inodes of namespaces are used again."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/time").symlink_to("time:[7]")
    found = []
    for offset in (0, 1000):
        (tmp_path / "self/timens_offsets").write_text(f"monotonic 0 0\nboottime {offset} 0\n")
        found.append(machine_domain(proc_root=tmp_path).time_namespace)
    if sys.platform.startswith("linux"):
        assert found == ["7+0.0", "7+1000.0"]


def test_fake_clock_elsewhere_shows_the_same_time_in_another_domain(fake_clock: FakeClock, tmp_path: Path) -> None:
    other = fake_clock.elsewhere(tmp_path / "other.json", time_namespace="t", boottime_offset=100.0)
    other.advance(7)
    assert (fake_clock.monotonic(), fake_clock.boottime(), other.boottime()) == (7, 7, 107)
    assert other.now() == fake_clock.now()
    assert other.domain().boot_id == fake_clock.domain().boot_id
    assert not other.domain().comparable(fake_clock.domain())


def test_reboot_of_the_fake_clock_starts_boot_time_anew_under_another_id(fake_clock: FakeClock) -> None:
    fake_clock.advance(500)
    now, before = fake_clock.now(), fake_clock.domain()
    fake_clock.reboot(boot_id="the next", off_seconds=60)
    assert (fake_clock.now(), fake_clock.boottime()) == (now + 60, 0)
    assert not before.comparable(fake_clock.domain())


def test_threads_that_sleep_on_one_fake_clock_each_move_it(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    threads = [threading.Thread(target=fake_clock.sleep, args=(0.5,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake_clock.monotonic() == before + 10.0
