"""`hermes-state sessions replicate`: options in, report out; the work is in `maintenance.replicate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.replicate.config import Config
    from maintenance.replicate.drill import Drilled

HELP = """Copy every commit of a store to a replica with Litestream; drill the replica.

Litestream comes with the extra `replication`. Without --once it runs in the foreground until SIGTERM or Ctrl-C, is
started again when it ends by itself, and is stopped when the store's file is replaced under it: it would not notice.
--once copies everything that was committed before and ends when the replica has it. --drill restores the replica to a
temporary folder, has doctor examine it, compares every table with the store by count and hash, says how far it lags,
and removes it again: run it every night. Read docs/replication.md first.

What changes on disk: the configuration (STORE.hermes-state.litestream.yml, or --config FILE) and the replica.
Litestream adds two small tables to the store and keeps a folder .STORE-litestream beside it. --drill changes nothing.

Lock: none of ours. Litestream keeps a read lock, so nobody can truncate the WAL meanwhile, and takes the write lock for
moments. Refused beside another Litestream, without WAL mode, and while a process works on deleted files of the store.
Left alone: every row; a configuration that a person wrote; Litestream processes that others started.

\b
Example:
  hermes sessions replicate --to /mnt/backup/hermes
  hermes sessions replicate --to s3://bucket/hermes --once
  hermes sessions replicate --drill --json

Exit: 0 done, 1 refused or failed, 2 usage, 65 the replica does not give the store back, 75 busy.
"""


@click.command("replicate", help=HELP, short_help="Copy a store to a replica with Litestream; drill it.")
@click.option("--to", metavar="URL|DIR", help="Where the replica is: a folder, s3://..., gs://..., sftp://...")
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="The configuration of Litestream.")
@click.option("--retention-hours", type=int, help="How long snapshots are kept in the replica (default: 168).")
@click.option("--once", is_flag=True, help="Copy what is there and end.")
@click.option("--drill", "drilling", is_flag=True, help="Restore the replica to a temporary folder and compare.")
@click.option(
    "--max-lag", type=float, metavar="SECONDS", help="With --drill: how old a missing message may be (default: 60)."
)
@click.option("--dry-run", is_flag=True, help="Check and show the configuration; change nothing.")
@store_options
def command(
    ctx: Context, *, to: str | None, config: Path | None, retention_hours: int | None, once: bool, drilling: bool,
    max_lag: float | None, dry_run: bool,
) -> int:
    from maintenance.replicate.config import RETENTION_HOURS, config_for

    if once and drilling:
        raise click.UsageError("--once copies and --drill looks: give only one of them.")
    if max_lag is not None and not drilling:
        raise click.UsageError("--max-lag is for --drill.")
    told = config_for(ctx.db, to, config, retention_hours=retention_hours or RETENTION_HOURS)
    if dry_run:
        return _plan(ctx, told)
    if drilling:
        return _drill(ctx, told, max_lag)
    return _once(ctx, told) if once else _run(ctx, told)


def _plan(ctx: Context, told: Config) -> int:
    from maintenance.plan import Plan
    from maintenance.replicate.program import find_program
    from maintenance.replicate.refusing import look

    looked = look(ctx, alone=False)
    program = find_program()
    lines = [
        f"program: {program or 'not installed (the extra `replication`)'}",
        f"configuration: {told.path}" + ("" if told.ours else ", as it is"), *told.text.splitlines(),
    ]
    if looked.others:
        who = ", ".join(f"PID {pid}" for pid in looked.others)
        lines.insert(0, f"would be refused: {who} replicates the store already")
    facts = document(ctx, told) | {"program": program, "litestream": looked.others, "text": told.text or None}
    Plan(title=f"Replicate {ctx.db}", lines=tuple(lines), facts=facts).answer(as_json=ctx.json)
    return 0


def _run(ctx: Context, told: Config) -> int:
    from maintenance.output.text import plural
    from maintenance.replicate.run import replicate

    ended = replicate(
        ctx, told, quiet=ctx.json, say=(lambda _line: None) if ctx.json else lambda line: click.echo(line, err=True)
    )
    if ctx.json:
        _print(ctx, told, {"restarts": ended.restarts, "signal": ended.signal})
    else:
        click.echo(f"Litestream was stopped and sent what it had; started again {plural(ended.restarts, 'time')}.")
    return 0


def _once(ctx: Context, told: Config) -> int:
    from maintenance.replicate.run import replicate_once

    done = replicate_once(ctx, told, quiet=ctx.json)
    if ctx.json:
        _print(
            ctx, told, {"transaction": done.transaction, "rounds": done.rounds, "proven": done.proven}
        )
    else:
        from maintenance.doctor.findings import command as command_line

        click.echo(f"The replica has everything that {ctx.db} had: transaction {done.transaction}.")
        click.echo(f"Next: {command_line('sessions replicate', ctx.db, '--drill')}")
    return 0


def _drill(ctx: Context, told: Config, max_lag: float | None) -> int:
    from maintenance.doctor.findings import command as command_line
    from maintenance.output.text import human_duration, plural
    from maintenance.replicate.drill import MAX_LAG_SECONDS, drill

    found = drill(ctx, told, max_lag_seconds=MAX_LAG_SECONDS if max_lag is None else max_lag)
    if ctx.json:
        _print(ctx, told, drilled(found))
        return found.exit_code
    if found.sound:
        how = "every table is the same" if found.equal else "every message that both should have is the same"
        click.echo(
            f"The replica gives {ctx.db} back: {plural(found.sessions or 0, 'session')}, "
            f"{plural(found.messages or 0, 'message')}; {how}."
        )
    else:
        click.echo(f"The replica does not give {ctx.db} back.")
    for line in found.problems:
        click.echo(f"  {line}")
    if found.behind:
        click.echo(
            f"It lags by {plural(found.behind, 'message')} (ids {found.newest_replica_id} to {found.newest_live_id}), "
            f"the oldest of them {human_duration(found.lag_seconds)} old."
        )
    elif found.sound:
        click.echo("It does not lag.")
    for line in found.findings:
        click.echo(f"  doctor: {line}")
    if not found.sound:
        click.echo(f"Next: {command_line('doctor', ctx.db)}, then docs/replication.md")
    return found.exit_code


def document(ctx: Context, told: Config) -> dict[str, Any]:
    """The fields that every form of the verb has."""
    return {"path": ctx.db, "config": told.path, "config_is_ours": told.ours, "replica": told.replica}


def drilled(found: Drilled) -> dict[str, Any]:
    """The fields of a drill."""
    return {
        "sound": found.sound, "equal": found.equal, "problems": found.problems, "findings": found.findings,
        "sessions": found.sessions, "messages": found.messages, "behind": found.behind,
        "lag_seconds": found.lag_seconds, "newest_live_id": found.newest_live_id,
        "newest_replica_id": found.newest_replica_id, "litestream": found.litestream, "rounds": found.rounds,
        "seconds": round(found.seconds, 3),
    }


def _print(ctx: Context, told: Config, more: dict[str, Any]) -> None:
    from maintenance.output.documents import print_json

    print_json({"dry_run": False} | document(ctx, told) | more)
