"""`hermes-state instances add`: register an instance, or bring in older files."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Register a gateway instance without enrolling it, or bring in the files of an older server.

With --from, every instance that the hermes-gateway-metadata- and hermes-gateway-credential- files of FOLDER describe is
brought in: of credentials only digests, revoked and removed ones as such. What is registered already stays as it is.

What changes on disk: one row an instance. Lock: the write lock, for some milliseconds each, beside whoever uses the
store.
Left alone: the files of FOLDER, which still hold credentials: delete them yourself.

\b
Example:
  hermes instances add laptop --nickname "My laptop" --url wss://laptop:8443/
  hermes instances add --from ~/.t3/secrets --dry-run

Exit: 0 done, 1 refused or failed, such as a FOLDER without such files, 2 usage, 3 some files could not be brought in,
65 damaged, 75 busy.
"""


@click.command("add", help=HELP, short_help="Register a gateway instance, or bring in the files of an older server.")
@click.argument("which", metavar="[ID]", required=False)
@click.option("--nickname", metavar="NAME", help="What people call it; unique, whatever its capitals.")
@click.option("--url", metavar="URL", help="Where its connector is: http, https, ws or wss.")
@click.option("--from", "folder", metavar="FOLDER", help="Bring in what the files of an older server describe.")
@click.option("--dry-run", is_flag=True, help="Say what would be added; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, which: str | None, nickname: str | None, url: str | None, folder: str | None, dry_run: bool,
    yes: bool,
) -> int:
    from maintenance.commands.instances.shown import actor, document, line, opened
    from maintenance.output.documents import print_json

    if folder is not None:
        if which is not None or nickname is not None or url is not None:
            raise click.UsageError("--from brings in whole instances: leave out the id, --nickname and --url.")
        return _bring_in(ctx, folder, dry_run=dry_run)
    if which is None or nickname is None:
        raise click.UsageError("Give the id of the instance and its --nickname, or --from with a folder.")
    with opened(ctx, read_only=dry_run) as store:
        if dry_run:
            store.instances.preview(which, nickname=nickname, connector_url=url)
            added = None
        else:
            added = store.instances.add(which, nickname=nickname, connector_url=url, actor=actor("add"))
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "instance": None if added is None else document(added),
            "added": [] if added is None else [{"instance_id": which, "state": str(added.state)}], "present": [],
            "problems": [],
        })
    elif added is None:
        from maintenance.output.text import safe_text

        click.echo(safe_text(f"{which} would be added as {nickname!r}."))
    else:
        click.echo(line(added, ctx))
    return 0


def _bring_in(ctx: Context, folder: str, *, dry_run: bool) -> int:
    from pathlib import Path

    from maintenance.commands.instances.shown import actor, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text

    where = Path(folder).expanduser()
    with opened(ctx, read_only=dry_run) as store:
        done = store.instances.bring_in(where, actor=actor("add"), dry_run=dry_run)
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "instance": None,
            "added": [{"instance_id": name, "state": str(state)} for name, state in done.added],
            "present": list(done.present), "problems": [{"name": name, "why": why} for name, why in done.problems],
        })
    else:
        for name, state in done.added:
            click.echo(safe_text(f"{name}  {'would be ' if dry_run else ''}{state}"))
        for name in done.present:
            click.echo(safe_text(f"{name}  is here already, or was removed here"))
        for name, why in done.problems:
            click.echo(safe_text(f"{name}: {why}"), err=True)
        click.echo(f"{plural(len(done.added), 'instance')} {'to bring in' if dry_run else 'brought in'}.")
    return 3 if done.problems else 0
