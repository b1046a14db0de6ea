"""`hermes-state sessions adopt`: options in, report out; the work is in `maintenance.interop.adopt`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.interop.adopt.report import AdoptPlan, AdoptReport

HELP = """Turn a file of hermes-agent into a native store.

Everything is taken over: sessions and messages with their ids, order and lineage, what was rewound or compacted, and
usage. Routing, delivery, topics and tables that nobody knows are kept cell by cell under foreign_<name>. In place,
chats, topics, deliveries and delegations among them are then converted, so that a gateway goes on with them; with --to
`hermes sessions optimize` does that. Every row of the result is compared with the original before anything is replaced.
Search indexes are built anew when first needed.

--back --to FILE is the way back: what is in an adopted store now, what was added since included, as a new file of
hermes-agent with the schema that it had. The store is only read.

With --to FILE a new file is made and the store is only read; others may go on using it. What they write meanwhile
is not in the new file, and stays in the WAL until the run ends.

What changes on disk without --to: the content of the store itself, in place, after the original was kept beside it
under a dated name (and verified). hermes-agent can no longer open the store then, until its adapter exists: it stops
and changes nothing. So the name that the plan shows must be typed, or given with --confirm.

Lock: SQLite's exclusive lock for the whole run; the plan says for about how long. Refused while other processes hold
the store, or one could that cannot be seen; there is no --force. With --to none.

Left alone: the original, when anything differs. A run that was killed leaves the old store or the new one, whole; the
same command goes on, or says that it is done.

\b
Example:
  hermes sessions adopt --to native.db
  hermes sessions adopt --dry-run
  hermes sessions adopt --confirm state.db
  hermes sessions adopt --back --to for-hermes-agent.db

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("adopt", help=HELP, short_help="Turn a file of hermes-agent into a native store.")
@click.option("--to", "to", metavar="FILE", help="Make this new file instead, and leave the store as it is.")
@click.option("--back", is_flag=True, help="With --to: make a file of hermes-agent of a store that was adopted.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
@click.option("--confirm", metavar="NAME", help="The name that would have to be typed: the profile, else the file.")
@click.option("--yes", "-y", is_flag=True, help="With --to, which asks nothing anyway; in place the name is needed.")
@store_options
def command(ctx: Context, *, to: str | None, back: bool, dry_run: bool, confirm: str | None, yes: bool) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from hermes_state.errors import Refused
    from maintenance.gate import preflight
    from maintenance.interop.adopt import flow
    from maintenance.interop.adopt.report import AdoptReport

    # Without `..` and links in the folder, as it is said in plans and documents; the name itself may be a link.
    given = None if to is None else Path(to).expanduser()
    target = None if given is None else Path(os.path.realpath(given.parent)) / given.name
    if back:
        return _back(ctx, target, dry_run=dry_run)
    plan = flow.make_plan(ctx, target)
    if plan.already_done:
        if target is not None:
            raise Refused(
                f"{ctx.db} is a native store already. {target} was not made.",
                hint="Copy it while nobody uses it, or make a file of hermes-agent of it with --back.", path=ctx.db,
            )
        if dry_run:
            plan.shown().answer(as_json=ctx.json)
            return 0
        _print(ctx, AdoptReport.nothing(plan, flow.clear(ctx.db)))
        return 0
    if target is not None:
        flow.refuse_target(ctx, target)
    if dry_run:
        plan.shown().answer(as_json=ctx.json)
        return 0
    if target is None:
        preflight(ctx, flow.VERB, beside=False)
    flow.require_plan_room(plan)
    if target is not None:
        _print(ctx, flow.adopt_to(ctx, plan, target))
        return 0
    if not _agreed(ctx, plan, confirm=confirm, yes=yes):
        click.echo("Nothing was changed.", err=True)
        return 1
    _print(ctx, flow.adopt_in_place(ctx, plan))
    return 0


def _back(ctx: Context, target: Path | None, *, dry_run: bool) -> int:
    from hermes_state.errors import InvalidInput
    from maintenance.interop.adopt.flow import refuse_target
    from maintenance.interop.give_back import give_back, make_plan
    from maintenance.output.documents import print_json

    if target is None:
        raise InvalidInput(
            "--back makes a new file and needs its name.", hint="Name it with --to FILE.", option="--back"
        )
    refuse_target(ctx, target)
    plan = make_plan(ctx, target)
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    report = give_back(ctx, target)
    if ctx.json:
        print_json({"dry_run": False} | report.document())
    else:
        click.echo(report.line())
    return 0


def _agreed(ctx: Context, plan: AdoptPlan, *, confirm: str | None, yes: bool) -> bool:
    """Whether the store may be replaced: its name was typed or given."""
    import sys

    from hermes_state.errors import Refused
    from maintenance.plan import ask

    shown = plan.shown()
    if confirm is not None and confirm != plan.name:
        raise Refused(
            f"--confirm {confirm} does not name this store, which is {plan.name}. Nothing was changed.",
            hint="Check which store is meant (--home, --profile, --db).", path=ctx.db,
        )
    # By name only: a bare yes would take a store away from hermes-agent that somebody did not mean.
    if confirm is None and (yes or not sys.stdin.isatty()):
        raise Refused(
            f"Adopting {ctx.db} in place takes it away from hermes-agent, so its name must be given. "
            "Nothing was changed.",
            hint=f"Add --confirm {plan.name}, or look first with --dry-run.", path=ctx.db,
        )
    if not ctx.json or confirm is None:
        shown.show(sys.stderr)
    return confirm is not None or ask("hermes-agent cannot use this store afterwards.", answer=plan.name)


def _print(ctx: Context, report: AdoptReport) -> None:
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": False} | report.document())
        return
    from maintenance.output.text import safe_text

    for line in report.lines():
        click.echo(safe_text(line))
