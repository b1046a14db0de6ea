"""`hermes-state instances rename`: another nickname or connector."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Give a gateway instance another nickname, another connector, or both.

A nickname belongs to one instance, whatever its capitals and spaces; a revoked one keeps its own, a removed one does
not.

What changes on disk: one row. Lock: the write lock, for some milliseconds, beside whoever uses the store.
Left alone: its credential, its threads and its connection, which all go by its id.

\b
Example:
  hermes instances rename laptop "Old laptop"
  hermes instances rename laptop --url wss://laptop.lan:8443/ --dry-run

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("rename", help=HELP, short_help="Give a gateway instance another nickname or connector.")
@click.argument("which", metavar="ID")
@click.argument("nickname", metavar="[NAME]", required=False)
@click.option("--url", metavar="URL", help="Where its connector is: http, https, ws or wss.")
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, which: str, nickname: str | None, url: str | None, dry_run: bool, yes: bool
) -> None:
    from hermes_state.instances import Event
    from maintenance.commands.instances.shown import document, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    if nickname is None and url is None:
        raise click.UsageError("Give another name, another --url, or both.")
    with opened(ctx, read_only=dry_run) as store:
        before = store.instances.preview(which, Event.CHANGE, nickname=nickname, connector_url=url)
        assert before is not None
        done = None if dry_run else store.instances.change(which, nickname=nickname, connector_url=url)
    after = before if done is None else done.instance
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "before": document(before), "instance": document(after),
            "already_done": done is not None and not done.changed,
        })
    elif done is None:
        click.echo(safe_text(f"{which} is {before.nickname!r} now; it would be {nickname or before.nickname!r}."))
    else:
        click.echo(line(after, ctx) if done.changed else safe_text(f"{which} is called {after.nickname!r} already."))
