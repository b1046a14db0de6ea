"""`hermes-state outbox list`: what is owed and what became of it, newest first."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

STATES = ("pending", "claimed", "accepted", "refused", "failed", "unknown", "dropped", "suppressed")

HELP = """List obligations, newest first.

An obligation is a message that the store owes to somebody: a stop, an approval, a final reply, the result of background
work. Each line has its number, its state, what it is, whom it is for and its dedupe id; when it is due, was claimed or
settled; how many attempts failed, and why the last one ended. Without --state all are listed, also what was settled,
for 7 days. `recovered`: its sender was lost before, so it may be sent twice. Of a claimed one it says whether its
sender is gone or until when its term lasts; of one that something precedes in its lane, what it waits behind; of an
unknown one, who was sending it.

\b
pending     owed, and nobody is sending it   claimed     a process is sending it
accepted    the receiver has it              refused     the receiver will never take it
failed      it can never be sent             unknown     nobody knows whether it went out
dropped     it was given up                  suppressed  it was not wanted any more

`hermes outbox show ID` has one whole.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes outbox list
  hermes outbox list --state unknown --state failed --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List obligations, newest first.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state; may be repeated.")
@click.option("--kind", metavar="KIND", help="Only this kind: stop, final, completion, ...")
@click.option("--transport", metavar="NAME", help="Only what this transport is to send.")
@click.option("--lane", metavar="LANE", help="Only what must arrive in order with this lane.")
@click.option("--before", type=click.IntRange(min=1), metavar="ID", help="Go on after the page that ended at ID.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=1000), default=50, show_default=True,
              help="How many at most.")
@store_options
def command(
    ctx: Context, *, states: tuple[str, ...], kind: str | None, transport: str | None, lane: str | None,
    before: int | None, limit: int,
) -> None:
    from hermes_state.outbox import State
    from maintenance.commands.outbox.shown import document, line, opened
    from maintenance.output.documents import print_json

    with opened(ctx, read_only=True) as store:
        found = store.outbox.page(
            states=[State(state) for state in states] or None, kind=kind, transport=transport, lane=lane,
            limit=limit, before=before,
        )
        looked = store.outbox.look_at(found)
    if ctx.json:
        print_json({
            "path": ctx.db, "obligations": [document(one) for one in looked],
            "next_before": found[-1].id if len(found) == limit else None,
        })
        return
    if not found:
        click.echo(f"There is no such obligation in {ctx.db}.")
    for one in looked:
        click.echo(line(one, ctx))
    if len(found) == limit:
        click.echo(f"There may be more: --before {found[-1].id} goes on.", err=True)
