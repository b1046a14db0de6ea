"""Who owns a lease, and what proves that an owner is dead. Everything that proves nothing has its test as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.errors import CannotOpen, InvalidInput
from hermes_state.owners import OwnerIdentity, Presence, Verdict, lock_file, provably_dead, sweep, this_process
from hermes_state.owners.death import KEEP_OTHER_BOOTS_SECONDS, KEEP_SECONDS
from hermes_state.owners.identity import pid_namespace
from hermes_state.owners.presence import end_below

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
NONCE = "0123456789abcdef" * 2


def gone_pid() -> int:
    """A pid that nobody has."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def somebody(home: Path, **facts: object) -> OwnerIdentity:
    """An owner of this boot and pid namespace whose lock file does not exist, and which is no process here."""
    return replace(this_process(home), nonce=NONCE, **facts)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_identity_is_shown_as_host_pid_and_start(home: Path) -> None:
    me = this_process(home)
    assert str(me) == f"{me.host}:{os.getpid()}:{me.start_ticks}"


def test_identity_survives_json(home: Path) -> None:
    me = this_process(home)
    assert OwnerIdentity.from_json(me.to_json()) == me
    assert OwnerIdentity.from_json(json.dumps(json.loads(me.to_json()) | {"of a later version": 1})) == me


@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_anything_else_is_no_identity(text: str) -> None:
    with pytest.raises(InvalidInput):
        OwnerIdentity.from_json(text)


@pytest.mark.parametrize(
    "lie",
    [{"pid": 0}, {"pid": -1}, {"pid": True}, {"pid": "1"}, {"start_ticks": -1}, {"nonce": "../../state"},
     {"nonce": NONCE.upper()}, {"host": None}, {"nonce": NONCE + "\n"}],
)
def test_identity_with_a_pid_or_nonce_that_may_not_reach_the_system_is_refused(home: Path, lie: dict) -> None:
    text = json.dumps(json.loads(this_process(home).to_json()) | lie)
    with pytest.raises(InvalidInput) as caught:
        OwnerIdentity.from_json(text)
    assert caught.value.message == f"{text[:80]!r} is no owner identity."


def test_one_process_has_one_identity_for_each_home(home: Path) -> None:
    (home / "other").mkdir()
    assert this_process(home) == this_process(str(home))
    assert this_process(home).nonce != this_process(home / "other").nonce


@linux
def test_the_process_can_leave_all_homes_in_a_folder_and_is_another_owner_when_it_comes_back(tmp_path: Path) -> None:
    inside, beside = tmp_path / "in" / "one", tmp_path / "in-other-words"
    inside.mkdir(parents=True)
    beside.mkdir()
    left, kept, further = this_process(inside), this_process(beside), Presence(inside)
    end_below(tmp_path / "in")
    assert not further.is_held
    assert this_process(beside) == kept
    assert this_process(inside).nonce != left.nonce


def test_lock_file_is_private_named_by_the_nonce_and_held(home: Path) -> None:
    me = this_process(home)
    path = lock_file(home, me.nonce)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [f"{me.nonce}.lock"]
    assert f":{path.stat().st_ino} " in Path("/proc/locks").read_text()


def test_without_a_lock_file_nothing_can_be_owned(home: Path) -> None:
    (home / "owners").write_text("in the way")
    with pytest.raises(CannotOpen) as caught:
        this_process(home)
    path = caught.value.path
    assert path.parent == home / "owners"
    assert caught.value.message == (
        f"This process cannot own anything at {home}: {path} cannot be made and locked (File exists)."
    )


def test_this_process_is_alive(home: Path) -> None:
    assert provably_dead(this_process(home), home) == Verdict(
        dead=False, because="it is this process", runs=True
    )


def test_owner_whose_lock_file_is_held_is_alive(home: Path, child) -> None:
    other = child(
        """
        import sys, gates
        from hermes_state.owners import this_process
        gates.reach("here", this_process(sys.argv[1]).to_json())
        gates.wait("end")
        """,
        home,
    )
    owner = OwnerIdentity.from_json(other.wait_for("here"))
    assert not provably_dead(owner, home).dead
    in_another_namespace = replace(owner, pid_namespace="another")
    assert provably_dead(in_another_namespace, home) == Verdict(
        dead=False, because="it holds its lock file", runs=True
    )
    other.kill()
    for dead in (owner, in_another_namespace):
        assert provably_dead(dead, home) == Verdict(dead=True, because="nobody holds its lock file")


def test_lock_of_another_boot_proves_nothing_even_when_it_is_free(home: Path) -> None:
    ended = Presence(home)
    ended.end()
    assert provably_dead(ended.identity, home).dead
    for boot_id in ("another", ""):
        elsewhere = replace(ended.identity, boot_id=boot_id, pid=gone_pid())
        assert provably_dead(elsewhere, home) == Verdict(
            dead=False, because="it ran under another boot of this or another machine"
        )


@linux
def test_missing_lock_file_proves_nothing_by_itself(home: Path) -> None:
    me = os.getpid()
    assert provably_dead(somebody(home), home) == Verdict(
        dead=False, because=f"pid {me} runs since the same time", runs=True
    )
    assert provably_dead(somebody(home, pid_namespace="another"), home) == Verdict(
        dead=False, because="it ran in another pid namespace"
    )
    assert provably_dead(somebody(home, pid_namespace=""), home) == Verdict(
        dead=False, because="it ran in another pid namespace"
    )


@linux
def test_pid_that_is_gone_proves_death_in_the_same_namespace(home: Path) -> None:
    pid = gone_pid()
    assert provably_dead(somebody(home, pid=pid), home) == Verdict(dead=True, because=f"pid {pid} is gone")
    assert not provably_dead(somebody(home, pid=pid, pid_namespace="another"), home).dead


@linux
def test_pid_that_somebody_else_has_now_proves_death(home: Path) -> None:
    owner = somebody(home, pid=os.getppid(), start_ticks=1)
    assert provably_dead(owner, home) == Verdict(
        dead=True, because=f"pid {os.getppid()} belongs to a process that started at another time"
    )


@linux
def test_other_start_ticks_prove_nothing_across_time_namespaces(home: Path) -> None:
    """The kernel shifts field 22 by the reader's time namespace: one process has several start ticks."""
    owner = somebody(home, time_namespace="another", start_ticks=1)
    assert provably_dead(owner, home) == Verdict(
        dead=False, because=f"pid {os.getpid()} exists, and its start was noted in another time namespace"
    )


def process_table(folder: Path, *, nspid: str, inode: str = "pid:[7]", first: int | None = 25) -> Path:
    """A /proc in which this process shows the given line NSpid."""
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "status").write_text(f"Name:\tpython\nNSpid:\t{nspid}\n")
    (folder / "self" / "ns" / "pid").symlink_to(inode)
    if first is not None:
        (folder / "1").mkdir()
        (folder / "1" / "stat").write_text(f"1 (a (b) c) S {' '.join(['0'] * 18)} {first} 0 0\n")
    return folder


def test_pid_namespace_is_its_inode_and_the_start_of_its_first_process(tmp_path: Path) -> None:
    assert pid_namespace(process_table(tmp_path, nspid=str(os.getpid()))) == "7:25"


@pytest.mark.skipif(sys.platform == "darwin", reason="has no process table")
def test_process_table_of_another_namespace_gives_no_namespace(tmp_path: Path) -> None:
    outer = process_table(tmp_path / "outer", nspid=f"{os.getpid()}\t{os.getpid()}")
    hidden = process_table(tmp_path / "hidden", nspid=str(os.getpid()), first=None)
    assert [pid_namespace(table) for table in (outer, hidden, tmp_path / "none")] == ["", "", ""]


@linux
def test_process_that_the_table_hides_is_not_dead(home: Path, tmp_path: Path) -> None:
    table = process_table(tmp_path / "proc", nspid=str(os.getpid()))
    owner = somebody(home, pid_namespace="7:25")
    assert provably_dead(owner, home, proc_root=table) == Verdict(
        dead=False, because=f"pid {os.getpid()} exists and the process table hides it"
    )


@linux
@pytest.mark.parametrize(
    ("state", "threads", "dead"), [("Z", 1, True), ("X", 0, True), ("Z", 3, False), ("S", 1, False)]
)
def test_process_of_which_only_an_exit_code_is_left_is_dead(
    home: Path, tmp_path: Path, state: str, threads: int, dead: bool
) -> None:
    """A first thread that ended before the others is a zombie in a process that runs."""
    pid = os.getpid()
    table = process_table(tmp_path / "proc", nspid=str(pid))
    (table / str(pid)).mkdir()
    (table / str(pid) / "stat").write_text(
        f"{pid} (a (b) c) {state} {' '.join(['0'] * 16)} {threads} 0 25 0 0\n"
    )
    owner = somebody(home, pid_namespace="7:25", start_ticks=25)
    verdict = provably_dead(owner, home, proc_root=table)
    assert (verdict.dead, verdict.runs) == (dead, not dead)
    assert verdict.because == (
        f"pid {pid} has ended, and its parent has not looked yet" if dead else f"pid {pid} runs since the same time"
    )


def test_lock_file_of_a_dead_owner_stays_for_a_day_after_it_was_found(home: Path, fake_clock: FakeClock) -> None:
    ended = Presence(home, clock=fake_clock)
    ended.end()
    path = lock_file(home, ended.identity.nonce)
    assert sweep(home, clock=fake_clock) == 0
    fake_clock.advance(KEEP_SECONDS - 1)
    assert sweep(home, clock=fake_clock) == 0
    assert provably_dead(ended.identity, home).dead
    fake_clock.advance(2)
    assert sweep(home, clock=fake_clock) == 1
    assert not path.exists()


def test_lock_file_of_another_boot_stays_for_a_month(home: Path, fake_clock: FakeClock) -> None:
    other_boot = fake_clock.elsewhere(home / "other.json", boot_id="another machine's")
    ended = Presence(home, clock=other_boot)
    ended.end()
    sweep(home, clock=fake_clock)
    fake_clock.advance(KEEP_OTHER_BOOTS_SECONDS - 1)
    assert sweep(home, clock=fake_clock) == 0
    fake_clock.advance(2)
    assert sweep(home, clock=fake_clock) == 1


def test_lock_file_of_a_living_owner_is_never_removed(home: Path, fake_clock: FakeClock, child) -> None:
    other = child(
        """
        import sys, gates
        from hermes_state.owners import this_process
        gates.reach("here", this_process(sys.argv[1]).nonce)
        gates.wait("end")
        """,
        home,
    )
    kept = {lock_file(home, other.wait_for("here")), lock_file(home, this_process(home).nonce)}
    for _ in range(3):
        assert sweep(home, clock=fake_clock) == 0
        fake_clock.advance(2 * KEEP_OTHER_BOOTS_SECONDS)
    assert set((home / "owners").iterdir()) == kept
    assert sweep(home / "no such home") == 0


def test_sweep_looks_at_a_bounded_number_of_files(home: Path, fake_clock: FakeClock) -> None:
    for _ in range(6):
        Presence(home, clock=fake_clock).end()
    for _ in range(40):
        sweep(home, clock=fake_clock, limit=2)
    fake_clock.advance(KEEP_SECONDS + 1)
    assert sweep(home, clock=fake_clock, limit=2) == 2
    assert len(list((home / "owners").iterdir())) == 4


def test_identity_says_which_clock_it_lives_by(home: Path, fake_clock: FakeClock) -> None:
    assert this_process(home).boot_id == SYSTEM.domain().boot_id
    fake_clock.reboot(boot_id="the next boot")
    assert this_process(home, clock=fake_clock).boot_id == "the next boot"
