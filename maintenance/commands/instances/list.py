"""`hermes-state instances list`: who is registered."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

STATES = ("configured", "enrolled", "revoked", "removed")

HELP = """List gateway instances, the oldest first.

Each with its nickname, how it stands, since when, who brought it there, and when it was last seen, some minutes coarse.
Removed ones are listed with --state removed only. The last line says which gateway server has the store, since when,
and whether its process runs; who is connected to it is in that process's memory and not known here.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes instances list
  hermes instances list --state revoked --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List gateway instances, the oldest first.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state; may be repeated.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="NUMBER",
              help="Go on after the page that ended at NUMBER.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=1000), default=100, show_default=True,
              help="How many at most.")
@store_options
def command(ctx: Context, *, states: tuple[str, ...], after: int, limit: int) -> None:
    from hermes_state.instances import State, last_seen
    from maintenance.commands.instances.shown import document, line, opened, server, server_line
    from maintenance.output.documents import print_json
    from maintenance.output.text import rfc3339

    with opened(ctx, read_only=True) as store:
        found = store.instances.page(states=[State(state) for state in states] or None, limit=limit, after=after)
        holder = store.gateway.holder()
        with store.core.reader() as reader:
            seen = {one.instance_id: last_seen.read(reader, one.instance_id) for one in found}
    if ctx.json:
        print_json({
            "path": ctx.db,
            "instances": [document(one) | {"last_seen_at": rfc3339(seen[one.instance_id])} for one in found],
            "server": server(holder), "next_after": found[-1].number if len(found) == limit else None,
        })
        return
    if not found:
        like = " like that" if states or after else ""
        click.echo(f"No instance{like} is registered in {ctx.db}; `hermes-state instances enroll --help` says how.")
    for one in found:
        click.echo(line(one, ctx, seen=seen[one.instance_id]))
    if len(found) == limit:
        click.echo(f"There may be more: go on with --after {found[-1].number}.", err=True)
    click.echo(server_line(holder, ctx))
