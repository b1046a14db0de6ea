"""`hermes-state outbox retry`: send one now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.outbox import Obligation
    from hermes_state.outbox.looking import Looked

HELP = """Make an obligation due now, or owe a settled one again.

One that waits for its next attempt is due at once. Of one that is settled (unknown, dropped, failed, even accepted) a
new obligation with an id of its own is recorded, which names the old one: what is settled never changes. Its receiver
cannot know that it repeats the old one, so look there first. While the new one is not settled, repeating this makes no
second.

It is sent by the program whose transport it is for, when that looks next: nothing is sent here. ID is the number in
`hermes outbox list`, or the dedupe id; what was settled more than a day ago has no payload any more and is refused.

What changes on disk: one row of the outbox. Lock: the write lock, for some milliseconds, beside whoever uses the store.
Left alone: what a process is sending now, which is refused. A claim whose sender is gone or past its term is settled
as lost first: what may be sent only once is unknown then, and owed again.

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
    from dataclasses import replace

    from hermes_state.outbox import State
    from hermes_state.outbox.people import refuse_retry
    from maintenance.commands.outbox.shown import behind_words, document, find, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    with opened(ctx, read_only=dry_run) as store:
        before = find(store, which)
        one = before.obligation
        if dry_run:
            # What repeats it is what would be sent; a claim that lost its sender is settled first.
            again = before.repeated_by or one
            after = before if again is one else store.outbox.look(again.id)
            lost = after.sender is not None and after.sender.lost and again is one
            refuse_retry(ctx.db, replace(again, state=State.PENDING) if lost else again)
        else:
            after = store.outbox.look(store.outbox.retry(one.id).id)
            one = store.outbox.get(one.id)
    if ctx.json:
        print_json({"dry_run": dry_run, "path": ctx.db, "before": document(before), "obligation": document(after)})
        return
    now = after.obligation
    behind = behind_words(after, ctx)
    if dry_run:
        told = _would(before, now)
    elif now.id == one.id:
        told = f"{now.dedupe_id} is due now."
        if before.sender is not None:
            told = f"{now.dedupe_id} was being sent by a process that is gone or late; it is due now, marked recovered."
    else:
        told = f"{one.dedupe_id} {'stays' if before.sender is None else 'is'} {one.state}; {now.dedupe_id} (number"
        told += f" {now.id}) is owed."
    click.echo(safe_text(f"{told} It {behind}." if behind else told))


def _would(before: Looked, after: Obligation) -> str:
    """What asking without --dry-run would do."""
    from hermes_state.outbox import Policy

    one = before.obligation
    if after.id != one.id:
        return (
            f"{one.dedupe_id} is {one.state}; {after.dedupe_id} (number {after.id}) repeats it already and is"
            f" {after.state}; that one would be due now."
        )
    if one.settled_at is not None:
        return f"{one.dedupe_id} is {one.state}; it would be owed again under an id of its own."
    if before.sender is None:
        return f"{one.dedupe_id} is {one.state}; it would be due now."
    lost = f"{one.dedupe_id} is {one.state} by a process that is gone or late; it would"
    if one.policy is Policy.AT_MOST_ONCE:
        return f"{lost} be unknown, and be owed again under an id of its own."
    return f"{lost} be due now, marked recovered."
