"""`hermes-state work list`: what goes on beside conversations, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.store import Store

HELP = """List what goes on beside conversations and what waits.

In this order: background processes and delegations that run, or whose end nobody has taken; lanes of chats in which
messages wait for a turn; replies that are not sealed, or whose final is not with its platform; sign-ins that have not
ended; chats that a bot cannot reach; credentials that cannot be used now. The first word of a line is what `hermes work
show` takes. No token, code or link is in the store.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything; gateways settle this when they start and as they go.

\b
Example:
  hermes work list
  hermes work list --limit 200 --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List what goes on beside conversations and what waits.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=1000), default=50, show_default=True,
              help="How many of each kind at most.")
@store_options
def command(ctx: Context, *, limit: int) -> None:
    from hermes_state.store import open_store
    from maintenance.commands.work import shown
    from maintenance.output.documents import print_json

    with open_store(path=ctx.db, read_only=True, clock=ctx.clock) as store:
        found = _found(store, limit)
    if ctx.json:
        print_json({
            "path": ctx.db,
            "background": [shown.background(one) for one in found["background"]],
            "lanes": [shown.lane(one) for one in found["lanes"]],
            "replies": [shown.reply(one) for one in found["replies"]],
            "logins": [shown.login(one) for one in found["logins"]],
            "dead_targets": [shown.dead(one) for one in found["dead_targets"]],
            "credentials": [shown.credential(one) for one in found["credentials"]],
        })
        return
    if not any(found.values()):
        click.echo(f"Nothing goes on beside the conversations of {ctx.db}, and nothing waits.")
    for text in shown.lines(found, ctx):
        click.echo(text)
    if full := [name.replace("_", " ") for name, some in found.items() if len(some) == limit]:
        click.echo(f"There may be more: {', '.join(full)} (see --limit).", err=True)


def _found(store: Store, limit: int) -> dict[str, list[Any]]:
    work = store.work
    running = [
        *work.processes.page(states=["registered", "running"], limit=limit),
        *work.delegations.page(states=["running", "stalling", "finalizing"], limit=limit),
    ]
    left = {one.no: one for one in (*running, *work.notices.undelivered(limit=limit))}
    return {
        "background": [left[no] for no in sorted(left, reverse=True)][:limit],
        "lanes": list(work.lanes.lanes(limit=limit)),
        "replies": list(work.streams.page(limit=limit)),
        "logins": [one for one in work.logins.page(limit=limit) if one.ended_at is None],
        "dead_targets": list(work.targets.page(limit=limit)),
        "credentials": [
            one for one in work.credentials.all() if str(one.status) != "ok" or str(one.rotation) != "whole"
        ][:limit],
    }
