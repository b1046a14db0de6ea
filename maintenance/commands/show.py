"""`hermes-state sessions show`: one session's facts and messages; the work is in `maintenance.reading.session_page`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show one session: its facts, its lineage, its messages.

SESSION is an id, the start of one that no other id has, or a title. The first and last messages are shown, one line
each; --messages N shows N at each end, --all all of them in full.

What changes on disk: nothing. Lock: none; the store is opened read-only beside whoever uses it.
Left alone: everything.

\b
Example:
  hermes sessions show 20260820_0000
  hermes sessions show "Release plan" --messages 20
  hermes sessions show 20260820_0000 --all --json

Exit: 0 done, 1 failed or no such session, 2 usage or ambiguous, 65 damaged, 75 busy.
"""


@click.command("show", help=HELP, short_help="Show one session: its facts, its lineage, its messages.")
@click.argument("session")
@click.option("--messages", type=click.IntRange(min=0), default=3, show_default=True, help="Messages at each end.")
@click.option("--all", "everything", is_flag=True, help="All messages, in full, as they stream.")
@store_options
def command(ctx: Context, *, session: str, messages: int, everything: bool) -> None:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.marks import read_marks
    from maintenance.output.documents import print_json
    from maintenance.reading.resolve import resolve_session
    from maintenance.reading.session_output import print_messages, print_session, session_document
    from maintenance.reading.session_page import page_messages, session_page

    marks = read_marks(ctx.db)
    with reading(ctx) as store:
        dialect = dialect_of(store)
        with store.snapshot():
            session_id = resolve_session(store, dialect, session)
            page = session_page(
                store,
                dialect,
                marks,
                session_id,
                ctx.clock.now(),
                first=messages,
                last=messages,
                every_message=everything,
            )
            rows = page_messages(store, dialect, page)
            if ctx.json:
                print_json(session_document(page, rows, whole=everything))
            else:
                print_session(page, ctx.clock)
                print_messages(page, rows, ctx.clock, whole=everything)
