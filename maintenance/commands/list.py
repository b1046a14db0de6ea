"""`hermes-state sessions list`: options in, one page out; the work is in `maintenance.reading.listing`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options
from maintenance.selection import Filters, filter_options

HELP = """List sessions, newest activity first.

One line is one conversation: a compressed conversation shows the id of its last segment and the start of its first.
Filters apply before --limit. Archived sessions, delegates and the sessions of tools are left out and counted below the
list, so that the figures add up to those of `hermes-state sessions stats`.

What changes on disk: nothing. Lock: none; the store is opened read-only beside whoever uses it.
Left alone: everything.

\b
Example:
  hermes sessions list --source telegram --newer-than 7d
  hermes sessions list --workspace my-project --limit 50
  hermes sessions list --all --json

Exit: 0 done (no session is no failure), 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List sessions, newest activity first.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Lines on the page.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Lines to pass over first.")
@click.option("--all", "everything", is_flag=True, help="Every session: no limit, archived, delegates and tools too.")
@filter_options
@store_options
def command(ctx: Context, *, limit: int, offset: int, everything: bool, filters: Filters) -> None:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.marks import read_marks
    from maintenance.output.documents import print_json
    from maintenance.output.progress import progress
    from maintenance.output.text import safe_text
    from maintenance.reading.listing import list_filters, list_sessions
    from maintenance.reading.listing_output import list_document, print_list

    marks = read_marks(ctx.db)
    chosen = list_filters(filters, everything=everything)
    unlimited = everything and click.get_current_context().get_parameter_source("limit") is not _COMMANDLINE
    with reading(ctx) as store, progress(None, "reading sessions") as bar:
        page = list_sessions(
            store,
            dialect_of(store),
            marks,
            chosen,
            ctx.clock.now(),
            limit=None if unlimited else limit,
            offset=offset,
            advance=bar.advance,
        )
    if ctx.json:
        print_json({"path": str(ctx.db)} | list_document(page))
    else:
        print_list(page, ctx.clock)
        # An empty list of the wrong profile looks like lost history, so the store is always named.
        click.echo(f"Store: {safe_text(str(ctx.db))}")


_COMMANDLINE = click.core.ParameterSource.COMMANDLINE
