"""Hosts for tests: a folder of their own, several owners, short waits."""

from __future__ import annotations

from pathlib import Path

from hermes_state.host import Host, Run, Supervisor, Waits, open_host
from hermes_state.host.asking import ask
from hermes_state.host.probe import Asker
from hermes_state.owners import Presence

# Answers come at once, and on a busy machine later; nobody here is silent for long.
SHORT = Waits(identify=20.0, settle=0.0, poll=0.0, rescan=20.0, leave=0.0)


def folder_of(tmp_path: Path) -> Path:
    """Where the host of a test lies."""
    return tmp_path / "state" / "hermes"


class Party:
    """One process of a host, as another one sees it: an owner identity and an open host of its own."""

    def __init__(self, folder: Path, *, asker: Asker = ask, waits: Waits = SHORT) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.presence = Presence(folder)
        self.host: Host = open_host(folder, presence=self.presence, asker=asker, waits=waits)

    def die(self) -> None:
        """What a kill leaves: the locks go, the rows stay."""
        self.presence.end()


def run(home: str, supervisor: Supervisor = Supervisor.NONE, label: str = "") -> Run:
    """A start for one home."""
    return Run(home=home, supervisor=supervisor, label=label)
