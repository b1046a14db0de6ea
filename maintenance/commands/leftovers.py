"""`hermes-state sessions leftovers`: options in, report out; the work is in `maintenance.leftovers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.leftovers import Leftover, Pruned

HELP = """List what lies beside a store, and drop what is safe to drop.

Captures of a lost WAL, copies that hermes-agent made of stores it took for damaged, snapshots before updates, content
that a restore or a repair replaced, working files of runs that were killed, and this program's own records: each with
its kind, size, age, what it could restore, and whether it may go. Copies are compared with the store by session ids and
counts; --deep compares them row by row, and captures of any size. --prune drops only what is proven at that moment:
working files of dead processes, older copies that equal a newer one byte for byte, and copies and merged captures of
which every row is in a store that is sound. The newest snapshot, backups, the ledger, the marks and everything of
unknown origin stay.

What changes on disk: nothing; with --prune what is listed as safe goes, and each gets a line in the ledger.

Lock: none. --prune is refused while a process works on deleted files of the store.
Left alone: the store, and everything that is not proven.

\b
Example:
  hermes sessions leftovers
  hermes sessions leftovers --deep --json
  hermes sessions leftovers --prune

Exit: 0 done, 1 refused or failed, 2 usage, 3 a leftover could restore rows that the store lacks, 75 busy.
"""


@click.command("leftovers", help=HELP, short_help="List what lies beside a store; drop what is safe.")
@click.option("--deep", is_flag=True, help="Compare all copies row by row, whatever it costs.")
@click.option("--prune", "pruning", is_flag=True, help="Drop what is proven safe. Implies --deep.")
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options(must_exist=False)
def command(ctx: Context, *, deep: bool, pruning: bool, dry_run: bool, yes: bool) -> int:
    from maintenance.gate import preflight
    from maintenance.leftovers import inventory
    from maintenance.leftovers.prune import VERB, drop
    from maintenance.plan import Plan, confirm

    if pruning and not dry_run:
        preflight(ctx, VERB, beside=True)
    found = inventory(ctx.db, deep=deep or pruning, clock=ctx.clock)
    if not pruning:
        show(ctx, found, None, dry_run=dry_run)
        return 3 if any(one.could_restore for one in found) else 0
    safe = [one for one in found if one.safe]
    plan = Plan(title=_title(ctx, safe), lines=tuple(_lines(ctx, safe)), facts=document(ctx, found, None))
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if safe and not confirm(plan, yes=yes, question="Drop them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    done = drop(ctx, [one.path for one in safe])
    gone = {one.path for one in done.dropped}
    show(ctx, [one for one in found if one.path not in gone], done, dry_run=False)
    return 0


def document(ctx: Context, found: Sequence[Leftover], done: Pruned | None) -> dict[str, Any]:
    """The fields of `--json`."""
    return {
        "path": ctx.db,
        "leftovers": [entry(one) for one in found],
        "bytes": sum(one.bytes for one in found),
        "safe_bytes": sum(one.bytes for one in found if one.safe),
        "dropped": [] if done is None else [entry(one) for one in done.dropped],
        "kept": [] if done is None else [entry(one) for one in done.kept],
        "ledger": None if done is None else done.ledger,
    }


def entry(one: Leftover) -> dict[str, Any]:
    """One leftover as `--json` shows it."""
    from maintenance.output.text import rfc3339

    holds = one.holds
    return {
        "kind": one.kind, "path": one.path, "bytes": one.bytes, "modified_at": rfc3339(one.modified_at),
        "safe": one.safe, "why": one.why, "same_as": one.same_as,
        "holds": None if holds is None else {
            "dialect": holds.dialect, "sessions": holds.sessions, "messages": holds.messages,
            "newest_at": rfc3339(holds.newest_at), "compared": holds.compared, "lacking": holds.lacking,
            "differing": holds.differing, "all_in_store": holds.all_in_store, "problem": holds.problem or None,
        },
    }


def show(ctx: Context, found: Sequence[Leftover], done: Pruned | None, *, dry_run: bool) -> None:
    """Print the result."""
    from maintenance.doctor.findings import command as command_line
    from maintenance.output.text import human_bytes, plural, safe_text

    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": dry_run} | document(ctx, found, done))
        return
    if done is not None:
        click.echo(f"{plural(len(done.dropped), 'leftover')} dropped, {human_bytes(done.bytes)} returned.")
        for one in done.kept:
            click.echo(f"  kept {safe_text(one.path.name)}: {safe_text(one.why)}")
        return
    if not found:
        click.echo(f"Nothing lies beside {ctx.db}.")
        return
    safe = [one for one in found if one.safe]
    click.echo(
        f"{plural(len(found), 'leftover')} beside {ctx.db}: {human_bytes(sum(one.bytes for one in found))}, of which "
        f"{human_bytes(sum(one.bytes for one in safe))} in {len(safe)} may go."
    )
    for line in _lines(ctx, found):
        click.echo(line)
    capture = next((one for one in found if one.kind == "capture" and one.could_restore), None)
    if capture is not None:
        click.echo(f"Next: {command_line('sessions captures', ctx.db)}")
    elif any(one.could_restore for one in found):
        one = next(one for one in found if one.could_restore)
        is_file = one.path.is_file()
        click.echo(f"Next: {command_line('sessions list', one.path)}" if is_file else f"Look: {safe_text(one.path)}")
    elif safe:
        click.echo(f"Next: {command_line('sessions leftovers', ctx.db, '--prune')}")


def _title(ctx: Context, safe: Sequence[Leftover]) -> str:
    from maintenance.output.text import human_bytes, plural

    return f"Drop {plural(len(safe), 'leftover')} beside {ctx.db}, {human_bytes(sum(one.bytes for one in safe))}"


def _lines(ctx: Context, found: Sequence[Leftover]) -> list[str]:
    from maintenance.leftovers.names import KINDS
    from maintenance.output.text import human_age, human_bytes, safe_text

    said = []
    for one in found:
        mark = "may go" if one.safe else "stays"
        said.append(
            f"{safe_text(_shown(ctx, one))}  {human_bytes(one.bytes)}, {human_age(one.modified_at, ctx.clock)}, {mark}"
        )
        said.append(f"  {KINDS[one.kind]}{_holds(one)}. {safe_text(one.why)}")
    return said


def _shown(ctx: Context, one: Leftover) -> str:
    return str(one.path.relative_to(ctx.db.parent)) if one.path.is_relative_to(ctx.db.parent) else str(one.path)


def _holds(one: Leftover) -> str:
    from maintenance.output.text import plural, rfc3339

    holds = one.holds
    if holds is None or holds.messages is None or holds.sessions is None:
        return ""
    newest = "" if holds.newest_at is None else f", newest {rfc3339(holds.newest_at)}"
    return f": {plural(holds.sessions, 'session')}, {plural(holds.messages, 'message')}{newest}"
