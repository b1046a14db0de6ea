"""Which container or PID namespace a process lives in, when that is not ours.

Invariant: None means "the same as ours, or not told apart"; a name is only given on evidence (a container id in the
control group path, or a PID namespace below the process table's).

Not for: security decisions but one: a process known to be in another container may see the store under other parents.
Rejected: asking a container runtime, which needs its socket and its rights.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_LONG_ID = re.compile(r"(?:^|[/:-])(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)")
_NAMED = re.compile(r"/(?:lxc\.payload\.|lxc/|machine\.slice/machine-)(?P<name>[^/]+?)(?:\.scope)?(?=/|$)")
_ENGINES = (("libpod", "podman"), ("cri-containerd", "containerd"), ("crio", "cri-o"), ("docker", "docker"))


def container_id(cgroup: str) -> str | None:
    """`docker 0123456789ab` from /proc/PID/cgroup; None when no line names a container."""
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        found = _LONG_ID.search(path)
        if found:
            engine = next((name for word, name in _ENGINES if word in path), None)
            engine = engine or ("kubernetes" if "kubepods" in path else "container")
            return f"{engine} {found['id'][:12]}"
        named = _NAMED.search(path)
        if named:
            return f"{'lxc' if 'lxc' in path else 'machine'} {named['name']}"
    return None


def _cgroup(proc_root: Path, pid: int | str) -> str:
    try:
        return (proc_root / str(pid) / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""


def container_of(proc_root: Path, pid: int, pid_depth: int) -> str | None:
    """The container of a process, when it differs from ours. `pid_depth`: PID namespaces below the process table's."""
    theirs = container_id(_cgroup(proc_root, pid))
    if theirs is not None and theirs != container_id(_cgroup(proc_root, "self")):
        return theirs
    if pid_depth == 0:
        return None
    try:
        namespace = os.readlink(proc_root / str(pid) / "ns" / "pid")
        if namespace == os.readlink(proc_root / "self" / "ns" / "pid"):
            return None
    except OSError:
        return "a child PID namespace"
    return f"PID namespace {namespace.removeprefix('pid:[').removesuffix(']')}"
