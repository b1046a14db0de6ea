"""Stale code is found and said with how to start each again (T2.11, R55)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_state.host import Run, Supervisor
from hermes_state.host.code import sha_on_disk
from tests.hermes_state.host.hosts import Party, folder_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.com")


def git(folder: Path, *words: str) -> str:
    ran = subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(name="checkout")
def git_checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def test_the_commit_is_read_of_branches_packed_detached_and_worktrees(checkout: Path, tmp_path: Path) -> None:
    sha = git(checkout, "rev-parse", "HEAD")
    assert sha_on_disk(checkout) == sha
    git(checkout, "pack-refs", "--all")
    assert sha_on_disk(checkout) == sha
    git(checkout, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    newer = commit(tmp_path / "side")
    assert (sha_on_disk(tmp_path / "side"), sha_on_disk(checkout)) == (newer, sha)
    git(checkout, "checkout", "-q", "--detach")
    assert sha_on_disk(checkout) == sha


def test_what_cannot_be_read_is_unknown(tmp_path: Path, checkout: Path) -> None:
    assert sha_on_disk(tmp_path / "nothing") is None
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/../../secret\n")
    assert sha_on_disk(checkout) is None


def test_t2_11_survivors_with_old_code_are_listed_each_with_its_restart(tmp_path: Path, checkout: Path) -> None:
    old = git(checkout, "rev-parse", "HEAD")
    cases = {
        "systemd": (Supervisor.SYSTEMD, "hermes gateway", old), "s6": (Supervisor.S6, "/run/service/hermes", old),
        "launchd": (Supervisor.LAUNCHD, "ai.hermes", old), "bare": (Supervisor.NONE, "", old),
        "silent": (Supervisor.NONE, "", None), "external": (Supervisor.EXTERNAL, "", old),
    }
    parties = {name: Party(folder_of(tmp_path)) for name in (*cases, "new")}
    new = commit(checkout)
    members = []
    for name, party in parties.items():
        supervisor, label, sha = cases.get(name, (Supervisor.NONE, "", new))
        entered = party.host.enter(
            Run(
                home=f"/h/{name}", supervisor=supervisor, label=label, code_root=str(checkout), code_sha=sha,
                command="hermes gateway run",
            ), force=True,
        )
        assert entered.member is not None
        members.append(entered.member)
    found = {Path(one.gateway.home).name: one for one in parties["new"].host.stale_code()}
    pid = parties["new"].presence.identity.pid
    uid = found["launchd"].gateway.uid
    manual = f"restart manually: kill -TERM {pid}, then: hermes gateway run"
    assert {name: (one.how, one.by_hand) for name, one in found.items()} == {
        "systemd": ("systemctl --user restart 'hermes gateway'", False),
        "s6": ("s6-svc -r /run/service/hermes", False),
        "launchd": (f"launchctl kickstart -k gui/{uid}/ai.hermes", False),
        "bare": (manual, True), "silent": (manual, True),
        "external": (f"kill -TERM {pid}; its supervisor starts it again", False),
    }
    assert {(one.running_sha, one.disk_sha) for one in found.values()} == {(old, new), (None, new)}
    for member in members:
        member.leave(reason="test over")
