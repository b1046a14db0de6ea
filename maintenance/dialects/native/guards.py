"""Which sessions of a native store somebody is at work in.

Invariant: the same as the library's deletions, and it fails closed. A lease that is named after a session (`turn:ID`,
`compaction:ID`, `write:ID`) counts until it is free, ran out on a clock that we share,
or its owner is provably dead, and so does a compaction that runs; a stream counts until its writer is provably dead. An
owner that cannot be read is alive.

Not for: taking leases over (the library does, with a fence). Wall time is never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes_state.clock import Clock, clock_from_environment
from hermes_state.errors import InvalidInput
from hermes_state.owners import OwnerIdentity, Verdict, provably_dead
from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.native.compactions import has_compactions

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.leases.states import Standing


def find_guards(reader: Reader, ids: Sequence[str], clock: Clock | None = None) -> dict[str, str]:
    """The protected ones among `ids`, each with the reason in words."""
    clock = clock or clock_from_environment()
    guards: dict[str, str] = {}
    leases = _live_leases(reader, clock)
    if leases:
        for session_id in ids:
            owner = leases.get(session_id)
            if owner is not None:
                guards[session_id] = f"somebody is at work in it (lease of {owner})"
    for session_id, owner in _open_streams(reader, ids, clock):
        guards.setdefault(session_id, f"a message of it is being received (by {owner})")
    for session_id, owner in _running_compactions(reader, ids, clock):
        guards.setdefault(session_id, f"it is being compacted (by {owner})")
    return guards


def owner_of(text: str | None) -> OwnerIdentity | None:
    """The identity in a row, None when it cannot be read."""
    try:
        return None if text is None else OwnerIdentity.from_json(text)
    except InvalidInput:
        return None


def judge(reader: Reader, owner: OwnerIdentity | None, clock: Clock) -> Verdict:
    """Whether an owner is provably dead."""
    if owner is None:
        return Verdict(dead=False, because="its identity cannot be read")
    return provably_dead(owner, reader.path.parent, clock=clock)


def _live_leases(reader: Reader, clock: Clock) -> dict[str, str]:
    from hermes_state.conversation.removal_steps import GUARDING_LEASES
    from hermes_state.leases import rows
    from hermes_state.leases.states import Standing, standing

    found: dict[str, str] = {}
    for (name,) in reader.rows("SELECT name FROM leases WHERE owner IS NOT NULL"):
        kind, _colon, session_id = str(name).partition(":")
        if kind not in GUARDING_LEASES or not session_id:
            continue
        row = rows.read(reader, name)
        owner = None if row is None else row.identity
        seen = standing(
            row, now=clock.boottime(), domain=clock.domain(), sighting=None,
            judge=lambda owner=owner: judge(reader, owner, clock),  # type: ignore[misc]
        )
        if seen in (Standing.HELD, Standing.WATCHED):
            shown = "an unreadable owner" if owner is None else str(owner)
            found[session_id] = shown
    return found


def _open_streams(reader: Reader, ids: Sequence[str], clock: Clock) -> list[tuple[str, str]]:
    found = []
    if reader.row("SELECT 1 FROM streams LIMIT 1") is None:
        return []
    for part in chunks(ids):
        rows = reader.rows(
            "SELECT s.id, t.owner FROM streams AS t JOIN sessions AS s ON s.no = t.session_no"
            f" WHERE s.id IN {key_list(len(part))}",
            [key_bytes(key) for key in part],
        )
        for session_id, text in rows:
            owner = owner_of(text)
            if not judge(reader, owner, clock).dead:
                found.append((str(session_id), "an unreadable owner" if owner is None else str(owner)))
    return found


def running_compactions(reader: Reader, clock: Clock) -> list[tuple[str, str, Standing]]:
    """Session id, owner in words, and how a contender sees it, of each compaction that runs or whose end nobody wrote.
    """
    from hermes_state.compaction.generations.makers import as_lease
    from hermes_state.compaction.generations.rows import all_running
    from hermes_state.leases.states import standing

    if not has_compactions(reader):
        return []
    found = []
    for one in all_running(reader):
        owner = one.owner
        seen = standing(
            as_lease(one), now=clock.boottime(), domain=clock.domain(), sighting=None,
            judge=lambda owner=owner: judge(reader, owner, clock),  # type: ignore[misc]
        )
        (session_id,) = reader.rows("SELECT id FROM sessions WHERE no = ?", (one.session_no,))[0]
        found.append((str(session_id), "an unreadable owner" if owner is None else str(owner), seen))
    return found


def _running_compactions(reader: Reader, ids: Sequence[str], clock: Clock) -> list[tuple[str, str]]:
    from hermes_state.leases.states import Standing

    wanted = set(ids)
    return [
        (session_id, owner) for session_id, owner, seen in running_compactions(reader, clock)
        if session_id in wanted and seen in (Standing.HELD, Standing.WATCHED)
    ]
