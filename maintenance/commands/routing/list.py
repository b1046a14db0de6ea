"""`hermes-state routing list`: which session a chat goes on in, who answers it, and what is not served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.routing import Attention, Route

STATES = ("active", "resuming", "suspended", "expired")

HELP = """List where the chats of a home go on, and what is not served.

Each line has the session key of a chat, its state, the session that it goes on in, the generation of its conversation,
and whose bot answers it: that one or nobody. An entry from before bots were kept names none; the only bot of its
platform and profile answers then. After the chats come the platforms and profiles that a bot was asked for and that
nobody serves: what they are sent is dropped. --json has everything of an entry.

\b
active      the next message goes on in the session
resuming    so it does, and the interrupted turn is taken up again
suspended   somebody stopped it: the next message needs a new session
expired     it was too old and was seen off: the next message needs a new session

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes routing list
  hermes routing list --state suspended --platform telegram --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List where chats go on, and what is not served.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state; may be repeated.")
@click.option("--platform", metavar="NAME", help="Only chats of this platform.")
@click.option("--session", "session_id", metavar="ID", help="Only chats that go on in this session.")
@click.option("--after", metavar="KEY", help="Go on after the page that ended at KEY.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=1000), default=50, show_default=True,
              help="How many chats at most.")
@store_options
def command(
    ctx: Context, *, states: tuple[str, ...], platform: str | None, session_id: str | None, after: str | None,
    limit: int,
) -> None:
    from hermes_state.routing import State
    from hermes_state.store import open_store
    from maintenance.output.documents import print_json

    with open_store(path=ctx.db, read_only=True, clock=ctx.clock) as store:
        found = store.routing.page(
            states=[State(state) for state in states] or None, platform=platform, session_id=session_id, limit=limit,
            after=after,
        )
        attention = store.routing.attention()
    more = found[-1].session_key if len(found) == limit else None
    if ctx.json:
        print_json({
            "path": ctx.db, "routes": [document(one) for one in found], "next_after": more,
            "attention": [needs(one) for one in attention],
        })
        return
    if not found:
        click.echo(f"There is no such chat in {ctx.db}.")
    for one in found:
        click.echo(line(one, ctx))
    for missing in attention:
        click.echo(f"NOT SERVED: {missing.warning} ({missing.dropped} dropped)")
    if more is not None:
        click.echo(f"There may be more: --after '{more}' goes on.", err=True)


def document(one: Route) -> dict[str, Any]:
    """The fields of `--json` for one entry; times are RFC 3339, UTC."""
    from dataclasses import asdict

    from maintenance.output.text import rfc3339

    return {
        "session_key": one.session_key, "home": one.home, "runtime_profile": one.runtime_profile,
        "transport_profile": one.transport_profile, "platform": one.platform, "session_id": one.session_id,
        "state": str(one.state), "state_at": rfc3339(one.state_at), "state_reason": one.state_reason,
        "reset_reason": one.reset_reason, "reset_had_activity": one.reset_had_activity, "fresh": one.fresh,
        "model_override": None if one.model_override is None else dict(one.model_override),
        "generation": one.generation, "version": one.version, "origin": asdict(one.origin),
        "created_at": rfc3339(one.created_at), "updated_at": rfc3339(one.updated_at),
    }


def needs(one: Attention) -> dict[str, Any]:
    """The fields of `--json` for what is not served."""
    from maintenance.output.text import rfc3339

    return {
        "platform": one.platform, "profile": one.profile, "reason": one.reason, "dropped": one.dropped,
        "since_at": rfc3339(one.since_at), "last_at": rfc3339(one.last_at), "served_at": rfc3339(one.served_at),
    }


def line(one: Route, ctx: Context) -> str:
    """One entry in one line."""
    from maintenance.output.text import human_age, safe_text

    answers = f"the bot of {one.transport_profile}" if one.transport_profile else "the only bot of its profile"
    why = f" ({one.state_reason}, {human_age(one.state_at, ctx.clock)})" if one.state_reason else ""
    return safe_text(
        f"{one.session_key}  {one.state}{why}  {one.session_id}  generation {one.generation}  answered by {answers}"
    )
