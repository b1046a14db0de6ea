"""`hermes-state outbox retry`: send one now."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Make an obligation due now, or owe a settled one again.

One that waits for its next attempt is due at once. Of one that is settled (unknown, dropped, failed, even accepted) a
new obligation with an id of its own is recorded, which names the old one: what is settled never changes. Its receiver
cannot know that it repeats the old one, so look there first. While the new one is not settled, repeating this makes no
second.

It is sent by the program whose transport it is for, when that looks next: nothing is sent here. ID is the number in
`hermes outbox list`, or the dedupe id; what was settled more than a day ago has no payload any more and is refused.

What changes on disk: one row of the outbox. Lock: the write lock, for some milliseconds, beside whoever uses the store.
Left alone: what a process is sending now, which is refused.

\b
Example:
  hermes outbox retry 17
  hermes outbox retry 17 --dry-run

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("retry", help=HELP, short_help="Make an obligation due now, or owe a settled one again.")
@click.argument("which", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, which: str, dry_run: bool, yes: bool) -> None:
    from hermes_state.outbox.people import refuse_retry
    from maintenance.commands.outbox.shown import document, find, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    with opened(ctx, read_only=dry_run) as store:
        before = find(store, which)
        if dry_run:
            refuse_retry(ctx.db, before)
        after = before if dry_run else store.outbox.retry(before.id)
    if ctx.json:
        print_json({"dry_run": dry_run, "path": ctx.db, "before": document(before), "obligation": document(after)})
        return
    if dry_run:
        how = "would be due now" if before.settled_at is None else "would be owed again under an id of its own"
        click.echo(safe_text(f"{before.dedupe_id} is {before.state}; it {how}."))
    elif after.id == before.id:
        click.echo(safe_text(f"{after.dedupe_id} is due now."))
    else:
        click.echo(
            safe_text(f"{before.dedupe_id} stays {before.state}; {after.dedupe_id} (number {after.id}) is owed.")
        )
