"""`hermes-state outbox drop`: take something back that was not sent."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Take back obligations that nobody has sent.

They are settled as dropped, with the reason, and their payload stays readable for a day. ID is the number in
`hermes outbox list`, or the dedupe id. When one of several cannot be dropped, none is; then they are dropped one by
one, and what a process begins to send meanwhile is refused while those before it stay dropped. `hermes outbox retry ID`
owes a dropped one again, within that day.

What changes on disk: one row of the outbox each. Lock: the write lock, for some milliseconds each, beside whoever uses
the store.
Left alone: what a process is sending now and what is settled, which are refused. A claim whose
sender is gone or past its term is settled as lost first: what may be sent only once is unknown then and stays so, the
rest is dropped.

\b
Example:
  hermes outbox drop 17 --reason "the chat is closed"
  hermes outbox drop 17 18 --reason spam --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command(
    "drop", help=HELP, short_help="Take back obligations that nobody has sent.",
    options_metavar="--reason TEXT [OPTIONS]",
)
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later; at most 4,000 characters.")
@click.option("--dry-run", is_flag=True, help="Say what would be dropped; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, dry_run: bool, yes: bool) -> int:
    from hermes_state.outbox import State
    from hermes_state.outbox.inputs import MOST_REASON, text
    from hermes_state.outbox.people import refuse_end
    from maintenance.commands.outbox.shown import document, find, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text
    from maintenance.plan import Plan, confirm

    text("--reason", reason, most=MOST_REASON, of="")
    with opened(ctx, read_only=True) as store:
        named = [find(store, word) for word in which]
    chosen = list({one.obligation.id: one for one in named}.values())
    for one in chosen:
        if one.sender is None or not one.sender.lost:
            refuse_end(ctx.db, one.obligation)
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
        after = store.outbox.look_at([store.outbox.drop(one.obligation.id, reason=reason) for one in chosen])
    dropped = [one for one in after if one.obligation.state is State.DROPPED]
    if ctx.json:
        print_json({"dry_run": False, "path": ctx.db, "obligations": [document(one) for one in after]})
        return 0
    for one in after:
        if one not in dropped:
            click.echo(safe_text(
                f"{one.obligation.dedupe_id} is {one.obligation.state}: its sender was lost, and nobody knows whether"
                " it went out; it is not sent again."
            ))
    click.echo(f"Dropped {plural(len(dropped), 'obligation')}.")
    return 0
