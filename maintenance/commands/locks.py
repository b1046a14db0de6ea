"""`hermes-state locks`: who holds which lock of a store, who waits, and who only has it open.

Invariant: only /proc and SQLite's own descriptors are read; the store is not opened. "Nobody" is never said when
something could not be seen. Not for: stopping processes.

Opening the store to ask the kernel atomically was rejected here: a first opener rebuilds the WAL index, and a command
that is run while everything hangs must take no lock at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import StateError
from lockowners import Holder, LockOwner, LockOwnersError, LockReport, Scan, Watcher, holders
from maintenance.context import Context, store_options
from maintenance.gate import how_to_stop, not_visible_lines
from maintenance.output.documents import print_json
from maintenance.output.processes import Start, process_document, start_of
from maintenance.output.tables import Column, print_table
from maintenance.output.text import human_time, safe_text

CLEAR = "\x1b[2J\x1b[H"


@click.command()
@click.option("--watch", is_flag=True, help="Look again and again, and show for how long each lock was seen held.")
@click.option(
    "--interval", type=click.FloatRange(min=0.05), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many looks (default: until Ctrl-C).")
@store_options
def command(ctx: Context, /, watch: bool, interval: float, count: int | None) -> None:
    """Name every process that holds or blocks a store.

    \b
    Changes:  nothing; the store is not even opened.
    Locks:    none.
    Leaves:   everything. Processes that cannot be seen are counted, never left out.

    \b
    Example:
      hermes locks --watch

    \b
    Exit: 0 done (also when nobody holds it), 1 refused or failed, 2 usage.
    """
    watcher = Watcher(ctx.db, now=ctx.clock.monotonic)
    looks = count if count is not None else (None if watch else 1)
    try:
        for number, (report, scan) in enumerate(_looks(watcher, ctx, looks, interval)):
            if ctx.json:
                print_json(document(report, scan))
            else:
                if number:
                    click.echo(CLEAR if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())
                show(report, scan, clock=ctx.clock)
            sys.stdout.flush()
    except LockOwnersError as problem:
        raise StateError(problem.message, hint="Name the store with --db, or its folder with --home.") from problem
    except KeyboardInterrupt:
        return


def _looks(watcher: Watcher, ctx: Context, looks: int | None, interval: float) -> Iterator[tuple[LockReport, Scan]]:
    """One look after another; the first at once."""
    clock: Clock = ctx.clock
    done = 0
    while True:
        yield watcher.look(), holders(ctx.db)
        done += 1
        if looks is not None and done >= looks:
            return
        clock.sleep(interval)


def show(report: LockReport, scan: Scan, *, clock: Clock = SYSTEM, start: Start = start_of) -> None:
    """The report for people."""
    click.echo(f"Store: {safe_text(str(report.path))}")
    if report.owners:
        columns: list[str | Column] = [
            "lock",
            "mode",
            Column("pid", right=True),
            "user",
            "role",
            "running since",
            Column("held", right=True),
            "command",
        ]
        print_table(columns, [_row(owner, clock, start) for owner in report.owners])
    else:
        click.echo(f"No lock is held{'' if report.complete else ' that is visible from here'}.")
    for waiter in report.waiters:
        click.echo(f"Waits in the kernel for {waiter.lock}: {_who(waiter)}")
    locked = {owner.process.pid for owner in report.owners if owner.process}
    idle = [holder for holder in scan.holders if holder.process.pid not in locked]
    for holder in idle:
        click.echo(
            f"Open without a lock: PID {holder.process.pid} ({safe_text(holder.process.command, 80)}), "
            f"user {safe_text(holder.process.user)}, {holder.process.role}, "
            f"running since {human_time(start(holder.process), clock)}"
        )
    for holder in scan.holders:
        if holder.stale:
            click.echo(
                f"PID {holder.process.pid} works on deleted or replaced files of this store: "
                "`hermes-state doctor` says more."
            )
    if not report.owners and not idle and scan.complete and report.complete:
        click.echo("No other process has the store open.")
    elif not report.owners and not scan.holders:
        click.echo("No holder is visible from here.")
    for line in hidden_lines(report, scan):
        click.echo(line)


def hidden_lines(report: LockReport, scan: Scan) -> list[str]:
    """What could not be seen by either look, each thing once."""
    found = [*not_visible_lines(scan), *(f"not visible: {row.describe()}" for row in report.hidden)]
    if report.namespace_note:
        found.append(f"not visible: {report.namespace_note}")
    return list(dict.fromkeys(found))


def document(report: LockReport, scan: Scan, *, start: Start = start_of) -> dict[str, Any]:
    """The fields that docs/cli-json.md promises."""
    return {
        "store": str(report.path),
        "complete": report.complete and scan.complete,
        "method": scan.method,
        "locks": [_owner(owner, start) for owner in report.owners],
        "waiters": [_owner(owner, start) for owner in report.waiters],
        "holders": [_holder(holder, start) for holder in scan.holders],
        "not_visible": hidden_lines(report, scan),
    }


def _row(owner: LockOwner, clock: Clock, start: Start) -> tuple[object, ...]:
    process = owner.process
    name = owner.lock if owner.slot is None else f"{owner.lock} {owner.slot}"
    name = f"{name} (deleted file)" if owner.stale else name
    # A lock that is seen for the first time has no age yet: it may have been held for an hour.
    age = f"{owner.age_seconds:,.1f} s" if owner.age_seconds else ""
    if process is None:
        return (name, owner.mode, "?", "?", "?", "?", age, "not visible")
    since = human_time(start(process), clock)
    return (name, owner.mode, process.pid, process.user, process.role, since, age, safe_text(process.command, 80))


def _who(owner: LockOwner) -> str:
    process = owner.process
    return f"PID {process.pid} ({safe_text(process.command, 80)})" if process else "a process that is not visible"


def _owner(owner: LockOwner, start: Start) -> dict[str, Any]:
    process = owner.process
    return {
        "lock": owner.lock,
        "mode": owner.mode,
        "slot": owner.slot,
        "seen_held_seconds": owner.age_seconds or None,
        "stale": owner.stale,
        "process": None if process is None else process_document(process, start),
    }


def _holder(holder: Holder, start: Start) -> dict[str, Any]:
    return {
        "process": process_document(holder.process, start),
        "via": sorted(holder.via),
        "files": [{"kind": file.kind, "deleted": file.deleted} for file in holder.files],
        "stale": holder.stale,
        "how_to_stop": how_to_stop(holder.process),
    }
