"""`hermes-state instances tombstones`: which ids are kept out, and by what."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """List the ids of removed gateway instances that cannot come back yet, and what keeps them.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes instances tombstones

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("tombstones", help=HELP, short_help="List removed ids that cannot come back yet, and what keeps them.")
@click.option("--after", default="", metavar="ID", help="Go on after the page that ended at ID.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=1000), default=100, show_default=True,
              help="How many at most.")
@store_options
def command(ctx: Context, *, after: str, limit: int) -> None:
    from maintenance.commands.instances.shown import opened, tombstone, tombstone_line
    from maintenance.output.documents import print_json

    with opened(ctx, read_only=True) as store:
        found = store.instances.tombstones(limit=limit, after=after)
    if ctx.json:
        print_json({
            "path": ctx.db, "tombstones": [tombstone(one) for one in found],
            "next_after": found[-1].key if len(found) == limit else None,
        })
        return
    if not found:
        click.echo(f"No id of an instance is kept out of {ctx.db}.")
    for one in found:
        click.echo(tombstone_line(one, ctx))
    if len(found) == limit:
        from hermes_state.shell_words import shell_word

        click.echo(f"There may be more: go on with --after {shell_word(found[-1].key)}.", err=True)
