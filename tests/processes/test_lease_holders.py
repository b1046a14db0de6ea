"""Holders in other namespaces are never robbed before the expiry, and inherited from at once after kill -9.

Real processes, real namespaces, one shared folder. In a child PID namespace the pid of a holder means another process
outside, or none; in a child time namespace one process has other start ticks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.errors import LeaseHeld
from hermes_state.leases import silence_needed
from hermes_state.owners import OwnerIdentity, provably_dead
from hermes_state.store import open_store

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root on Linux"),
    pytest.mark.slow,
]

IN_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
IN_PID_NAMESPACE_WITH_OUTER_PROC = ("unshare", "--pid", "--fork", "--kill-child")
IN_TIME_NAMESPACE = ("unshare", "--time", "--fork", "--boottime", "100000", "--kill-child")
EVERYWHERE = {
    "same": (), "pid": IN_PID_NAMESPACE, "pid, outer proc": IN_PID_NAMESPACE_WITH_OUTER_PROC, "time": IN_TIME_NAMESPACE
}
AT_ONCE = 30.0  # seconds of patience for the kernel to end a killed process; the terms here are hours

HOLDER = """
    import sys, gates
    from hermes_state.errors import StateError
    from hermes_state.store import open_store

    with open_store(path=sys.argv[1]) as store:
        lease = store.leases.acquire("tick", term_seconds=float(sys.argv[2]))
        gates.reach("held", f"{lease.owner.pid} {lease.owner}")
        step = 0
        while True:
            word = gates.wait(f"step {step}")
            try:
                store.core.write(lease.guard) if word == "guard" else getattr(lease, word)()
                gates.reach(f"did {step}", "done")
            except StateError as error:
                gates.reach(f"did {step}", type(error).__name__)
            step += 1
"""

CONTENDER = """
    import sys, gates
    from hermes_state.errors import LeaseHeld
    from hermes_state.store import open_store

    with open_store(path=sys.argv[1]) as store:
        try:
            store.leases.acquire("tick", term_seconds=1)
            gates.reach("tried", "taken")
        except LeaseHeld as error:
            gates.reach("tried", error.message)
        gates.wait("holder is dead")
        try:
            got = store.leases.acquire("tick", term_seconds=3600, wait_seconds=float(sys.argv[2])).fence
        except LeaseHeld:
            got = "refused"
        gates.reach("got", got)
        gates.wait("end")
"""


@cache
def refusal(wrapper: tuple[str, ...]) -> str:
    """Why this machine cannot make the namespace; empty when it can."""
    try:
        subprocess.run([*wrapper, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this machine does not allow it: {error}"
    return ""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "state.db"):
        return tmp_path / "state.db"


@pytest.fixture(params=EVERYWHERE, ids=list(EVERYWHERE))
def place(request: pytest.FixtureRequest) -> tuple[str, ...]:
    wrapper = EVERYWHERE[request.param]
    if wrapper and refusal(wrapper):
        pytest.skip(refusal(wrapper))
    return wrapper


def do(holder, step: int, word: str) -> str:
    """Let the holder guard, renew or release; what came of it."""
    holder.release(f"step {step}", word)
    return holder.wait_for(f"did {step}")


def test_holder_anywhere_is_not_robbed_and_is_inherited_from_at_once_after_kill_9(store: Path, place, child) -> None:
    holder = child(HOLDER, store, 7200, wrapper=place)
    _pid, shown = holder.wait_for("held").split(" ", 1)
    with open_store(path=store) as ours:
        for _ in range(20):
            with pytest.raises(LeaseHeld) as caught:
                ours.leases.acquire("tick", term_seconds=10)
            assert str(caught.value.owner) == shown
        assert do(holder, 0, "guard") == "done"
        holder.freeze()
        with pytest.raises(LeaseHeld):
            ours.leases.acquire("tick", term_seconds=10)
        holder.kill()
        assert ours.leases.acquire("tick", term_seconds=10, wait_seconds=AT_ONCE).fence == 2


def test_contender_anywhere_robs_nobody_and_inherits_at_once_after_kill_9(store: Path, place, child) -> None:
    """The pid of the holder does not exist in the contender's namespace."""
    holder = child(HOLDER, store, 7200)
    _pid, shown = holder.wait_for("held").split(" ", 1)
    contender = child(CONTENDER, store, AT_ONCE, wrapper=place)
    assert contender.wait_for("tried").startswith(f"Lease 'tick' in {store} is held by {shown}, not proven dead (")
    assert do(holder, 0, "guard") == "done"
    holder.kill()
    contender.release("holder is dead")
    assert contender.wait_for("got") == "2"


def test_holder_in_a_child_namespace_has_a_pid_that_another_process_has_outside(store: Path, child) -> None:
    if refusal(IN_PID_NAMESPACE):
        pytest.skip(refusal(IN_PID_NAMESPACE))
    holder = child(HOLDER, store, 7200, wrapper=IN_PID_NAMESPACE)
    pid = holder.wait_for("held").split()[0]
    assert int(pid) < 10
    assert Path(f"/proc/{pid}/stat").exists() or pid != "1"


def test_frozen_holder_of_this_clock_is_replaced_at_its_expiry_and_told_when_it_wakes(store: Path, child) -> None:
    holder = child(HOLDER, store, 0.5)
    holder.wait_for("held")
    holder.freeze()
    with open_store(path=store) as ours:
        ours.leases.acquire("tick", term_seconds=3600, wait_seconds=30)
        holder.thaw()
        assert [do(holder, 0, "guard"), do(holder, 1, "renew"), do(holder, 2, "release")] == [
            "StaleFence", "LeaseLost", "done"
        ]
        view = ours.leases.look("tick")
    assert view is not None
    assert (view.fence, view.is_free) == (2, False)


def test_frozen_holder_of_another_time_namespace_is_replaced_after_term_and_margin_of_silence(
    store: Path, child
) -> None:
    if refusal(IN_TIME_NAMESPACE):
        pytest.skip(refusal(IN_TIME_NAMESPACE))
    holder = child(HOLDER, store, 0.5, wrapper=IN_TIME_NAMESPACE)
    holder.wait_for("held")
    holder.freeze()
    with open_store(path=store) as ours:
        clock = ours.core.clock
        start = clock.boottime()
        with pytest.raises(LeaseHeld) as caught:
            ours.leases.acquire("tick", term_seconds=1, wait_seconds=silence_needed(0.5) - 0.3)
        assert caught.value.expires_in_seconds is None
        assert ours.leases.acquire("tick", term_seconds=3600, wait_seconds=30).fence == 2
        assert clock.boottime() - start >= silence_needed(0.5)
        holder.thaw()
        assert [do(holder, 0, "guard"), do(holder, 1, "renew")] == ["StaleFence", "LeaseLost"]


def elsewhere(clock: FakeClock, folder: Path, **domain: str | float) -> dict[str, str]:
    """The environment of a child in another clock domain under the same time."""
    other = clock.elsewhere(folder / "elsewhere.json", **domain)  # type: ignore[arg-type]
    return {CLOCK_FILE_VARIABLE: str(other.path)}


def test_holder_of_another_boot_is_watched_by_its_renewals_only(
    store: Path, tmp_path: Path, fake_clock: FakeClock, child
) -> None:
    """By its numbers and our clock the lease ran out long ago. It is killed, which proves nothing either."""
    fake_clock.advance(1e6)
    away = elsewhere(fake_clock, tmp_path, boot_id="another boot", boottime_offset=-9e5)
    holder = child(HOLDER, store, 30, env=away)
    holder.wait_for("held")
    with open_store(path=store, clock=fake_clock) as ours:

        def refused() -> str:
            with pytest.raises(LeaseHeld) as caught:
                ours.leases.acquire("tick", term_seconds=10)
            return str(caught.value)

        for step in range(3):
            assert "(it ran under another boot of this or another machine)" in refused()
            fake_clock.advance(silence_needed(30) - 1)
            assert do(holder, step, "renew") == "done"
            refused()
        holder.kill()
        fake_clock.advance(silence_needed(30) - 1)
        refused()
        fake_clock.advance(1)
        assert ours.leases.acquire("tick", term_seconds=10).fence == 2


def test_waking_holder_of_another_boot_renews_when_nobody_came(
    store: Path, tmp_path: Path, fake_clock: FakeClock, child
) -> None:
    holder = child(HOLDER, store, 30, env=elsewhere(fake_clock, tmp_path, boot_id="another boot"))
    holder.wait_for("held")
    with open_store(path=store, clock=fake_clock) as ours, pytest.raises(LeaseHeld):
        ours.leases.acquire("tick", term_seconds=10)
    fake_clock.advance(100)
    assert [do(holder, 0, "guard"), do(holder, 1, "renew"), do(holder, 2, "guard")] == ["LeaseLost", "done", "done"]


def test_one_of_many_contenders_gets_the_lease_of_the_dead(store: Path, child) -> None:
    """Each judged the same dead owner. Whoever gets it keeps it, with the next fence."""
    holder = child(HOLDER, store, 7200)
    holder.wait_for("held")
    contenders = [child(CONTENDER, store, 0.2) for _ in range(4)]
    for contender in contenders:
        contender.wait_for("tried")
    holder.kill()
    for contender in contenders:
        contender.release("holder is dead")
    assert sorted(contender.wait_for("got") for contender in contenders) == ["2", "refused", "refused", "refused"]


def test_child_made_by_fork_has_an_identity_of_its_own_and_keeps_no_lock(tmp_path: Path, child) -> None:
    parent = child(
        """
        import os, sys, gates
        from hermes_state.owners import this_process
        mine = this_process(sys.argv[1])
        if os.fork() == 0:
            os.setsid()
            gates.reach("child", this_process(sys.argv[1]).to_json())
            gates.wait("end")
            os._exit(0)
        gates.reach("parent", mine.to_json())
        gates.wait("never")
        """,
        tmp_path,
    )
    mine = OwnerIdentity.from_json(parent.wait_for("parent"))
    forked = OwnerIdentity.from_json(parent.wait_for("child"))
    assert mine.nonce != forked.nonce
    assert not provably_dead(mine, tmp_path).dead
    parent.kill()
    assert provably_dead(mine, tmp_path).because == "nobody holds its lock file"
    assert not provably_dead(forked, tmp_path).dead
    parent.release("end")


def test_program_started_by_an_owner_keeps_no_lock(tmp_path: Path, child) -> None:
    parent = child(
        """
        import subprocess, sys, gates
        from hermes_state.owners import this_process
        mine = this_process(sys.argv[1])
        started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False,
                                   start_new_session=True)
        gates.reach("parent", mine.to_json())
        gates.wait("never")
        """,
        tmp_path,
    )
    mine = OwnerIdentity.from_json(parent.wait_for("parent"))
    parent.kill()
    assert provably_dead(mine, tmp_path).because == "nobody holds its lock file"
