"""`hermes-state outbox stats`: how many of each kind and state."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Count obligations by kind and state.

Says what is overdue (due now and not sent; with every transport up it is sent within moments), and from when on ids of
settled obligations are remembered: one that was made before is refused as too old. What waits behind something of its
lane is counted apart, and so is what a sender had that is gone. Settled ones are remembered for 7
days after their verdict. `hermes outbox list --state pending` shows what is owed.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes outbox stats

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("stats", help=HELP, short_help="Count obligations by kind and state.")
@store_options
def command(ctx: Context) -> None:
    from maintenance.commands.outbox.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_age, human_time, plural, rfc3339, safe_text

    with opened(ctx, read_only=True) as store:
        counts = store.outbox.counts()
    if ctx.json:
        print_json({
            "path": ctx.db, "by_state": dict(counts.by_state),
            "by_kind": {kind: dict(states) for kind, states in counts.by_kind.items()}, "overdue": counts.overdue,
            "blocked": counts.blocked, "left": counts.left, "due_ahead": counts.due_ahead,
            "oldest_due_at": rfc3339(counts.oldest_due_at),
            "remembered_from": rfc3339(counts.remembered_from) if counts.remembered_from else None,
        })
        return
    if not counts.by_kind:
        click.echo(f"Nothing was ever owed in {ctx.db}.")
        return
    for kind, states in sorted(counts.by_kind.items()):
        click.echo(safe_text(f"{kind}: " + ", ".join(f"{many} {state}" for state, many in sorted(states.items()))))
    if counts.overdue:
        click.echo(
            f"{plural(counts.overdue, 'obligation')} due and not sent, the oldest"
            f" {human_age(counts.oldest_due_at, ctx.clock)}."
        )
    if counts.blocked:
        click.echo(f"{plural(counts.blocked, 'obligation')} due and behind something of the same lane.")
    if counts.left:
        click.echo(
            f"{plural(counts.left, 'obligation')} claimed by a sender that is gone or past its term: the next claim"
            " settles them, by their policy."
        )
    if counts.due_ahead:
        click.echo(
            f"{plural(counts.due_ahead, 'obligation')} put off by a clock that was ahead: the next claim makes them"
            " due."
        )
    if counts.remembered_from:
        click.echo(f"Ids are remembered that were made after {human_time(counts.remembered_from, ctx.clock)}.")
