"""`hermes-state sessions view`: what a model is sent of a session, now or through any generation."""

from __future__ import annotations

from typing import Any

import click

from maintenance.context import Context, store_options

HELP = """Show what a model is sent of a session, now or as of a generation.

SESSION is an id, the start of one that no other id has, or a title. One line a message, with its place in the session
and its tokens by the built-in estimate; --all shows them whole. A generation is one pass of compaction
(`hermes-state sessions compact SESSION --generations` lists them). What it hides is in `hermes-state sessions show`,
and --as-of 0 shows the view as if the session had never been compacted.

What changes on disk: nothing. Lock: none; the store is opened read-only beside whoever uses it.
Left alone: everything. A file of hermes-agent is refused with the command that adopts it.

\b
Example:
  hermes-state sessions view 20260820_0000
  hermes-state sessions view 20260820_0000 --as-of 2 --json

Exit: 0 done, 1 failed, no such session or generation, 2 usage, 65 damaged, 75 busy.
"""


@click.command("view", help=HELP, short_help="Show what a model is sent of a session, by generation.")
@click.argument("session")
@click.option("--as-of", type=click.IntRange(min=0), metavar="GEN",
              help="Through generation GEN; 0: uncompacted (default: as it is seen now).")
@click.option("--all", "whole", is_flag=True, help="Messages in full (default: one line each).")
@store_options
def command(ctx: Context, *, session: str, as_of: int | None, whole: bool) -> None:
    from hermes_state.store import open_store
    from maintenance.commands.compact import _resolved
    from maintenance.reading.compaction_output import tell_view, view_document

    with open_store(path=ctx.db, clock=ctx.clock, read_only=True) as store:
        session_id = _resolved(ctx, session)
        view = store.compaction.view(session_id, as_of=as_of)
    shown: dict[str, Any] = {"path": ctx.db, "session_id": session_id, "as_of": as_of} | view_document(view)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json(shown)
    else:
        tell_view(shown, whole=whole)
