"""`hermes-state host decide`: what a gateway that starts now would do."""

from __future__ import annotations

import click

SUPERVISORS = ("none", "systemd", "s6", "launchd", "external")

HELP = """Say what a gateway that starts now would do, and why.

It looks at what a start looks at (the lock of the host, its record, what live gateways answer) and gives the same
verdict: start, attach, refuse, or replace the owner. It may take some seconds while an owner settles whom it serves.
--explain adds the evidence, and what a start would exit with under each supervisor: 75 is tried again by each of them,
78 is parked until a person starts it. This command itself exits 0 whatever the verdict is.

\b
start             it would run; beside an owner that serves its own homes only
attach            a live gateway says that it serves this home: nothing more is needed
refuse_transient  try again: an owner is silent, leaving, or has not settled
refuse_permanent  the owner serves several homes and not this one
replace_host      the owner would be asked to leave (--replace, by a person only)

What changes on disk: nothing by this command. As by a start, an owner that serves several homes is asked to look for
new ones, and may begin to serve this one. Lock: none is kept; gateways are asked over their sockets.
Left alone: every process; nobody is signalled.

\b
Example:
  hermes host decide --explain
  hermes host decide --profile work --supervisor launchd --explain --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("decide", help=HELP, short_help="Say what a gateway that starts now would do, and why.")
@click.option("--explain", is_flag=True, help="Also the evidence, and the exit codes under each supervisor.")
@click.option("--supervisor", type=click.Choice(SUPERVISORS), help="As if this one started it (default: a person).")
@click.option("--replace", is_flag=True, help="As if the start were told to replace the owner.")
@click.option("--force", is_flag=True, help="As if the start were told to run whoever else does.")
@click.option("--standalone", is_flag=True, help="As if this home were configured to have a gateway of its own.")
@click.option("--home", metavar="DIR", help="The home that is to be served (default: $HERMES_HOME or ~/.hermes).")
@click.option("--profile", "-p", metavar="NAME", help="A profile of that home.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md).")
@click.pass_context
def command(
    ctx: click.Context, /, explain: bool, supervisor: str | None, replace: bool, force: bool, standalone: bool,
    home: str | None, profile: str | None, as_json: bool,
) -> None:
    import os

    from hermes_state.errors import NotFound
    from hermes_state.host import EXIT_CODES, FATES, Request, Supervisor, decide, facts_for
    from hermes_state.location import home_folder
    from maintenance.commands.host.shown import verdict_document
    from maintenance.output.documents import print_json
    from maintenance.output.tables import print_table

    before = ctx.obj or {}
    as_json = as_json or bool(before.get("as_json"))
    folder, _profile = home_folder(home or before.get("home"), profile or before.get("profile"), os.environ)
    if (home or before.get("home")) is not None and not os.path.isdir(folder):
        raise NotFound(f"There is no home {folder}.", hint="Name the folder of a home.", path=folder)
    by = Supervisor(supervisor or "none")
    request = Request(
        home=os.path.abspath(folder), supervisor=by, replace=replace, force=force, standalone=standalone
    )
    verdict = decide(facts_for(request))
    code = EXIT_CODES[by][verdict.outcome]
    codes = {str(one): found[verdict.outcome] for one, found in EXIT_CODES.items()}
    fates = {
        str(one): sorted({
            str(table[one, exits]) for table in FATES.values()
            if (exits := codes[one]) is not None and (one, exits) in table
        })
        for one in Supervisor
    }
    if as_json:
        by_supervisor = {name: {"exit_code": codes[name], "then": fates[name]} for name in codes}
        print_json({
            "home": request.home, "supervisor": by, **verdict_document(verdict), "exit_code": code,
            "supervisors": by_supervisor if explain else None,
        })
        return
    runs = "it runs" if code is None else f"it exits {code}"
    click.echo(f"{verdict.outcome}: {verdict.sentence}")
    click.echo(f"Started by {'a person' if by is Supervisor.NONE else by}, {runs}.")
    if not explain:
        return
    for said in verdict.evidence:
        click.echo(f"  - {said}")
    rows = [(name, "runs" if exits is None else exits, " or ".join(fates[name])) for name, exits in codes.items()]
    print_table(("started by", "exit", "then"), rows)
