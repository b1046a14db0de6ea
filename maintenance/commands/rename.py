"""`hermes-state sessions rename`: options in; the work is in `maintenance.removal.marking`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

VERB = "sessions rename"

HELP = """Give a session another title.

Titles are unique and at most 100 characters long; invisible characters are taken out. The last part of a compressed
conversation gets the title, and takes it over from an earlier part that has it.

What changes on disk: the title of one session, and of the part that gave it up.
Lock: the write lock, for some milliseconds, beside whoever uses the store.
Left alone: everything else; a title that another conversation has is refused.

\b
Example:
  hermes sessions rename 20260612_000000_35250c Release plan

Exit: 0 done, 1 not found or failed, 2 usage or a title that cannot be used, 65 damaged, 75 busy.
"""


@click.command("rename", help=HELP, short_help="Give a session another title.")
@click.argument("session", metavar="ID")
@click.argument("title", nargs=-1, required=True, metavar="TITLE...")
@click.option("--dry-run", is_flag=True, help="Say which session would get which title; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, session: str, title: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text
    from maintenance.removal.marking import plan_rename, rename

    planned = plan_rename(ctx, session, " ".join(title))
    done = planned if dry_run else rename(ctx, VERB, planned)
    if ctx.json:
        print_json(
            {
                "dry_run": dry_run,
                "path": ctx.db,
                "id": done.session_id,
                "title_before": done.before,
                "title": done.after,
                "already_done": done.already_done,
            }
        )
        return
    if done.already_done:
        click.echo(safe_text(f"Already done: {done.session_id} has the title {done.after!r}."))
        return
    verb = "Would rename" if dry_run else "Renamed"
    before = "no title" if done.before is None else repr(done.before)
    click.echo(safe_text(f"{verb} {done.session_id} from {before} to {done.after!r}."))
