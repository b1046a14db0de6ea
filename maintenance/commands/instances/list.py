"""`hermes-state instances list`: who is registered."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

STATES = ("configured", "enrolled", "revoked", "removed")

HELP = """List gateway instances, the oldest first.

Each with its nickname, how it stands, since when, and who brought it there. Removed ones are listed with --state
removed only.

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
    from hermes_state.instances import State
    from maintenance.commands.instances.shown import document, line, opened
    from maintenance.output.documents import print_json

    with opened(ctx, read_only=True) as store:
        found = store.instances.page(states=[State(state) for state in states] or None, limit=limit, after=after)
    if ctx.json:
        print_json({
            "path": ctx.db, "instances": [document(one) for one in found],
            "next_after": found[-1].number if len(found) == limit else None,
        })
        return
    if not found:
        click.echo(f"No instance like that is registered in {ctx.db}.")
    for one in found:
        click.echo(line(one, ctx))
