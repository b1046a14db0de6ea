"""`hermes-state host migrate`: from one gateway a home to one for all, as a plan."""

from __future__ import annotations

import click

HELP = """Show the steps from one gateway a home to one gateway for all homes.

The plan is made of what gateways of this user say now: which is stopped, which is started, in which order, with the
command for each. The owner of the host stays whoever it is; a gateway is stopped only when the owner serves its homes,
and drained before. This command does none of it: whoever runs the gateways does, step by step, and asks for the plan
again after each, since others start and stop meanwhile. A host that is as wished gives no steps.

\b
start       no gateway lives: start one that serves all
multiplex   stop the owner and start it again as the one for all
rescan      have the owner look for homes again
drain       let a gateway finish what it has, then stop it for good
wait        what comes next cannot be told yet: look again

What changes on disk: nothing. Lock: none is kept; the owner is asked over its socket.
Left alone: every process, every home, every service file.

\b
Example:
  hermes host migrate --multiplex
  hermes host migrate --multiplex --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("migrate", help=HELP, short_help="Show the steps to one gateway for all homes.")
@click.option("--multiplex", is_flag=True, help="To one gateway that serves all homes; the only plan there is.")
@click.option("--home", metavar="DIR", help="Whose homes are served (default: $HERMES_HOME or ~/.hermes).")
@click.option("--serve", "also", metavar="DIR", multiple=True, help="One more home to be served; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md).")
@click.pass_context
def command(
    ctx: click.Context, /, multiplex: bool, home: str | None, also: tuple[str, ...], as_json: bool
) -> None:
    import os

    from hermes_state.errors import NotFound
    from hermes_state.host import host_folder, open_host
    from hermes_state.host.converge import Step, plan_whole
    from hermes_state.host.layout import HOST_NAME
    from hermes_state.location import PROFILES, home_folder, profiles_of, root_of
    from maintenance.commands.host.shown import step_document
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural

    if not multiplex:
        raise click.UsageError("Say to what: --multiplex.")
    before = ctx.obj or {}
    as_json = as_json or bool(before.get("as_json"))
    folder, _profile = home_folder(home or before.get("home"), None, os.environ)
    root = root_of(folder, os.environ)
    homes = [root, *(root / PROFILES / name for name in profiles_of(root))]
    wanted = sorted({os.path.realpath(one) for one in (*map(str, homes), *also)})
    path = host_folder(os.environ) / HOST_NAME
    steps: list[Step]
    try:
        with open_host(read_only=True) as host:
            steps = host.plan_multiplex(wanted, whole=True)
    except NotFound:
        steps = plan_whole([], None, wanted)  # nothing of this user has run here
    if as_json:
        print_json({
            "path": path, "homes": wanted, "executed": False,
            "steps": [step_document(number, one) for number, one in enumerate(steps, 1)],
        })
        return
    if not steps:
        click.echo(f"Nothing to do: one gateway serves {plural(len(wanted), 'home')}.")
        return
    click.echo(f"{plural(len(steps), 'step')} to one gateway for {plural(len(wanted), 'home')}; none is done here.")
    for number, one in enumerate(steps, 1):
        does = " and ".join(word for word, said in (("stops", one.stops), ("starts", one.starts)) if said)
        click.echo(f"{number}. {one.do}{f' ({does})' if does else ''}: {one.how}")
        for gained in one.homes:
            click.echo(f"     {gained}")
