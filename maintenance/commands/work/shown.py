"""What goes on beside conversations, as documents and to people.

Invariant: a document has every state and no secret; a credential is shown by its name, never by a digest. Not for:
changing anything: gateways do, when they start and as they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.work.background import Delegation, Process

if TYPE_CHECKING:
    from hermes_state.work.credentials.records import Credential
    from hermes_state.work.lane_rows import Item
    from hermes_state.work.lanes import Waiting
    from hermes_state.work.login_rows import Attempt
    from hermes_state.work.seals import Reply
    from hermes_state.work.targets import DeadTarget
    from maintenance.context import Context


def background(one: Process | Delegation) -> dict[str, Any]:
    """A process or a delegation, without what it printed or came to."""
    from maintenance.commands.outbox.shown import process
    from maintenance.output.text import rfc3339

    return {
        "key": one.key, "sort": "process" if isinstance(one, Process) else "delegation", "state": str(one.state),
        "headline": one.headline, "session_id": one.session_id, "session_key": one.session_key,
        "told_by": str(one.tell.mode), "transport": one.tell.transport, "target": one.tell.target,
        "delivery": None if one.delivery is None else str(one.delivery), "error": one.error,
        "watched_by": process(one.owner), "result_chars": one.result_chars,
        "registered_at": rfc3339(one.registered_at), "state_at": rfc3339(one.state_at),
        "ended_at": rfc3339(one.ended_at), "delivery_at": rfc3339(one.delivery_at),
    }


def lane(one: Waiting) -> dict[str, Any]:
    """A lane in which something waits."""
    from maintenance.output.text import rfc3339

    return {"lane": one.lane, "follow_ups": one.follow_ups, "mirrors": one.mirrors, "since": rfc3339(one.since)}


def item(one: Item) -> dict[str, Any]:
    """What waits in a lane."""
    from maintenance.output.text import rfc3339

    return {
        "no": one.no, "key": one.key, "kind": str(one.kind), "label": one.label, "content": one.content,
        "came_at": rfc3339(one.came_at),
    }


def reply(one: Reply) -> dict[str, Any]:
    """A reply, by what is known of it; its texts are in the outbox."""
    from maintenance.output.text import rfc3339

    return {
        "turn_id": one.turn_id, "state": str(one.state), "transport": one.transport, "target": one.target,
        "message_id": one.message_id, "streamed": one.streamed, "finals": one.finals,
        "opened_at": rfc3339(one.opened_at), "sealed_at": rfc3339(one.sealed_at),
        "changed_at": rfc3339(one.changed_at),
    }


def login(one: Attempt) -> dict[str, Any]:
    """A sign-in."""
    from maintenance.commands.outbox.shown import process
    from maintenance.output.text import rfc3339

    return {
        "attempt_id": one.attempt_id, "state": str(one.state), "platform": one.platform, "chat_id": one.chat_id,
        "user_id": one.user_id, "waited_for_by": process(one.owner),
        "reason": None if one.reason is None else str(one.reason), "overrides_kept": one.kept,
        "started_at": rfc3339(one.started_at), "expires_at": rfc3339(one.expires_at),
        "transferred_at": rfc3339(one.transferred_at), "ended_at": rfc3339(one.ended_at),
    }


def dead(one: DeadTarget) -> dict[str, Any]:
    """A chat that a bot cannot reach."""
    from maintenance.output.text import rfc3339

    return {
        "platform": one.platform, "transport_profile": one.transport_profile, "chat_id": one.chat_id,
        "failure": str(one.failure), "reason": one.reason, "failures": one.failures, "since": rfc3339(one.since),
        "last": rfc3339(one.last),
    }


def credential(one: Credential) -> dict[str, Any]:
    """A credential that cannot be used now."""
    from maintenance.output.text import rfc3339

    return {
        "provider": one.provider, "id": one.id, "label": one.label, "status": str(one.status),
        "rotation": str(one.rotation), "error": one.error_message or one.error_reason or one.error_code,
        "status_at": rfc3339(one.status_at), "reset_at": rfc3339(one.reset_at),
        "rotation_at": rfc3339(one.rotation_at),
    }


def lines(found: dict[str, list[Any]], ctx: Context) -> list[str]:
    """What `work list` shows people, a line each."""
    from maintenance.output.text import human_age, plural, safe_text

    def since(at: float) -> str:
        return human_age(at, ctx.clock)

    said: list[str] = []
    for one in found["background"]:
        told = f", its end is {one.delivery}" if one.delivery is not None else ""
        said.append(f"{one.key}  {one.headline} ({since(one.state_at)}{told})")
    for one in found["lanes"]:
        mirrors = f" and {plural(one.mirrors, 'mirror')} of cron" if one.mirrors else ""
        said.append(f"lane/{one.lane}  {plural(one.follow_ups, 'message')}{mirrors} waiting since {since(one.since)}")
    for one in found["replies"]:
        said.append(f"reply/{one.turn_id}  {one.state} to {one.transport} {one.target} ({since(one.changed_at)})")
    for one in found["logins"]:
        said.append(f"login/{one.attempt_id}  {one.state} in {one.platform} {one.chat_id} ({since(one.started_at)})")
    for one in found["dead_targets"]:
        said.append(
            f"dead: {one.platform} {one.chat_id} for the bot of {one.transport_profile}: {one.failure} {one.reason}"
            f" ({since(one.since)})"
        )
    for one in found["credentials"]:
        rotation = "" if one.rotation == "whole" else f", its token {_ROTATION[str(one.rotation)]}"
        said.append(f"credential: {one.provider} {one.id} is {one.status}{rotation}")
    return [safe_text(text).rstrip() for text in said]


_ROTATION = {"rotating": "is being exchanged", "grant_may_be_lost": "may be lost: log in again"}
