"""How an obligation is shown, as a document and to people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.outbox import Obligation
    from hermes_state.store import Store
    from maintenance.context import Context


@contextmanager
def opened(ctx: Context, *, read_only: bool) -> Iterator[Store]:
    """The native store of a verb. A file of hermes-agent is refused with the command that adopts it."""
    from hermes_state.store import open_store

    with open_store(path=ctx.db, read_only=read_only, clock=ctx.clock) as store:
        yield store


def key_of(word: str) -> int | str:
    """A number, or a dedupe id."""
    return int(word) if word.isascii() and word.isdigit() else word


def document(one: Obligation) -> dict[str, Any]:
    """The fields of `--json` for one obligation; times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    return {
        "id": one.id, "dedupe_id": one.dedupe_id, "kind": one.kind, "transport": one.transport, "target": one.target,
        "lane": one.lane, "batch": one.batch, "priority": one.priority, "policy": str(one.policy),
        "state": str(one.state), "attempts": one.attempts, "most_attempts": one.schedule.attempts,
        "recoveries": one.recoveries, "refunds": one.refunds, "payload_bytes": one.payload_bytes,
        "made_at": rfc3339(one.made_at), "due_at": rfc3339(one.due_at), "claimed_at": rfc3339(one.claimed_at),
        "settled_at": rfc3339(one.settled_at), "owner": owner(one), "retry_of": one.retry_of, "verdict": one.verdict,
    }


def owner(one: Obligation) -> str | None:
    """Who is sending it, for people."""
    from hermes_state.errors import InvalidInput
    from hermes_state.owners import OwnerIdentity

    if one.owner is None:
        return None
    try:
        return str(OwnerIdentity.from_json(one.owner))
    except InvalidInput:
        return "a process that this version cannot read"


def line(one: Obligation, ctx: Context) -> str:
    """One obligation in one line."""
    from maintenance.output.text import human_time, safe_text

    spent = f"{one.attempts}/{one.schedule.attempts}" + (f" +{one.refunds} refunded" if one.refunds else "")
    why = (one.verdict or {}).get("why", "")
    marks = " (recovered)" if one.recovered else ""
    return safe_text(
        f"{one.id:>6}  {one.state:<10} {one.kind:<10} {one.transport} {one.target}  {one.dedupe_id}{marks}"
        f"  attempts {spent}  {human_time(one.settled_at or one.due_at, ctx.clock)}  {why}"
    ).rstrip()
