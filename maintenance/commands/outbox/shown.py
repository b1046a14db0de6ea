"""How an obligation is shown, as a document and to people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.outbox import Obligation
    from hermes_state.outbox.looking import Looked
    from hermes_state.store import Store
    from maintenance.context import Context


@contextmanager
def opened(ctx: Context, *, read_only: bool) -> Iterator[Store]:
    """The native store of a verb. A file of hermes-agent is refused with the command that adopts it."""
    from hermes_state.store import open_store

    with open_store(path=ctx.db, read_only=read_only, clock=ctx.clock) as store:
        yield store


def find(store: Store, word: str) -> Looked:
    """The one with that number, or else with that dedupe id. Raises `NotFound`."""
    from hermes_state.errors import NotFound

    if word.isascii() and word.isdigit():
        try:
            return store.outbox.look(int(word))
        except NotFound:
            pass  # a dedupe id may be a number too
    return store.outbox.look(word)


def document(looked: Looked) -> dict[str, Any]:
    """The fields of `--json` for one obligation; times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    one, sender = looked.obligation, looked.sender
    said = dict(one.verdict or {})
    if "sender" in said:
        said["sender"] = process(said["sender"])
    return {
        "id": one.id, "dedupe_id": one.dedupe_id, "kind": one.kind, "transport": one.transport, "target": one.target,
        "lane": one.lane, "batch": one.batch, "priority": one.priority, "policy": str(one.policy),
        "state": str(one.state), "attempts": one.attempts, "most_attempts": one.schedule.attempts,
        "recoveries": one.recoveries, "refunds": one.refunds, "payload_bytes": one.payload_bytes,
        "blanked": one.blanked, "unreadable": list(one.unreadable),
        "made_at": rfc3339(one.made_at), "due_at": rfc3339(one.due_at), "claimed_at": rfc3339(one.claimed_at),
        "settled_at": rfc3339(one.settled_at), "owner": process(one.owner),
        "sender_gone": None if sender is None else sender.gone or None,
        "sender_lost": sender is not None and sender.lost,
        "term_until": None if sender is None else rfc3339(sender.until),
        "waits_behind": None if looked.behind is None else looked.behind.id,
        "retry_of": one.retry_of, "repeated_by": None if looked.repeated_by is None else looked.repeated_by.id,
        "verdict": None if one.verdict is None else {**said, "at": rfc3339(one.verdict.get("at"))},
    }


def process(owner: Any) -> str | None:
    """Who sends or sent it, for people."""
    from hermes_state.errors import InvalidInput
    from hermes_state.owners import OwnerIdentity

    if owner is None:
        return None
    try:
        return str(OwnerIdentity.from_json(owner))
    except (InvalidInput, TypeError):
        return "a process that this version cannot read"


def sender_words(looked: Looked, ctx: Context) -> str:
    """What is known of the one that is sending it; empty when nobody is."""
    from hermes_state.errors import InvalidInput
    from hermes_state.owners import OwnerIdentity
    from maintenance.output.text import human_age

    sender = looked.sender
    if sender is None:
        return ""
    if sender.gone:
        try:
            pid = f"pid {OwnerIdentity.from_json(looked.obligation.owner or '').pid}: "
        except InvalidInput:
            pid = ""
        return f"its sender is gone ({pid}{sender.gone})"
    if sender.lost:
        return f"its term ended {human_age(sender.until, ctx.clock)}" if sender.until else "its sender is silent"
    return f"its term ends {human_age(sender.until, ctx.clock)}" if sender.until else "its sender has another clock"


def behind_words(looked: Looked, ctx: Context) -> str:
    """What it waits behind; empty when nothing is before it."""
    from maintenance.output.text import human_age

    first = looked.behind
    if first is None:
        return ""
    state = f"{first.state}, cannot be read" if not first.sendable else str(first.state)
    return f"waits behind number {first.id} ({state}, due {human_age(first.due_at, ctx.clock)})"


def line(looked: Looked, ctx: Context) -> str:
    """One obligation in one line."""
    from hermes_state.outbox import State
    from maintenance.output.text import human_age, safe_text

    one = looked.obligation
    refunds = f", {one.refunds} refunded" if one.refunds else ""
    spent = f"{one.attempts} of {one.schedule.attempts} attempts failed{refunds}"
    why = (one.verdict or {}).get("why", "")
    # What is unknown is not sent again: its reason says what happened.
    marks = " (recovered)" if one.recovered and one.state is not State.UNKNOWN else ""
    if one.settled_at is not None:
        when = f"settled {human_age(one.settled_at, ctx.clock)}"
    elif one.state is State.CLAIMED:
        when = f"claimed {human_age(one.claimed_at, ctx.clock)}, {sender_words(looked, ctx)}"
    elif looked.behind is not None:
        when = behind_words(looked, ctx)
    else:
        when = f"due {human_age(one.due_at, ctx.clock)}"
    if not one.sendable:
        when += ", cannot be read"
    sender = process((one.verdict or {}).get("sender")) if one.state is State.UNKNOWN else None
    if sender is not None:
        why += f" (its sender was {sender})"
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


def facts(looked: Looked, ctx: Context) -> Iterator[tuple[str, str]]:
    """What people are shown of one obligation, without its payload."""
    from maintenance.output.text import human_age, human_time, plural

    one = looked.obligation

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
    if looked.repeated_by is not None:
        yield "repeated", f"by number {looked.repeated_by.id}, which is {looked.repeated_by.state}"
    if one.unreadable:
        yield "unreadable", f"{', '.join(one.unreadable)}{'' if one.sendable else ': it is given to nobody'}"
    yield "made", when(one.made_at)
    if one.settled_at is None:
        yield "due", when(one.due_at)
    if looked.behind is not None:
        yield "waits", behind_words(looked, ctx).removeprefix("waits ")
    sender, words = process(one.owner), sender_words(looked, ctx)
    if sender is not None:
        yield "sender", sender
    if words:
        yield "term", _term(looked, words, ctx)
    if one.claimed_at is not None:
        yield "claimed", when(one.claimed_at)
    if one.settled_at is not None:
        yield "settled", when(one.settled_at)


def _term(looked: Looked, words: str, ctx: Context) -> str:
    """What is known of a sender, and what follows."""
    from maintenance.output.text import human_time

    sender = looked.sender
    assert sender is not None
    until = f", {human_time(sender.until, ctx.clock)}" if sender.until and not sender.gone else ""
    after = "; the next claim settles it, as retry and drop do" if sender.lost else ""
    return f"{words}{until}{after}"


def verdict_lines(one: Obligation, ctx: Context) -> Iterator[str]:
    """How the last claim ended, its result as indented JSON."""
    from maintenance.output.text import human_time, safe_text

    if one.verdict is None:
        return
    said = dict(one.verdict)
    what, at, why = said.pop("verdict", "?"), said.pop("at", None), said.pop("why", None)
    yield safe_text(f"Last verdict: {what}, {human_time(at, ctx.clock)}" + (f": {why}" if why else ""))
    if "sender" in said:
        yield safe_text(f"Its sender was {process(said['sender'])}.")
    result = said.pop("result", None)
    if result:
        yield from json_lines(result)


def json_lines(value: Any) -> Iterator[str]:
    """JSON as people read it, in the characters that it has; what would disturb a terminal is replaced."""
    import json

    from maintenance.output.text import safe_text

    for text in json.dumps(value, indent=2, ensure_ascii=False).split("\n"):
        yield safe_text(text)
