"""Which live runs execute other code than lies on disk, and how a person starts each again.

Invariant: the commit on disk is read from git's own files at the moment of the question; nothing is run, and what
cannot be read is unknown, never "the same". A run without a supervisor is said to be restarted by hand.

Not for: restarting anybody. Versions were rejected as the measure: two commits of one version differ.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hermes_state.host.exits import Supervisor
from hermes_state.host.living import Judged
from hermes_state.host.records import Gateway
from hermes_state.shell_words import shell_word

_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, kw_only=True)
class StaleRun:
    """A live run whose code is not what lies on disk."""

    gateway: Gateway
    running_sha: str | None  # None: it did not say
    disk_sha: str | None  # None: it cannot be read
    how: str  # how a person starts it again; drains first where the supervisor sends SIGTERM
    by_hand: bool  # nobody starts it again by itself


def sha_on_disk(root: Path | str) -> str | None:
    """The commit that a checkout is at; None when that cannot be read."""
    folder = _git_folder(Path(root))
    if folder is None:
        return None
    head = _read(folder / "HEAD")
    if head is None:
        return None
    if not head.startswith("ref:"):
        return head if _SHA.fullmatch(head) else None
    ref = head.removeprefix("ref:").strip()
    if not ref.startswith("refs/") or ".." in ref:
        return None
    common = _read(folder / "commondir")
    shared = folder if common is None else Path(os.path.normpath(folder / common))
    for place in (folder, shared):
        said = _read(place / ref)
        if said is not None and _SHA.fullmatch(said):
            return said
    for line in (_read(shared / "packed-refs") or "").splitlines():
        sha, _, name = line.partition(" ")
        if name == ref and _SHA.fullmatch(sha):
            return sha
    return None


def stale_runs(judged: list[Judged]) -> list[StaleRun]:
    """The runs that may live and execute other code than their checkout has now, or did not say which."""
    found = []
    for one in judged:
        run = one.gateway
        if not one.may_live or run.code_root is None:
            continue
        disk = sha_on_disk(run.code_root)
        if disk is None or run.code_sha != disk:
            how, by_hand = restart_words(run)
            found.append(StaleRun(gateway=run, running_sha=run.code_sha, disk_sha=disk, how=how, by_hand=by_hand))
    return found


def restart_words(run: Gateway) -> tuple[str, bool]:
    """How to start a run again, and whether that is by hand."""
    label = shell_word(run.label) if run.label else ""
    if run.supervisor is Supervisor.SYSTEMD and label:
        return f"systemctl --user restart {label}", False
    if run.supervisor is Supervisor.S6 and label:
        return f"s6-svc -r {label}", False
    if run.supervisor is Supervisor.LAUNCHD and label:
        return f"launchctl kickstart -k gui/{run.uid}/{label}", False
    pid = "?" if run.identity is None else run.identity.pid
    if run.supervisor is Supervisor.NONE:
        again = f", then: {run.command}" if run.command else ", then start it as before"
        return f"restart manually: kill -TERM {pid}{again}", True
    return f"kill -TERM {pid}; its supervisor starts it again", False


def stop_words(run: Gateway) -> str:
    """How to stop a run so that nobody starts it again; by the supervisor's own words where its name is known."""
    label = shell_word(run.label) if run.label else ""
    if run.supervisor is Supervisor.SYSTEMD and label:
        return f"systemctl --user disable --now {label}"
    if run.supervisor is Supervisor.S6 and label:
        return f"touch {shell_word(f'{run.label}/down')} && s6-svc -d {label}"
    if run.supervisor is Supervisor.LAUNCHD and label:
        return f"launchctl disable gui/{run.uid}/{label} && launchctl bootout gui/{run.uid}/{label}"
    pid = "?" if run.identity is None else run.identity.pid
    if run.supervisor is Supervisor.NONE:
        return f"kill -TERM {pid}"
    return f"have its supervisor ({run.supervisor}) stop it for good; it is PID {pid}"


def _git_folder(root: Path) -> Path | None:
    git = root / ".git"
    if git.is_dir():
        return git
    said = _read(git)  # of a worktree: a file that names the folder
    if said is None or not said.startswith("gitdir:"):
        return None
    return Path(os.path.normpath(root / said.removeprefix("gitdir:").strip()))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
