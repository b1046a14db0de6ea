"""`hermes-state host units`: what is wrong with the service files of gateways."""

from __future__ import annotations

from pathlib import Path

import click

HELP = """Check the service files that start gateways against the exit codes of a start.

A start ends with 75 when it has to be tried again and with 78 when only a person can change something. A supervisor has
to start a unit again after 75, after a failure and after a kill, and to park it after 78. This reads systemd units with
their drop-ins, launchd property lists, and s6 run scripts with their finish scripts, and says where a file does
otherwise; also takeover flags in a unit that is kept alive, start limits that 75 runs into, and two units of one home.

Without FILE it looks where hermes-agent puts them: the systemd folders of the user and the machine, the launchd folders
of both, and the folder of s6 ($S6_PROFILE_GATEWAY_SCANDIR or /run/service).

What changes on disk: nothing. Lock: none; no store and no supervisor is asked.
Left alone: every file and process.

\b
Example:
  hermes host units
  hermes host units ~/.config/systemd/user/hermes-gateway.service --json

Exit: 0 nothing is wrong, 1 failed, 2 usage, 3 something is wrong.
"""


@click.command("units", help=HELP, short_help="Check the service files of gateways against the exit codes of a start.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md).")
@click.pass_context
def command(ctx: click.Context, /, files: tuple[Path, ...], as_json: bool) -> None:
    import os

    from hermes_state.host.unit_files import UnitFile, find, read_all
    from maintenance.commands.host.shown import unit_document
    from maintenance.output.documents import print_json

    as_json = as_json or bool((ctx.obj or {}).get("as_json"))
    failed: list[UnitFile] = []
    paths = [Path(os.path.abspath(path)) for path in files]
    if not files:
        paths, failed = find(os.environ)
    units = [*read_all(paths), *failed]
    wrong = any(one.unit.findings for one in units)
    status = 3 if wrong else 0
    if as_json:
        print_json({"exit_status": status, "units": [unit_document(one) for one in units]})
        ctx.exit(status)
    if not units:
        click.echo("No service file of a gateway was found; name one, or see --help for where it looks.")
    for one in units:
        kind = "masked" if one.masked else one.unit.supervisor or "unknown"
        click.echo(f"{one.path} ({kind}): {'nothing is wrong' if not one.unit.findings else ''}".rstrip(" "))
        for found in one.unit.findings:
            click.echo(f"  {found.code}: {found.sentence}")
            click.echo(f"    {found.fix}")
    ctx.exit(status)
