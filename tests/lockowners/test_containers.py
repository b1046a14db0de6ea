"""Container names from control group paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockowners.containers import container_id, container_of

ID = "0123456789ab" + "c" * 52


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"0::/system.slice/docker-{ID}.scope", "docker 0123456789ab"),
        (f"12:pids:/docker/{ID}\n0::/", "docker 0123456789ab"),
        (f"0::/user.slice/user-1000.slice/libpod-{ID}.scope/container", "podman 0123456789ab"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", "containerd 0123456789ab"),
        (f"0::/kubepods/burstable/pod1/{ID}", "kubernetes 0123456789ab"),
        ("0::/lxc.payload.web1/init.scope", "lxc web1"),
        ("9:x:/lxc/web2", "lxc web2"),
        ("0::/machine.slice/machine-debian.scope", "machine debian"),
        ("0::/user.slice/user-1000.slice/session-2.scope", None),
        ("0::/", None),
        ("", None),
    ],
)
def test_container_is_named_on_evidence_only(cgroup: str, expected: str | None) -> None:
    assert container_id(cgroup) == expected


def canned(folder: Path, ours: str, theirs: str) -> Path:
    for name, text in (("self", ours), ("7", theirs)):
        (folder / name).mkdir()
        (folder / name / "cgroup").write_text(text)
    return folder


def test_container_equal_to_ours_is_not_named(tmp_path: Path) -> None:
    root = canned(tmp_path, f"0::/docker/{ID}", f"0::/docker/{ID}")
    assert container_of(root, 7, 0) is None


def test_container_that_differs_is_named(tmp_path: Path) -> None:
    assert container_of(canned(tmp_path, "0::/", f"0::/docker/{ID}"), 7, 1) == "docker 0123456789ab"


def test_child_namespace_without_a_container_is_named_by_its_number(tmp_path: Path) -> None:
    root = canned(tmp_path, "0::/", "0::/")
    assert container_of(root, 7, 1) == "a child PID namespace"
    for name, namespace in (("self", "pid:[1]"), ("7", "pid:[4026532281]")):
        (root / name / "ns").mkdir()
        (root / name / "ns" / "pid").symlink_to(namespace)
    assert container_of(root, 7, 1) == "PID namespace 4026532281"
    assert container_of(root, 7, 0) is None
