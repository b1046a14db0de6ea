"""Holders as lines that a person can act on.

Invariant: every holder is printed as `PID N (command)` with its user, its role and how to stop that kind, and what a
scan could not see is always said. Not for: finding holders (`lockowners`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockowners import Holder, Process, Scan


MAX_COMMAND_WIDTH = 100


def how_to_stop(process: Process, *, profile: str | None = None, own_uid: int | None = None) -> str:
    """One instruction for the kind of program that holds a store; `own_uid` None or 0 may stop anybody's."""
    if process.container:
        return f"stop it inside its container ({process.container})"
    if own_uid not in (None, 0, process.uid):
        return f"ask {process.user} to stop it"
    if process.role == "gateway":
        chosen = f" --profile {profile}" if profile else ""
        return f"stop it with `hermes{chosen} gateway stop`"
    if process.role == "cron":
        return "let its job end, or stop the scheduler that starts it"
    if process.role == "desktop":
        return "quit the desktop app"
    if process.role == "cli":
        return "exit that chat session"
    return "stop that program"


def holder_line(holder: Holder, *, profile: str | None = None, own_uid: int | None = None) -> str:
    """`PID 4242 (hermes gateway run), user max, gateway: stop it with …`."""
    process = holder.process
    command = printable(process.command)
    stale = ", still using files that were deleted" if holder.stale else ""
    role = process.role if process.role != "unknown" else "unknown program"
    stop = how_to_stop(process, profile=profile, own_uid=own_uid)
    if holder.stale:
        stop = f"after `hermes-state doctor`, {stop}"
    return f"PID {process.pid} ({command}), user {process.user}, {role}{stale}: {stop}"


def holder_lines(scan: Scan, *, profile: str | None = None) -> tuple[str, ...]:
    """A line for every holder, then what was not visible."""
    own_uid = os.geteuid() if hasattr(os, "geteuid") else None
    lines = [holder_line(holder, profile=profile, own_uid=own_uid) for holder in scan.holders]
    lines.extend(not_visible_lines(scan))
    return tuple(lines)


def not_visible_lines(scan: Scan) -> tuple[str, ...]:
    """What the scan could not look into, and the namespaces it cannot see across."""
    lines = [f"not visible: {hidden.describe()}" for hidden in scan.hidden]
    if scan.method == "none":
        lines.append("not visible: this system offers no way to see which processes have a file open")
    if scan.namespace_note:
        lines.append(f"not visible: {scan.namespace_note}")
    return tuple(lines)


def printable(command: str) -> str:
    """A command line on one line, without control characters, cut at a readable width."""
    text = "".join(character if character.isprintable() else " " for character in command)
    return text if len(text) <= MAX_COMMAND_WIDTH else text[: MAX_COMMAND_WIDTH - 1] + "…"
