"""A start that cannot write into `host.db`, or not read it: what is seen all the same keeps it away."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from hermes_state.errors import CannotOpen, DiskFull, InvalidInput, LockTimeout
from hermes_state.host import (
    Attach,
    Host,
    Reason,
    Refuse,
    Request,
    Seen,
    Start,
    Supervisor,
    Waits,
    exit_code,
    facts_for,
    host_folder,
    open_host,
    start,
    starts,
)
from hermes_state.host.asking import sweep, unlisted
from hermes_state.host.gateway_lock import Outcome, acquire, look
from tests.hermes_state.host.hosts import SHORT, Party, folder_of, run
from tests.support.children import Children

# What one process that starts gateways is told, in three hosts: one with a live owner on a disk that takes nothing, the
# same one with its host.db replaced by no database, and one where nobody runs on the disk that takes nothing.
STARTS = """
import json, os, resource, sys
from pathlib import Path
from hermes_state.host import Run, Waits, start

def told(folder, *homes):
    for home in homes:
        host, entered = start(Run(home=home), folder=folder, waits=waits)
        said.append([
            entered.verdict.outcome, entered.verdict.reason, host is not None, bool(entered.unwritten_because),
            entered.unlisted is not None,
        ])
        if host is not None:
            host.close()
        kept.append(entered)

kept, said = [], []
waits = Waits(identify=20.0, settle=0.0, poll=0.0, rescan=20.0)
owned, empty = Path(sys.argv[1]), Path(sys.argv[2])
files = [owned / f"host.db{end}" for end in ("", "-wal", "-shm")]
for path in files:
    path.rename(f"{path}.kept")
files[0].write_bytes(b"no database at all, but long enough to look at" * 100)
told(owned, "/h/b", "/h/other")
files[0].unlink()
for path in files:
    os.rename(f"{path}.kept", path)
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))  # from here on every write fails, as on a full disk
try:
    told(owned, "/h/b", "/h/other")
    told(empty, "/h/a", "/h/a", "/h/c")
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, most)
print(json.dumps([*said, len(os.listdir(owned / "owners"))]), flush=True)
"""


@pytest.fixture(name="folder")
def host_folder_of_a_test(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


def test_a_live_answer_attaches_and_a_held_lock_refuses_whatever_cannot_be_written(
    folder: Path, tmp_path: Path, child: Children
) -> None:
    """And where nobody runs, starts run without a row, and the second one for a home finds the first."""
    owner = Party(folder)
    member = owner.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a", "/h/b"], multiplex=True)
    empty = tmp_path / "empty" / "hermes"
    open_host(empty).close()
    lock_files = len(os.listdir(folder / "owners"))
    starter = child(STARTS, folder, empty)
    assert starter.wait() == 0, starter.output
    *said, left = json.loads(starter.stdout)
    assert said == [
        # outcome, reason, a host, the ledger was not written, answers without a row
        ["attach", "served_by_other", False, True, False],
        ["refuse_transient", "owner_silent", False, True, False],
        ["attach", "served", True, True, False],
        ["refuse_transient", "not_rescanned", True, True, False],
        ["start", "unknown_owner", False, True, True],
        ["attach", "served_by_other", False, True, False],
        ["start", "unknown_owner", False, True, True],
    ]
    assert left == lock_files  # who starts nothing leaves nothing
    assert member.owns_host
    member.leave(reason="test over")


def test_a_verdict_stands_when_the_ledger_takes_no_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Party(folder), Party(folder), Party(folder)

    def full(*given: object, **named: object) -> int:
        raise DiskFull("No space is left.")

    monkeypatch.setattr(starts, "note", full)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    # It runs, owns the host and says so: an end that cannot be written either would be a silent row that lives.
    assert member is not None and member.owns_host
    assert (entered.start_id, entered.unwritten_because) == (None, "No space is left.")
    assert first.host.note_interrupted(entered, "/h/a", ["s"]) == []
    member.settle(["/h/a"], multiplex=False)
    attached = second.host.enter(run("/h/a"))
    assert isinstance(attached.verdict, Attach) and attached.unwritten_because == "No space is left."
    beside = third.host.enter(run("/h/b"))
    assert isinstance(beside.verdict, Start) and beside.member is not None
    for one in (beside.member, member):
        one.leave(reason="test over")


def test_a_record_that_is_busy_is_not_one_that_cannot_be_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_host(folder).close()

    def busy(self: Host, *given: object, **named: object) -> object:
        raise LockTimeout("Somebody keeps host.db locked.")

    monkeypatch.setattr(Host, "enter", busy)
    host, entered = start(run("/h/a", Supervisor.S6), folder=folder, waits=SHORT)
    assert host is None
    assert isinstance(entered.verdict, Refuse) and entered.verdict.reason is Reason.HOST_BUSY
    assert exit_code(entered.verdict.outcome, Supervisor.S6) == 75
    _host, forced = start(run("/h/a"), folder=folder, waits=SHORT, force=True)
    assert isinstance(forced.verdict, Start) and forced.unlisted is not None
    forced.unlisted.leave()


def test_a_damaged_file_under_a_held_lock_is_no_free_host(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    (folder / "host.db").write_bytes(b"no database at all, but long enough to look at\n" * 100)
    held = acquire(folder).lock
    assert held is not None
    facts = facts_for(Request(home="/h/a"), folder=folder, waits=SHORT)
    assert (facts.seen, facts.others) == (Seen.UNRECORDED, ())
    host, entered = start(run("/h/a"), folder=folder, waits=SHORT)
    assert (host, type(entered.verdict), entered.verdict.reason) == (None, Refuse, Reason.OWNER_SILENT)
    held.release()
    _host, entered = start(run("/h/a"), folder=folder, waits=SHORT)
    assert isinstance(entered.verdict, Start) and entered.unlisted is not None
    assert entered.verdict.evidence[-1].endswith(
        f"Stop all gateways of this user, remove {folder / 'host.db'}, host.db-wal and host.db-shm, and start them"
        " again: nothing in it is needed after that."
    )
    # A run without a row says whom it serves from its first moment on, and goes on saying it.
    assert [said and said.served for _path, said in unlisted(folder, [])] == [{"/h/a"}]
    entered.unlisted.settle(["/h/a", "/h/b/"], multiplex=True)
    _host, attached = start(run("/h/b"), folder=folder, waits=SHORT)
    assert isinstance(attached.verdict, Attach) and attached.verdict.pid == os.getpid()
    entered.unlisted.leave()
    assert unlisted(folder, []) == []


def test_who_runs_without_a_row_is_found_by_starts_that_can_write_again(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    (folder / "host.db").write_bytes(b"")
    (folder / "host.db").write_bytes(b"no database at all, but long enough to look at\n" * 100)
    _host, entered = start(run("/h/a"), folder=folder, waits=SHORT)
    assert entered.unlisted is not None
    (folder / "host.db").unlink()
    party = Party(folder)
    assert party.host.enter(run("/h/a")).verdict.reason is Reason.SERVED_BY_OTHER
    other = party.host.enter(run("/h/b")).member
    assert other is not None and other.owns_host
    other.leave(reason="test over")
    entered.unlisted.leave()
    again = party.host.enter(run("/h/a")).member
    assert again is not None
    again.leave(reason="test over")


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_a_lock_that_cannot_be_opened_asks_whoever_can_be_asked(folder: Path, kind: str) -> None:
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "gateway.lock"
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(folder / "elsewhere")
    else:
        os.mkfifo(path)
    assert (look(folder).outcome, acquire(folder).outcome) == (Outcome.COULD_NOT_OPEN, Outcome.COULD_NOT_OPEN)
    first, second, third = Party(folder), Party(folder), Party(folder)
    one = first.host.enter(run("/h/a"))
    assert one.member is not None and not one.member.owns_host
    assert one.verdict.reason is Reason.UNKNOWN_OWNER and str(path) in one.verdict.evidence[0]
    assert second.host.enter(run("/h/b")).verdict.reason is Reason.NOT_SETTLED
    one.member.settle(["/h/a"], multiplex=False)
    two = second.host.enter(run("/h/b"))
    assert two.member is not None and isinstance(two.verdict, Start) and two.verdict.beside
    assert third.host.enter(run("/h/a")).verdict.reason is Reason.SERVED_BY_OTHER
    for member in (one.member, two.member):
        member.leave(reason="test over")


def test_a_folder_that_cannot_be_made_private_or_does_not_exist_keeps_nobody_from_running(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)

    def read_only(*given: object, **named: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "chmod", read_only)
        with pytest.raises(CannotOpen) as refused:
            open_host(folder)
        assert refused.value.message == (
            f"{folder} has mode 0755 and cannot be made private (Read-only file system)."
        )
        host, entered = start(run("/h/a"), folder=folder, waits=SHORT)
    assert host is None and isinstance(entered.verdict, Start)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # the system knows no home of that one
    with pytest.raises(CannotOpen):
        host_folder(os.environ)
    host, entered = start(run("/h/a"), waits=SHORT)
    assert (host, entered.verdict.reason, entered.unlisted) == (None, Reason.UNKNOWN_OWNER, None)
    assert facts_for(Request(home="/h/a")).seen is Seen.UNKNOWN


def test_sockets_of_the_dead_are_removed_and_those_of_the_living_stay(folder: Path) -> None:
    party = Party(folder)
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    left = folder / "answers" / f"{'d' * 16}.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        folder_of_sockets = os.open(left.parent, os.O_RDONLY)
        line.bind(f"/proc/self/fd/{folder_of_sockets}/{left.name}")
        os.close(folder_of_sockets)
        line.listen()
        assert sweep(folder) == 0
    assert sweep(folder) == 1  # as a kill leaves it
    assert [path.suffix for path in left.parent.iterdir()] == [".sock"]
    assert party.host.probe.is_us(member.identity)
    member.leave(reason="test over")


def test_one_process_starts_one_gateway_at_a_time(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    member = first.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=False)
    refused: list[str] = []

    def meanwhile(pid: int, number: int) -> None:
        with pytest.raises(InvalidInput) as told:
            second.host.enter(run("/h/b"))
        refused.append(told.value.message)

    second.host.probe.waits = Waits(identify=20.0, leave=0.0)
    second.host.enter(run("/h/a"), replace=True, signal=meanwhile)
    assert refused == [f"This process is starting a gateway already ({folder / 'host.db'})."]
    member.leave(reason="test over")


def test_a_folder_that_is_gone_under_a_run_takes_no_start_with_it(folder: Path) -> None:
    open_host(folder).close()
    shutil.rmtree(folder)
    facts = facts_for(Request(home="/h/a"), folder=folder, waits=SHORT)
    assert (facts.seen, facts.because) == (
        Seen.NOBODY, (f"there is no {folder / 'gateway.lock'}", "no record names an owner")
    )
