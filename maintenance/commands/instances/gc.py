"""`hermes-state instances gc`: free ids that nothing keeps any more."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Free the ids of removed gateway instances that nothing keeps any more, and drop tokens whose time is over.

An id is freed when its horizon has passed and no thread is bound to it.

What changes on disk: those rows go, some hundred in a transaction. Lock: the write lock, for some milliseconds each,
beside whoever uses the store.
Left alone: every id that something keeps; `hermes instances tombstones` says what.

\b
Example:
  hermes instances gc --dry-run
  hermes instances gc

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("gc", help=HELP, short_help="Free removed ids that nothing keeps any more; drop dead tokens.")
@click.option("--dry-run", is_flag=True, help="Say what would be freed; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, dry_run: bool, yes: bool) -> None:
    from maintenance.commands.instances.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text

    with opened(ctx, read_only=dry_run) as store:
        registry = store.instances
        if dry_run:
            freed, tokens, more = registry.due(), 0, False
        else:
            done, swept = registry.gc(), registry.sweep()
            freed, tokens, more = done.instance_ids, swept.expired + swept.settled, done.more or swept.more
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "instance_ids": list(freed), "tokens": tokens, "more": more,
        })
        return
    for name in freed:
        click.echo(safe_text(name))
    click.echo(
        f"{plural(len(freed), 'id')} {'would be free' if dry_run else 'free again'}"
        + ("." if dry_run else f", {plural(tokens, 'token')} dropped.")
    )
    if more:
        click.echo("More are due: run it again.", err=True)
