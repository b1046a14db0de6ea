"""Whose command a `hermes` call is, and how hermes-agent gets the ones that are not ours.

Invariant: a command that is not ours reaches hermes-agent with its arguments unchanged and keeps its exit status, by
exec, before anything of ours that could open a store has been imported. The decision reads the arguments, and for
`cron`, which both programs have, the mark in the header of the home's state.db: whose store, whose jobs.

Not for: `hermes-state`, which never hands anything on. Importing hermes-agent's command tree to ask it for its verbs
was rejected: it costs a second and loads a second SQLite library into our process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from maintenance.verbs import GROUPS, verbs_of

PEER_DISTRIBUTION = "hermes-agent"
_VALUE_OPTIONS = ("--home", "--profile", "-p", "--db")
_FLAGS = ("--json",)
_HELP = ("-h", "--help")

# A group of both programs: it is ours where the store is ours.
SHARED = "cron"
# What the header of a native store carries at byte 68; equal to `hermes_state.engine.APPLICATION_ID`, which may not be
# imported here.
_MARK, _MARK_AT = b"HST1", 68

# Options of hermes-agent's own `doctor`. Ours only looks, so a call that names one of these means the other doctor.
PEER_DOCTOR_OPTIONS = ("--fix", "--ack")


class Peer(NamedTuple):
    """hermes-agent in this environment."""

    version: str  # its version
    module: str  # the module of its `hermes` script
    function: str  # the function of that module


def _words(arguments: Sequence[str]) -> Iterator[str]:
    """The words of a call without our options and their values; any other option is the last one."""
    rest = iter(arguments)
    for argument in rest:
        if argument in _VALUE_OPTIONS:
            next(rest, None)
        elif argument in _FLAGS or argument.startswith(tuple(f"{name}=" for name in _VALUE_OPTIONS if len(name) > 2)):
            continue
        else:
            yield argument
            if argument.startswith("-"):
                return


def _values(arguments: Sequence[str]) -> dict[str, str]:
    """The values of our options, wherever they stand; a later one wins."""
    found: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        if name in _VALUE_OPTIONS:
            found["--profile" if name == "-p" else name] = value if equals else next(rest, "")
    return found


def has_native_store(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the store that a call means is ours. What cannot be read is ours too: our command says why it cannot."""
    from pathlib import Path

    from hermes_state.errors import StateError
    from hermes_state.location import STORE_NAME, home_folder

    said = _values(arguments)
    try:
        path = Path(said["--db"]).expanduser() if "--db" in said else (
            home_folder(said.get("--home"), said.get("--profile"), environ)[0] / STORE_NAME
        )
        with path.open("rb") as file:
            header = file.read(_MARK_AT + len(_MARK))
    except FileNotFoundError:
        return False
    except (OSError, StateError):
        return True
    return header[_MARK_AT:] == _MARK


def is_ours(arguments: Sequence[str]) -> bool:
    """Whether a `hermes` call is one of our verbs. `hermes sessions` and its help are ours, `hermes` alone is not."""
    words = _words(arguments)
    first = next(words, None)
    if first is None or first.startswith("-"):
        return False
    if first == SHARED:
        return has_native_store(arguments, os.environ)
    if first in GROUPS:
        second = next(words, None)
        return second is None or second in _HELP or second in verbs_of(first)
    if first == "doctor" and any(word.partition("=")[0] in PEER_DOCTOR_OPTIONS for word in arguments):
        return False
    return first in verbs_of(None)


def ours_without_peer(arguments: Sequence[str]) -> bool:
    """Calls that we answer when hermes-agent is not installed: help, version, and wrong calls of our own verbs."""
    first = next(_words(arguments), None)
    return first is None or first in (*_HELP, "--version", *GROUPS, *verbs_of(None))


def find_peer() -> Peer | None:
    """hermes-agent's `hermes` entry point in this environment, or None."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(PEER_DISTRIBUTION)
    except PackageNotFoundError:
        return None
    for entry in found.entry_points:
        if entry.group == "console_scripts" and entry.name == "hermes":
            return Peer(found.version, entry.module, entry.attr or "main")
    return None


def peer_command(peer: Peer, arguments: Sequence[str], *, script: str) -> list[str]:
    """The command that runs hermes-agent.

    Its module's name stands right before its verb, because hermes-agent finds its own gateways by `hermes_cli.main
    gateway` in their command lines. -P keeps the current folder off the path, as for any installed script.
    """
    return [
        sys.executable, "-P", "-m", "maintenance.run_peer", script or "hermes", peer.function, peer.module, *arguments
    ]


def hand_over(peer: Peer, arguments: Sequence[str]) -> int:
    """Become hermes-agent. Returns only where a process cannot be replaced (Windows), with the exit status."""
    command = peer_command(peer, arguments, script=sys.argv[0])
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(sys.executable, command)


def no_peer_problem(arguments: Sequence[str]) -> dict[str, Any]:
    """What to say about a command that nobody here knows."""
    from maintenance.output.problems import usage_problem

    first = next(_words(arguments), "")
    record = usage_problem(f"`hermes {first}` is not a command of hermes-state.", "`hermes --help` lists the commands.")
    return record | {"why": "Such commands belong to hermes-agent, which is not installed in this environment."}


def note(arguments: Sequence[str]) -> str:
    """For the help of a group: what is handed on. Empty for anything else, and without hermes-agent."""
    words = list(_words(arguments))
    if not words or words[0] not in GROUPS or not (len(words) == 1 or words[1] in _HELP):
        return ""
    peer = find_peer()
    if peer is None:
        return ""
    if words[0] == SHARED:
        return f"In a home whose state.db is hermes-agent's, `hermes cron` is handed to hermes-agent {peer.version}."
    return f"Any other verb of `hermes {words[0]}` is handed to hermes-agent {peer.version}, unchanged."
