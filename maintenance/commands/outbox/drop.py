"""`hermes-state outbox drop`: take something back that was not sent."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Take back obligations that nobody has sent.

They are settled as dropped, with the reason, and their payload stays readable for a day. ID is the number in
`hermes outbox list`, or the dedupe id. When one of several cannot be dropped, none is. `hermes outbox retry ID` owes a
dropped one again, within that day.

What changes on disk: one row of the outbox each. Lock: the write lock, for some milliseconds each, beside whoever uses
the store.
Left alone: what a process is sending now and what is settled, which are refused.

\b
Example:
  hermes outbox drop 17 --reason "the chat is closed"
  hermes outbox drop 17 18 --reason spam --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("drop", help=HELP, short_help="Take back obligations that nobody has sent.")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later; at most 4,000 characters.")
@click.option("--dry-run", is_flag=True, help="Say what would be dropped; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, dry_run: bool, yes: bool) -> int:
    from hermes_state.outbox.inputs import MOST_REASON, text
    from hermes_state.outbox.people import refuse_end
    from maintenance.commands.outbox.shown import document, find, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural
    from maintenance.plan import Plan, confirm

    text("--reason", reason, most=MOST_REASON, of="")
    with opened(ctx, read_only=True) as store:
        named = [find(store, word) for word in which]
    chosen = list({one.id: one for one in named}.values())
    for one in chosen:
        refuse_end(ctx.db, one)
    facts = {"path": ctx.db, "obligations": [document(one) for one in chosen]}
    plan = Plan(
        title=f"{plural(len(chosen), 'obligation')} of {ctx.db} to drop", lines=tuple(line(one, ctx) for one in chosen),
        facts=facts,
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if not confirm(plan, yes=yes, question="Drop them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        dropped = [store.outbox.drop(one.id, reason=reason) for one in chosen]
    if ctx.json:
        print_json({"dry_run": False, "path": ctx.db, "obligations": [document(one) for one in dropped]})
    else:
        click.echo(f"Dropped {plural(len(dropped), 'obligation')}.")
    return 0
