"""`hermes-state sessions unpin`: options in; the work is in `maintenance.removal.marking`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

VERB = "sessions unpin"

HELP = """Take the protection of pinned sessions away.

A compressed conversation is unpinned with all its parts. Sessions that are not pinned are reported as done already.

What changes on disk: one flag of each session, in the store or, for files that have no column for it, in the marks file
beside the store.

Lock: the write lock, for some milliseconds, beside whoever uses the store; none for the marks file.
Left alone: everything else about the session.

\b
Example:
  hermes sessions unpin 20260612_000000_35250c
  hermes sessions unpin 20260612 --dry-run

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("unpin", help=HELP, short_help="Take that protection away.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, ids: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.removal.flag_flow import run_flagging
    from maintenance.removal.marking import by_name

    return run_flagging(ctx, VERB, by_name(ctx, ids, "pinned", False), dry_run=dry_run, asks=False, yes=yes)
