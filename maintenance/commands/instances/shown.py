"""How an instance is shown, as a document and to people.

Not for: tokens, which only `instances enroll` prints, once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from maintenance.commands.outbox.shown import opened as opened

if TYPE_CHECKING:
    from hermes_state.instances import Instance
    from hermes_state.tombstones import Tombstone
    from maintenance.context import Context


def actor(verb: str) -> str:
    """Who does it, as the rows keep it."""
    return f"hermes-state instances {verb}, PID {os.getpid()}"


def document(one: Instance) -> dict[str, Any]:
    """The fields of `--json` for one instance; times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    return {
        "instance_id": one.instance_id, "number": one.number, "nickname": one.nickname,
        "connector_url": one.connector_url, "state": str(one.state), "state_at": rfc3339(one.state_at),
        "state_actor": one.state_actor, "state_reason": one.state_reason, "created_at": rfc3339(one.created_at),
        "enrolled_at": rfc3339(one.enrolled_at), "removed_at": rfc3339(one.removed_at),
        "credential_issued_at": rfc3339(one.credential_issued_at),
        "enrollment_expires_at": rfc3339(one.enrollment_expires_at),
    }


def line(one: Instance, ctx: Context) -> str:
    """One instance in one line: what it is called, how it stands, since when, by whom."""
    from maintenance.output.text import human_time, safe_text

    return safe_text(
        f"{one.instance_id}  {one.nickname!r}  {one.state} since {human_time(one.state_at, ctx.clock)} by"
        f" {one.state_actor}{key(one, ctx)}"
    )


def key(one: Instance, ctx: Context) -> str:
    """What lets it in, in words after a comma; nothing where the state says it."""
    if one.enrollment_expires_at is not None and one.enrollment_expires_at >= ctx.clock.now():
        return ", a token is pending"
    return ", no credential" if str(one.state) == "enrolled" and one.credential_issued_at is None else ""


def tombstone(one: Tombstone | None) -> dict[str, Any] | None:
    """The fields of `--json` for a tombstone."""
    from maintenance.output.text import rfc3339

    if one is None:
        return None
    return {
        "instance_id": one.key, "made_at": rfc3339(one.made_at), "horizon_at": rfc3339(one.horizon_at),
        "actor": one.actor, "reason": one.reason, "references": one.references,
    }


def tombstone_line(one: Tombstone, ctx: Context) -> str:
    """One tombstone in one line: who made it, and what keeps it."""
    from maintenance.output.text import human_time, plural, safe_text

    keeps = f"until {human_time(one.horizon_at, ctx.clock)}"
    if one.references:
        keeps += f" and while {plural(one.references, 'thread')} {'is' if one.references == 1 else 'are'} bound to it"
    return safe_text(
        f"{one.key}  removed {human_time(one.made_at, ctx.clock)} by {one.actor} ({one.reason}); kept {keeps}"
    )
