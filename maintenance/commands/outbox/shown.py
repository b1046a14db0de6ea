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


def find(store: Store, word: str) -> Obligation:
    """The one with that number, or else with that dedupe id. Raises `NotFound`."""
    from hermes_state.errors import NotFound

    if word.isascii() and word.isdigit():
        try:
            return store.outbox.get(int(word))
        except NotFound:
            pass  # a dedupe id may be a number too
    return store.outbox.get(word)


def document(one: Obligation) -> dict[str, Any]:
    """The fields of `--json` for one obligation; times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    return {
        "id": one.id, "dedupe_id": one.dedupe_id, "kind": one.kind, "transport": one.transport, "target": one.target,
        "lane": one.lane, "batch": one.batch, "priority": one.priority, "policy": str(one.policy),
        "state": str(one.state), "attempts": one.attempts, "most_attempts": one.schedule.attempts,
        "recoveries": one.recoveries, "refunds": one.refunds, "payload_bytes": one.payload_bytes,
        "blanked": one.blanked,
        "made_at": rfc3339(one.made_at), "due_at": rfc3339(one.due_at), "claimed_at": rfc3339(one.claimed_at),
        "settled_at": rfc3339(one.settled_at), "owner": owner(one), "retry_of": one.retry_of,
        "verdict": None if one.verdict is None else {**one.verdict, "at": rfc3339(one.verdict.get("at"))},
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
    from hermes_state.outbox import State
    from maintenance.output.text import human_age, safe_text

    refunds = f", {one.refunds} refunded" if one.refunds else ""
    spent = f"{one.attempts} of {one.schedule.attempts} attempts failed{refunds}"
    why = (one.verdict or {}).get("why", "")
    # What is unknown is not sent again: its reason says what happened.
    marks = " (recovered)" if one.recovered and one.state is not State.UNKNOWN else ""
    if one.settled_at is not None:
        when = f"settled {human_age(one.settled_at, ctx.clock)}"
    elif one.state is State.CLAIMED:
        when = f"claimed {human_age(one.claimed_at, ctx.clock)}"
    else:
        when = f"due {human_age(one.due_at, ctx.clock)}"
    return safe_text(
        f"{one.id:>6}  {one.state:<10} {one.kind:<10} {one.transport} {one.target}  {one.dedupe_id}{marks}"
        f"  {when}, {spent}  {why}"
    ).rstrip()


MEANING = {
    "pending": "owed, and nobody is sending it",
    "claimed": "a process is sending it",
    "accepted": "the receiver has it",
    "refused": "the receiver will never take it",
    "failed": "it can never be sent",
    "unknown": "nobody knows whether it went out; it is not sent again by itself",
    "dropped": "it was given up",
    "suppressed": "it was not wanted any more",
}


def facts(one: Obligation, ctx: Context) -> Iterator[tuple[str, str]]:
    """What people are shown of one obligation, without its payload."""
    from maintenance.output.text import human_age, human_time, plural

    def when(at: float) -> str:
        return f"{human_time(at, ctx.clock)} ({human_age(at, ctx.clock)})"

    yield "number", str(one.id)
    yield "dedupe id", one.dedupe_id
    yield "state", f"{one.state}: {MEANING[one.state]}"
    yield "policy", str(one.policy)
    yield "kind", one.kind
    yield "transport", one.transport
    for name, value in (("target", one.target), ("lane", one.lane), ("batch", one.batch)):
        if value:
            yield name, value
    if one.priority:
        yield "priority", str(one.priority)
    yield "attempts", f"{one.attempts} of {one.schedule.attempts} failed"
    if one.refunds:
        yield "refunds", f"not admitted {plural(one.refunds, 'time')}, which costs no attempt"
    if one.recoveries:
        yield "sender lost", f"{plural(one.recoveries, 'time')}: it may have been sent then"
    if one.retry_of is not None:
        yield "repeats", f"number {one.retry_of}"
    yield "made", when(one.made_at)
    if one.settled_at is None:
        yield "due", when(one.due_at)
    sender = owner(one)
    if sender is not None:
        yield "sender", sender
    if one.claimed_at is not None:
        yield "claimed", when(one.claimed_at)
    if one.settled_at is not None:
        yield "settled", when(one.settled_at)


def verdict_lines(one: Obligation, ctx: Context) -> Iterator[str]:
    """How the last claim ended, its result as indented JSON."""
    from maintenance.output.text import human_time, safe_text

    if one.verdict is None:
        return
    said = dict(one.verdict)
    what, at, why = said.pop("verdict", "?"), said.pop("at", None), said.pop("why", None)
    yield safe_text(f"Last verdict: {what}, {human_time(at, ctx.clock)}" + (f": {why}" if why else ""))
    result = said.pop("result", None)
    if result:
        yield from json_lines(result)


def json_lines(value: Any) -> Iterator[str]:
    """JSON as people read it, in the characters that it has; what would disturb a terminal is replaced."""
    import json

    from maintenance.output.text import safe_text

    for text in json.dumps(value, indent=2, ensure_ascii=False).split("\n"):
        yield safe_text(text)
