"""A forked child is not its parent: it keeps neither lock nor voice, and writes nothing for the run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hermes_state.host import Seen
from tests.hermes_state.host.hosts import Party, folder_of, run
from tests.support.children import Children


def test_a_forked_child_keeps_neither_the_lock_nor_the_voice_of_its_parent(tmp_path: Path, child: Children) -> None:
    folder = folder_of(tmp_path)
    owner = child(FORKS, folder)
    survivor = int(owner.wait_for("forked"))
    viewer = Party(folder)
    assert viewer.host.host_gateway().answer is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    os.kill(survivor, 0)  # the child lives on
    viewer.host.probe.forget()
    view = viewer.host.host_gateway()
    assert (view.seen, view.owner) == (Seen.NOBODY, None)
    entered = viewer.host.enter(run("/h/b"))
    assert entered.member is not None and entered.member.owns_host
    entered.member.leave(reason="test over")
    os.kill(survivor, signal.SIGKILL)


FORKS = """
import os, sys, time
from pathlib import Path
import gates
from hermes_state.host import Run, open_host
host = open_host(Path(sys.argv[1]))
member = host.enter(Run(home="/h/a")).member
member.settle(["/h/a", "/h/b"], multiplex=True)
pid = os.fork()
if pid == 0:
    time.sleep(600)
    os._exit(0)
gates.reach("forked", str(pid))
gates.wait("never", 600)
"""


def test_a_forked_child_writes_nothing_for_its_parents_run(tmp_path: Path, child: Children) -> None:
    folder = folder_of(tmp_path)
    owner = child(FORKED_WRITES, folder)
    assert owner.wait_for("done").split() == ["ForkedConnection"] * 4
    (alive,) = [one for one in Party(folder).host.gateways() if one.may_live]
    assert (alive.gateway.state, alive.gateway.served) == ("starting", frozenset({"/h/a"}))


FORKED_WRITES = """
import os, sys
from pathlib import Path
import gates
from hermes_state.errors import StateError
from hermes_state.host import Run, RunState, open_host
host = open_host(Path(sys.argv[1]))
member = host.enter(Run(home="/h/a")).member
member.settle(["/h/a"], multiplex=True)
there, here = os.pipe()
pid = os.fork()
if pid == 0:
    said = []
    for act in (
        lambda: member.settle(["/h/b"], multiplex=True), lambda: member.move(RunState.DRAINING), member.beat,
        lambda: member.leave(reason="of the child"),
    ):
        try:
            act()
            said.append("wrote")
        except StateError as error:
            said.append(type(error).__name__)
    os.write(here, " ".join(said).encode())
    os._exit(0)
os.waitpid(pid, 0)
gates.reach("done", os.read(there, 1000).decode())
gates.wait("never", 600)
"""
