"""`hermes-state sessions tail`: the newest messages, and with -f those that come; see `maintenance.reading.tail`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.reading.tail import Event

HELP = """Show the newest messages of all sessions, and follow them.

One line is one message, or in a native store also one change: a session that was created, renamed, ended or deleted.
With -f it goes on printing what any process commits, until it is interrupted; where the folder can be watched a line
comes within some 50 ms, elsewhere within a second. With -f --json each event is one line of JSON.

What changes on disk: nothing. Lock: none; the store is opened read-only beside whoever uses it, and nothing is held
open between two lines that would keep a checkpoint from finishing.
Left alone: everything.

\b
Example:
  hermes sessions tail
  hermes sessions tail -f
  hermes sessions tail -f --limit 0 --json | jq .preview

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy, 130 interrupted.
"""


@click.command("tail", help=HELP, short_help="Show the newest messages of all sessions, and follow them.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--limit", "-n", type=click.IntRange(min=0, max=10_000), default=10, show_default=True,
              help="How many to begin with.")
@store_options
def command(ctx: Context, *, follow: bool, limit: int) -> None:
    from hermes_state.changes import CommitWatch
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.output.documents import print_json
    from maintenance.reading.tail import Tail
    from maintenance.reading.tail_output import event_document

    with reading(ctx) as store:
        tail = Tail(store, dialect_of(store))
        events = tail.recent(limit)
        if ctx.json and not follow:
            print_json({"path": ctx.db, "events": [event_document(event) for event in events]})
            return
        show(ctx, events)
        if not follow:
            return
        with CommitWatch(ctx.db, clock=ctx.clock) as watch:
            while watch.until(store, tail.moved, timeout_seconds=None):
                show(ctx, tail.news())


def show(ctx: Context, events: Iterable[Event]) -> None:
    """Print them at once, also into a pipe."""
    from maintenance.reading.tail_output import event_json_line, event_line

    for event in events:
        click.echo(event_json_line(event) if ctx.json else event_line(event, ctx.clock))
