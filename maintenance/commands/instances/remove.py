"""`hermes-state instances remove`: take an instance off the list."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Remove gateway instances that are revoked, or were never enrolled.

Their nicknames are free at once. Their ids are not: a tombstone keeps each out until its horizon has passed and no
thread is bound to it any more, so that an old thread never means another machine. One that was never enrolled leaves
none.

What changes on disk: a row, a tombstone and an entry in the ledger of deletions each. Lock: the write lock, for some
milliseconds each, beside whoever uses the store. Stops that nobody can be told any more are cancelled.
Left alone: threads that are bound to them, and instances that are not revoked, which are refused.

\b
Example:
  hermes instances remove laptop --reason "sold"
  hermes instances remove laptop --reason "sold" --days 365 --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("remove", help=HELP, short_help="Remove gateway instances that are revoked, or were never enrolled.")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later.")
@click.option("--days", type=click.FloatRange(min=0, max=36_500), default=90.0, show_default=True,
              help="How long their ids stay out at least.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, days: float, dry_run: bool, yes: bool) -> int:
    from maintenance.commands.instances.shown import actor, document, ends_document, ends_words, line, opened, tombstone
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text
    from maintenance.plan import Plan, confirm

    with opened(ctx, read_only=True) as store:
        chosen = [store.instances.preview_removal(name) for name in which]
        bound = {one.instance_id: store.instances.bound_count(one.instance_id) for one in chosen}
        ends = {one.instance_id: store.turns.ends_with(one.instance_id, for_good=True) for one in chosen}
    ending = [ends_document(name, one) for name, one in ends.items()]
    plan = Plan(
        title=f"{plural(len(chosen), 'instance')} of {ctx.db} to remove",
        lines=tuple(
            line(one, ctx) + (f", {plural(bound[one.instance_id], 'thread')} bound" if bound[one.instance_id] else "")
            + ends_words(ends[one.instance_id])
            for one in chosen
        ),
        facts={
            "path": ctx.db, "instances": [document(one) for one in chosen], "ends": ending, "already_done": [],
            "tombstones": [],
        },
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if not confirm(plan, yes=yes, question="Remove them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        done = [
            store.instances.remove(
                one.instance_id, actor=actor("remove"), reason=reason, horizon_seconds=days * 86_400
            )
            for one in chosen
        ]
    if ctx.json:
        print_json({
            "dry_run": False, "path": ctx.db, "instances": [document(one) for one in chosen], "ends": ending,
            "already_done": [one.instance_id for one in done if not one.changed],
            "tombstones": [tombstone(one.tombstone) for one in done if one.tombstone is not None],
        })
        return 0
    for one in done:
        after = "; its id is free" if one.tombstone is None else "; its id stays out, see `instances tombstones`"
        click.echo(safe_text(f"{one.instance_id} is removed{after}." if one.changed
                             else f"{one.instance_id} was removed before."))
    return 0
