"""`hermes-state install-shim`: make the `hermes` script ours again.

Invariant: no store is touched. Not for: installing the package. Doing this silently at start was rejected: a person may
want hermes-agent's script.
"""

from __future__ import annotations

import click

from maintenance.output.documents import print_json
from maintenance.shim import install, shim_state


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done and stop.")
@click.option("--yes", "-y", is_flag=True, help="Replace the script even when it belongs to another program.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md).")
@click.pass_context
def command(ctx: click.Context, /, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Make the `hermes` script of this environment start hermes-state.

    Commands that are not ours still reach hermes-agent: the script hands them on unchanged.

    \b
    Changes:  the file `hermes` in the folder that holds `hermes-state`, replaced in one step.
    Locks:    none; no store is opened.
    Leaves:   stores, homes, hermes-agent itself. A script of another program needs --yes.

    \b
    Example:
      hermes-state install-shim --dry-run

    \b
    Exit: 0 done or already ours, 1 refused or failed, 2 usage.
    """
    before = shim_state()
    done = False if dry_run else install(before, overwrite_unknown=yes)
    if as_json or (ctx.obj or {}).get("as_json"):
        print_json(
            {
                "path": before.path, "owner_before": before.owner, "dry_run": dry_run, "installed": done,
                "already_done": before.owner == "hermes-state", "on_path": before.on_path, "shadowed": before.shadowed,
            }
        )
        return
    if before.owner == "hermes-state":
        click.echo(f"Already done: {before.sentence}.")
    elif dry_run:
        click.echo(f"Now: {before.sentence}. It would become the script of hermes-state.")
    else:
        click.echo(f"{before.path} starts hermes-state now. It was: {before.owner}.")
    if before.shadowed:
        click.echo(f"A shell starts {before.on_path} instead: that folder stands earlier in PATH.", err=True)
