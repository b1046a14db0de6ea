"""How an instance is shown, as a document and to people.

Not for: tokens, which only `instances enroll` prints, once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from maintenance.commands.outbox.shown import opened as opened

if TYPE_CHECKING:
    from hermes_state.gateway import Holder
    from hermes_state.instances import Instance
    from hermes_state.tombstones import Tombstone
    from hermes_state.turns.ending import Ends
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


def line(one: Instance, ctx: Context, *, seen: float | None = None) -> str:
    """One instance in one line: what it is called, how it stands, since when, by whom, when it was last seen."""
    from maintenance.output.text import human_time, safe_text

    return safe_text(
        f"{one.instance_id}  {one.nickname!r}  {one.state} since {human_time(one.state_at, ctx.clock)} by"
        f" {one.state_actor}{key(one, ctx)}" + ("" if seen is None else f", last seen {human_time(seen, ctx.clock)}")
    )


def ends_document(instance_id: str, one: Ends) -> dict[str, Any]:
    """The fields of `--json` for what ends with an instance."""
    return {"instance_id": instance_id, "turns": one.turns, "questions": one.questions, "stops": one.stops}


def ends_words(one: Ends) -> str:
    """The same in words after a comma; nothing when nothing ends."""
    from maintenance.output.text import plural

    counted = {"turn": one.turns, "question": one.questions, "stop": one.stops}
    told = [plural(count, what) for what, count in counted.items() if count]
    return f", ends {' and '.join([', '.join(told[:-1]), told[-1]] if told[1:] else told)}" if told else ""


def server(holder: Holder | None) -> dict[str, Any] | None:
    """The fields of `--json` for the server that was started last; None when there never was one."""
    from maintenance.output.text import rfc3339

    if holder is None:
        return None
    owner = holder.owner
    return {
        "epoch": holder.epoch, "standing": str(holder.standing), "host": None if owner is None else owner.host,
        "pid": None if owner is None else owner.pid, "since": rfc3339(holder.since), "because": holder.because,
    }


def server_line(holder: Holder | None, ctx: Context) -> str:
    """Who serves, in one line. Who is connected is not said: only that process knows."""
    from maintenance.output.text import human_time, safe_text

    if holder is None:
        return "No gateway server was ever started on this store."
    if str(holder.standing) == "none":
        return f"No gateway server runs: the last one, epoch {holder.epoch}, let go of the store."
    who = "a process" if holder.owner is None else f"PID {holder.owner.pid} on {holder.owner.host}"
    since = "" if holder.since is None else f" since {human_time(holder.since, ctx.clock)}"
    told = {"running": "runs", "ended": "is gone", "unknown": "may run"}[str(holder.standing)]
    return safe_text(f"Gateway server: {who}{since}, epoch {holder.epoch}; it {told} ({holder.because}).")


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
