"""`hermes-state sessions restore`: options in, question, report out; the work is in `maintenance.backups`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.backups.drilling import Drilled
    from maintenance.backups.restoring import Restored, RestorePlan
    from maintenance.plan import Plan

HELP = """Put the content of a backup in the store's place, or prove with --drill that it could be.

BACKUP is a file that `sessions backup` made, encrypted or not, or any sound database file of a store: a snapshot of
hermes-agent, a copy, a zstd or gzip packed one. With a manifest beside it, it is compared with that first; without one
its pages are checked, and that is said. The store may be healthy, damaged in any way, or gone.

Before the question it says what the store has and the backup has not: sessions, messages, ids and times; and what
becomes of what it owes (`outbox list`): verdicts and obligations since the backup stay, and what may have been sent
since is not sent as if nothing had; how many gateway instances have to be enrolled again; of chats (`routing list`),
which stay routed as they are now, whose next message needs a new session, and how many people have to be paired again;
and of cron (`cron list`), whose slots that ran since never run again, which jobs are paused until somebody resumes
them. Refused: a backup of another store (--new-store allows it), and a WAL beside the store with commits that are
nowhere else (--over-wal allows it).

What changes on disk: the content of the store, in place and in one transaction, so that a kill leaves the old or the
new one, whole. The files as they were are copied beside it first, to <store>.replaced-<time>-<pid>, and stay there. A
native store gets a new incarnation, so that its search index is built anew; leases are free, and no fence falls.

Lock: SQLite's exclusive lock. Refused while other processes hold the store, or one could that cannot be seen; there is
no --force.

--drill restores into a temporary folder beside the backup, opens it, examines it as doctor does, compares every table,
and removes it. The store is not looked at. For a nightly job: exit 0 or 65.

\b
Example:
  hermes sessions restore ~/.hermes/backups/state-20270115T080000Z.db --dry-run
  hermes sessions restore ~/.hermes/backups/state-20270115T080000Z.db
  hermes sessions restore --drill ~/.hermes/backups/state-20270115T080000Z.db

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("restore", help=HELP, short_help="Put a backup in the store's place, or drill it.")
@click.argument("backup", metavar="BACKUP")
@click.option("--drill", "drills", is_flag=True, help="Restore to a temporary place, check everything, remove it.")
@click.option("--new-store", is_flag=True, help="The backup may be of another store.")
@click.option("--over-wal", is_flag=True, help="Commits that only the WAL beside the store has may go; it is kept.")
@click.option("--passphrase-file", metavar="FILE", help="The passphrase is the first line of FILE.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options(must_exist=False)
def command(
    ctx: Context, *, backup: str, drills: bool, new_store: bool, over_wal: bool, passphrase_file: str | None,
    dry_run: bool, yes: bool,
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from pathlib import Path

    from maintenance.backups.drilling import drill
    from maintenance.backups.restoring import restore
    from maintenance.commands.passphrase import passphrase_for
    from maintenance.output.working import working

    source = Path(backup).expanduser().absolute()

    def passphrase() -> str:
        return passphrase_for(passphrase_file, twice=False)

    if drills:
        with working() as progress:
            drilled = drill(source, passphrase=passphrase, progress=progress, clock=ctx.clock)
        _print_drill(ctx, drilled)
        return 0

    def agreed(plan: RestorePlan) -> bool:
        if dry_run:
            return False
        from maintenance.plan import confirm

        return confirm(_shown(plan), yes=yes, question="Replace the content of the store?", quiet=ctx.json)

    with working() as progress:
        done = restore(
            source, ctx.db, passphrase=passphrase, new_store=new_store, over_wal=over_wal, agreed=agreed,
            progress=progress, clock=ctx.clock, profile=ctx.profile,
        )
    if dry_run:
        _shown(done.plan).answer(as_json=ctx.json)
        return 0
    if done.replaced is None:
        click.echo("Nothing was changed.", err=True)
        return 1
    _print(ctx, done)
    return 0


def _shown(plan: RestorePlan) -> Plan:
    from maintenance.backups import cron, owing, routing, serving
    from maintenance.dialects.native import owed, routed
    from maintenance.output.text import rfc3339
    from maintenance.plan import Plan

    content, gap = plan.staged.content, plan.gap
    # Of obligations, routing and cron nothing is gone, however many rows each side has.
    kept = owed.TABLES | routed.TABLES | {name for name in gap.tables if name.startswith("cron_")}
    tables = {name: counts for name, counts in gap.tables.items() if name not in kept}
    when = f", made {rfc3339(plan.created_at)}" if plan.created_at is not None else ""
    proof = "compared with its manifest" if plan.verified else "without a manifest; its pages are sound"
    lines = [f"from {plan.backup}{when}: {content.sessions} sessions, {content.messages} messages, {proof}"]
    if not gap.readable:
        lines.append(f"what would be gone cannot be told: {gap.why}")
    elif not tables and not gap.sessions_missing and not gap.messages_missing:
        lines.append("the store has no row that the backup lacks")
    else:
        lines.append(
            f"gone from the store: {gap.sessions_missing} sessions and {gap.messages_missing} messages"
            + (f" (ids {gap.lowest_missing_id} to {gap.highest_missing_id})" if gap.messages_missing else "")
        )
        times = [rfc3339(moment) for moment in (gap.first_missing_at, gap.last_missing_at) if moment is not None]
        if None not in times and len(times) == 2:  # infinite ones are in no calendar
            lines.append(f"  from {times[0]} to {times[1]}")
        lines += [f"  session {name}" for name in gap.examples]
        lines += [f"  {name}: {mine} rows now, {theirs} then" for name, (mine, theirs) in tables.items()]
    if not plan.owed.whole and (plan.owed.carried.unknown or plan.owed.carried.marked):
        lines.append(
            "what the store knows of obligations cannot be read whole: what the backup owes may have been sent since"
        )
    lines += owing.sentences(plan.owed.carried, done=False)
    if out := serving.sentence(plan.gateways.revoked, done=False):
        lines.append(out)
    lines += routing.sentences(plan.routing, done=False)
    lines += cron.sentences(plan.cron, done=False)
    if plan.wal_frames:
        lines.append(f"{plan.wal_frames} pages of commits that only the WAL has go out of use")
    lines.append(f"kept: the files as they are, beside the store as {plan.store.name}.replaced-<time>-<pid>")
    return Plan(title=f"Restore {plan.store}", lines=tuple(lines), facts=plan.document())


def _print(ctx: Context, done: Restored) -> None:
    from maintenance.backups import cron, owing, routing, serving
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    if ctx.json:
        print_json({"dry_run": False} | done.document())
        return
    content, replaced = done.plan.staged.content, done.replaced
    assert replaced is not None
    click.echo(safe_text(
        f"Restored {content.sessions} sessions and {content.messages} messages into {done.plan.store} in "
        f"{replaced.seconds:.1f} s ({replaced.locked_seconds:.1f} s locked)."
    ))
    for said in owing.sentences(replaced.obligations, done=True):
        click.echo(safe_text(f"{said}."))
    for said in routing.sentences(replaced.routing, done=True):
        click.echo(safe_text(f"{said[0].upper()}{said[1:]}."))
    for said in cron.sentences(replaced.cron, done=True):
        click.echo(f"{said[0].upper()}{said[1:]}.")
    click.echo(safe_text(f"The files as they were are in {replaced.aside}."))
    if out := serving.sentence(replaced.gateways.revoked, done=True):
        click.echo(f"{out}.")


def _print_drill(ctx: Context, done: Drilled) -> None:
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    if ctx.json:
        print_json({"dry_run": False, "drill": True} | done.document())
        return
    click.echo(safe_text(
        f"{done.backup} gives the store back: {done.sessions} sessions, {done.messages} messages, {done.tables} tables "
        f"compared, in {done.seconds:.1f} s."
    ))
    if not done.verified:
        click.echo("It has no manifest: what came back is what the file holds.")
    for finding in done.findings:
        click.echo(safe_text(f"Note: {finding}"))
