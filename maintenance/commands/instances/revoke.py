"""`hermes-state instances revoke`: keep an instance out."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Keep gateway instances out: their credentials and tokens end now, also for a server that starts later.

A server that runs on the store refuses the next connect, and sends away who is connected within about a second. Turns
that run fail, open questions are cancelled: nobody could end them any more. Enrolling the instance again lets it in
again.

What changes on disk: a row each, and those of its turns and questions. Lock: the write lock, for some milliseconds
each, beside whoever uses the store.
Left alone: their nicknames, which stay taken, the threads that are bound to them, and stops, which are sent if an
instance is enrolled again.

\b
Example:
  hermes instances revoke laptop --reason "it was stolen"
  hermes instances revoke laptop desktop --reason "moved out" --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("revoke", help=HELP, short_help="Keep gateway instances out: credentials and tokens end now.")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later.")
@click.option("--dry-run", is_flag=True, help="Say what would be revoked; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, dry_run: bool, yes: bool) -> int:
    from hermes_state.instances import Event
    from maintenance.commands.instances.shown import actor, document, ends_document, ends_words, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural
    from maintenance.plan import Plan, confirm

    with opened(ctx, read_only=True) as store:
        chosen = [one for name in which if (one := store.instances.preview(name, Event.REVOKE)) is not None]
        ends = {one.instance_id: store.turns.ends_with(one.instance_id, for_good=False) for one in chosen}
    ending = [ends_document(name, one) for name, one in ends.items()]
    plan = Plan(
        title=f"{plural(len(chosen), 'instance')} of {ctx.db} to revoke",
        lines=tuple(line(one, ctx) + ends_words(ends[one.instance_id]) for one in chosen),
        facts={"path": ctx.db, "instances": [document(one) for one in chosen], "ends": ending, "already_done": []},
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if not confirm(plan, yes=yes, question="Revoke them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        done = [store.instances.revoke(one.instance_id, actor=actor("revoke"), reason=reason) for one in chosen]
    if ctx.json:
        print_json({
            "dry_run": False, "path": ctx.db, "instances": [document(one.instance) for one in done], "ends": ending,
            "already_done": [one.instance.instance_id for one in done if not one.changed],
        })
    else:
        for revoked in done:
            click.echo(line(revoked.instance, ctx))
    return 0
