"""`hermes-state sessions delete`: options in; the work is in `maintenance.removal`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

VERB = "sessions delete"

HELP = """Delete the named sessions with their delegates.

An id may be shortened as long as it fits one session. A compressed conversation goes with all its parts, delegates go
along, branches stay as sessions of their own; the plan lists all of it before the question. An id that is gone and that
the ledger names as deleted is already done.

What changes on disk: rows of those sessions in every table, their entries in the search indexes, and their files in the
home's sessions folder. The file keeps its size; `sessions optimize` returns free pages. Every delete is written to the
ledger beside the store before it happens.

Lock: on files of hermes-agent SQLite's exclusive lock for the whole run, mostly under a second. Refused while other
processes hold the store, with their names. With --online, and on native stores by default, no exclusive lock:
transactions of at most 200 rows with rests between them. Every page is checked first (about 1 s a GB when cached);
damage stops the run before anything is deleted.

Left alone: everything that is not named. A session that a turn lease, a compression lock or the runtime ledger guards
is refused, and then nothing is deleted; --dry-run lists it with the reason.

\b
Example:
  hermes sessions delete 20260612_000000_35250c --dry-run
  hermes sessions delete 20260612 20260103_000001 --online

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("delete", help=HELP, short_help="Delete the named sessions with their delegates.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="List what would go along; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--online/--offline", default=None,
    help="In short steps beside the programs that use the store (native stores: the default), or alone on it.",
)
@store_options
def command(ctx: Context, *, ids: tuple[str, ...], dry_run: bool, yes: bool, online: bool | None) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.gate import reading
    from maintenance.output.progress import progress
    from maintenance.output.text import safe_text
    from maintenance.removal.choice import choose_by_name
    from maintenance.removal.flow import Manner, run

    with reading(ctx) as store, progress(None, "looking up what goes along"):
        gone = _deleted_before(store, ids)
        left = [name for name in ids if name not in gone]
        choice = choose_by_name(store, left, ctx.clock.now(), only_look=dry_run)
    if gone and not ctx.json:
        for key, at in gone.values():
            click.echo(safe_text(f"Already done: {key} was deleted, as the ledger says at {at}."), err=bool(left))
        if not left:
            return 0
    manner = Manner(
        verb=VERB,
        reason="named on the command line",
        dry_run=dry_run,
        yes=yes,
        online=choice.dialect.is_native if online is None else online,
        allow_large=False,
        reclaim="never",
        sweeps=False,
    )
    return run(ctx, choice, manner)


def _deleted_before(store: ReadStore, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Names of sessions that the store no longer has and the ledger has: name -> (id, when).

    A whole id in the ledger is that session and never the start of another one's: a repeat must not delete more.
    """
    from maintenance.dialects.detect import dialect_of
    from maintenance.ledger import deleted_at

    dialect = dialect_of(store)
    beginning = {name: dialect.ids_with_prefix(store, name.strip(), 1) for name in names if name.strip()}
    missing = {name: ids for name, ids in beginning.items() if name.strip() not in ids}
    if not missing:
        return {}
    deleted = deleted_at(store.path)
    if dialect.is_native:
        deleted |= _entombed(store, missing)
    found: dict[str, tuple[str, str]] = {}
    for name, ids in missing.items():
        key = name.strip()
        known = [key] if key in deleted else [each for each in deleted if each.startswith(key)]
        if len(known) == 1 and (known[0] == key or not ids):
            found[name] = (known[0], deleted[known[0]])
    return found


def _entombed(store: ReadStore, names: Iterable[str]) -> dict[str, str]:
    """Ids that a native store keeps from coming back, whoever deleted them: id -> when."""
    from hermes_state.tombstones import find
    from maintenance.output.text import rfc3339

    stones = {key: find(store, "session", key) for key in (name.strip() for name in names) if key.isprintable()}
    return {key: rfc3339(stone.made_at) or "an unknown time" for key, stone in stones.items() if stone is not None}
