"""`hermes-state sessions prune`: options in; the work is in `maintenance.removal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options
from maintenance.selection import Filters, Limits, filter_options, limit_options

if TYPE_CHECKING:
    from maintenance.space.reclaim import Policy

VERB = "sessions prune"

HELP = """Delete old ended sessions and return the space.

Bare, it takes sessions that ended, whose last activity is more than 90 days ago, and that are neither archived nor
pinned. Any filter or age replaces the 90 days. Delegates go with the session that handed the work out; the parts of a
compressed conversation go together or not at all; branches stay.

What changes on disk: rows of those sessions in every table, their entries in the search indexes, and their files in the
home's sessions folder. Free pages are returned when they are more than a tenth of the file (--reclaim). Every delete is
written to the ledger beside the store before it happens.

--max-size deletes the conversations that were active longest ago until the file holds no more than that, whatever their
age; --keep-last spares the newest ones that the filters mean. Given alone, each replaces the 90 days.

Lock: on files of hermes-agent SQLite's exclusive lock for the whole run; the plan says for about how long. Refused
while other processes hold the store, with their names. With --online, and on native stores by default, no exclusive
lock: transactions of at most 200 rows and about 10 ms with rests between them.

Every page is checked before the lock (about 1 s a GB when cached), with --online too; damage stops the run before
anything is deleted. Beside Litestream the WAL is copied into the file and not emptied.

Left alone: pinned sessions, sessions that nothing ended (archive hides those), sessions that a turn lease, a
compression lock or the runtime ledger guards, and tables of other programs. An interrupted run loses nothing; the same
command finishes it.

\b
Example:
  hermes sessions prune --dry-run
  hermes sessions prune --older-than cron=7d,cli=90d --online

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("prune", help=HELP, short_help="Delete old ended sessions and return the space.")
@filter_options
@click.option("--dry-run", is_flag=True, help="List what would go and what stays and why; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--allow-large", is_flag=True, help="Let --yes delete more than half of all sessions.")
@click.option(
    "--online/--offline", default=None,
    help="In short steps beside the programs that use the store (native stores: the default), or alone on it.",
)
@limit_options
@click.option(
    "--reclaim", type=click.Choice(["auto", "never"]), default="auto", show_default=True,
    help="Return free pages when that pays, or never.",
)
@store_options
def command(
    ctx: Context,
    *,
    filters: Filters,
    limits: Limits,
    dry_run: bool,
    yes: bool,
    allow_large: bool,
    online: bool | None,
    reclaim: Policy,
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.gate import reading
    from maintenance.output.progress import progress
    from maintenance.removal.choice import choose_for_prune
    from maintenance.removal.describe import reason_words
    from maintenance.removal.flow import Manner, run

    with reading(ctx) as store, progress(None, "choosing sessions"):
        choice = choose_for_prune(store, filters, ctx.clock.now(), limits=limits)
    manner = Manner(
        verb=VERB,
        reason=reason_words(choice),
        dry_run=dry_run,
        yes=yes,
        online=choice.dialect.is_native if online is None else online,
        allow_large=allow_large,
        reclaim=reclaim,
        sweeps=True,
    )
    return run(ctx, choice, manner)
