"""`hermes-state sessions backup`: options in, report out; the work is in `maintenance.backups`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.backups.making import Backup, BackupPlan

HELP = """Make a verified copy of the store, beside whoever uses it.

The copy is the store at one moment. Before it counts, its pages are checked, every table is compared with the store by
count and content, and it is synced; a manifest beside it says what is in it, with hashes. A damaged store gives no
backup, and no earlier one is touched. It is one database file that any SQLite program opens, or, with --encrypt, one
file that opens with a passphrase (asked for, or from --passphrase-file or HERMES_BACKUP_PASSPHRASE).

With --keep N the oldest verified backups of this store go afterwards, until N are left. The one just made, files
without a manifest and backups of other stores stay.

What changes on disk: new files in the folder of backups. The store is only read.

Lock: none that a writer waits for. While it reads, the WAL cannot start over, so it grows by what is written meanwhile.
A store in rollback mode makes writers wait while its pages are copied.

\b
Example:
  hermes sessions backup
  hermes sessions backup --to /mnt/disk/hermes --keep 14
  hermes sessions backup --encrypt --passphrase-file ~/.backup-passphrase

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("backup", help=HELP, short_help="Make a verified copy of the store, encrypted if wished.")
@click.option("--to", metavar="DIR", help="The folder for it (default: backups, beside the store).")
@click.option("--keep", type=click.IntRange(1, 100_000), metavar="N", help="Keep only the newest N of this store.")
@click.option("--encrypt", is_flag=True, help="Encrypt it with a passphrase.")
@click.option("--passphrase-file", metavar="FILE", help="With --encrypt: the passphrase is the first line of FILE.")
@click.option("--dry-run", is_flag=True, help="Say what would be made and whether there is room; write nothing.")
@store_options
def command(
    ctx: Context, *, to: str | None, keep: int | None, encrypt: bool, passphrase_file: str | None, dry_run: bool
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from pathlib import Path

    from hermes_state.errors import InvalidInput
    from maintenance.backups.making import backup, make_plan
    from maintenance.commands.passphrase import passphrase_for
    from maintenance.output.working import working

    if passphrase_file is not None and not encrypt:
        raise InvalidInput("--passphrase-file is for --encrypt.", hint="Add --encrypt.", option="--passphrase-file")
    folder = None if to is None else Path(to).expanduser()
    plan = make_plan(ctx.db, folder, keep=keep, sealed=encrypt, clock=ctx.clock)
    if dry_run:
        _show_plan(ctx, plan)
        return 0
    passphrase = passphrase_for(passphrase_file, twice=True) if encrypt else None
    with working() as progress:
        done = backup(ctx.db, folder, keep=keep, passphrase=passphrase, progress=progress, clock=ctx.clock)
    _print(ctx, done)
    return 0


def _show_plan(ctx: Context, plan: BackupPlan) -> None:
    from maintenance.output.text import human_bytes
    from maintenance.plan import Plan

    lines = [f"into {plan.target}, about {human_bytes(plan.bytes)}{', encrypted' if plan.sealed else ''}"]
    if plan.keep is not None:
        lines.append(f"afterwards the newest {plan.keep} verified backups of this store stay")
    Plan(title=f"Back up {plan.store}", lines=tuple(lines), facts=plan.document()).answer(as_json=ctx.json)


def _print(ctx: Context, done: Backup) -> None:
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_bytes, safe_text

    if ctx.json:
        print_json({"dry_run": False} | done.document())
        return
    content = done.manifest.content
    compared = "compared with the store" if done.manifest.compared else "pages checked"
    click.echo(safe_text(
        f"Backed up {content.sessions} sessions and {content.messages} messages to {done.path} "
        f"({human_bytes(done.manifest.bytes)}, {compared}) in {done.seconds:.1f} s."
    ))
    if done.manifest.foreign_key_problems:
        click.echo(
            f"Note: {done.manifest.foreign_key_problems} rows refer to a row that is not there, in the store as in the "
            "backup."
        )
    for path in done.removed:
        click.echo(safe_text(f"Removed {path.name}."))
