"""`hermes-state sessions optimize`: options in, plan and report out; the work is in `maintenance.space`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from hermes_state.errors import InvalidInput
from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from lockowners import Scan
    from maintenance.space.compress import Compress
    from maintenance.space.native_optimize import NativeReport
    from maintenance.space.native_plan import NativePlan
    from maintenance.space.optimize import OptimizeReport
    from maintenance.space.optimize_plan import OptimizePlan
    from maintenance.space.reclaim import Policy

HELP = """Merge the search indexes and return free pages when that pays.

What changes on disk: the full-text indexes are merged into one segment each, free pages go back to the file system, the
WAL is copied into the file and, unless Litestream reads it, emptied. No row, no search result and no part of the schema
changes; the file keeps its inode.

On a native store it also compresses the messages of sessions that have been idle for 30 days (--compress, --cold-days;
each is read back and checked before its old body goes), trims the feed of changes and drops tombstones and settled
obligations past their time; what is owed stays. Schema steps that the store lacks are applied. What `sessions adopt`
kept of chats, topics, deliveries and delegations is converted, once, in one transaction; the kept rows stay.

Lock: on files of hermes-agent SQLite's exclusive lock, from after the first checks until the WAL is emptied; the plan
says for how long. Programs started meanwhile cannot open the store. Refused while other processes hold it, with
their names. With --online, and on native stores by default, no exclusive lock: write transactions of about 10 ms beside
them. With --force beside holders: one VACUUM in place, nothing else. --offline on a native store rewrites it as well,
if a third of the room inside its pages is unused.

Left alone: the store when its page check finds damage (exit 65), a damaged search index, planner statistics that the
file does not have, and the whole file when too little of it is free (--reclaim-above).

\b
Example:
  hermes sessions optimize --dry-run
  hermes sessions optimize
  hermes sessions optimize --online

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which every range lets through because it compares with nothing."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number.")
    return value


@click.command("optimize", help=HELP, short_help="Merge the search indexes and return free pages when that pays.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing. Never refused.")
@click.option(
    "--online/--offline", default=None,
    help="In short steps beside the programs that use the store (native stores: the default), or alone on it.",
)
@click.option(
    "--compress", type=click.Choice(["cold", "always", "never"]), default="cold", show_default=True,
    help="Native stores: compress messages of idle sessions, of all, or none.",
)
@click.option(
    "--cold-days", type=click.FloatRange(0, 36_500), default=30.0, show_default=True, metavar="DAYS",
    callback=_a_number, help="Native stores: what idle means.",
)
@click.option("--force", is_flag=True, help="Beside holders run one VACUUM in place; their writes wait until it ends.")
@click.option(
    "--reclaim",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Return free pages when it pays, always, or never.",
)
@click.option(
    "--reclaim-above",
    "above",
    type=click.FloatRange(0, 100),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    callback=_a_number,
    help="What pays: more than this share of the file is free.",
)
@click.option("--via-copy", is_flag=True, help="Rewrite through a compact copy that is compared row by row first.")
@click.option("--quick", is_flag=True, help="Check pages only; the search indexes are not checked.")
@store_options
def command(
    ctx: Context,
    *,
    dry_run: bool,
    online: bool | None,
    compress: Compress,
    cold_days: float,
    force: bool,
    reclaim: Policy,
    above: float,
    via_copy: bool,
    quick: bool,
) -> None:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.space.optimize import make_plan, optimize
    from maintenance.space.optimize_online import make_forced_plan, optimize_forced, optimize_online
    from maintenance.space.optimize_plan import Choices

    if _is_native(ctx):
        _native(
            ctx, dry_run=dry_run, offline=online is False, compress=compress, cold_days=cold_days, reclaim=reclaim,
            force=force, via_copy=via_copy,
        )
        return
    online = bool(online)
    if online and (force or via_copy or reclaim == "always"):
        raise InvalidInput(
            "--online never rewrites the file, so it cannot be combined with --force, --via-copy or --reclaim always.",
            hint="Leave --online away and stop the holders, or leave the other option away.",
        )
    if force and reclaim == "never":
        raise InvalidInput(
            "--force only returns free pages beside holders, so it cannot be combined with --reclaim never.",
            hint="Leave one of them away.",
        )
    choices = Choices(
        reclaim=reclaim, above_percent=above, method="copy" if via_copy else "vacuum", quick=quick
    )
    if dry_run:
        scan = _scan(ctx)
        plan = make_forced_plan(ctx, scan) if force and scan.holders else make_plan(ctx, choices, scan)
        plan.shown(online=online).answer(as_json=ctx.json)
        return
    run = optimize_online if online else optimize_forced if force else optimize
    report = run(ctx, choices, announce=lambda plan: _announce(ctx, plan, online=online))
    _print_report(ctx, report)


def _is_native(ctx: Context) -> bool:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading

    with reading(ctx) as store:
        return dialect_of(store).is_native


def _native(
    ctx: Context,
    *,
    dry_run: bool,
    offline: bool,
    compress: Compress,
    cold_days: float,
    reclaim: Policy,
    force: bool,
    via_copy: bool,
) -> None:
    from maintenance.gate import reading
    from maintenance.space.native_optimize import optimize_native, optimize_native_alone
    from maintenance.space.native_plan import look_native

    if force or via_copy:
        raise InvalidInput(
            "--force and --via-copy are for files of hermes-agent: a native store is optimized beside its users.",
            hint="Leave them away; --offline rewrites the file when that pays.",
        )
    if reclaim == "always" and not offline:
        raise InvalidInput(
            "--reclaim always rewrites the file, which needs it alone.", hint="Add --offline and stop the holders."
        )
    with reading(ctx) as store:
        plan = look_native(
            store, compress=compress, cold_days=cold_days, reclaim=reclaim, offline=offline, now=ctx.clock.now(),
            scan=_scan(ctx),
        )
    if dry_run:
        plan.shown().answer(as_json=ctx.json)
        return
    run = optimize_native_alone if offline else optimize_native
    _print_report(ctx, run(ctx, plan, announce=lambda plan: _announce_native(ctx, plan)))


def _announce_native(ctx: Context, plan: NativePlan) -> None:
    if not ctx.json:
        import sys

        plan.shown().show(sys.stderr)


def _scan(ctx: Context) -> Scan:
    from lockowners import holders

    return holders(ctx.db)


def _announce(ctx: Context, plan: OptimizePlan, *, online: bool) -> None:
    if not ctx.json:
        import sys

        plan.shown(online=online).show(sys.stderr)


def _print_report(ctx: Context, report: OptimizeReport | NativeReport) -> None:
    from maintenance.output.documents import print_json

    if ctx.json:
        print_json({"dry_run": False} | report.document())
        return
    for line in report.lines():
        click.echo(line)
    for warning in report.warnings:
        click.echo(f"Warning: {warning}", err=True)
