"""`hermes-state outbox show`: one obligation whole."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show one obligation with its payload and its last verdict.

ID is its number in `hermes outbox list`, or its dedupe id. Times are local; --json has them in UTC. A payload is
readable until a day after the obligation was settled. `hermes outbox retry ID` sends it now or owes it again, `hermes
outbox drop ID` takes it back.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes outbox show 17
  hermes outbox show final/20260914_102205_ab12/3 --json

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("show", help=HELP, short_help="Show one obligation with its payload and its last verdict.")
@click.argument("which", metavar="ID")
@store_options
def command(ctx: Context, *, which: str) -> None:
    from maintenance.commands.outbox.shown import document, facts, find, json_lines, opened, verdict_lines
    from maintenance.output.documents import print_json
    from maintenance.output.tables import print_facts
    from maintenance.output.text import plural

    with opened(ctx, read_only=True) as store:
        looked = find(store, which)
    one = looked.obligation
    if ctx.json:
        print_json({"path": ctx.db, **document(looked), "payload": one.payload})
        return
    print_facts(facts(looked, ctx))
    for text in verdict_lines(one, ctx):
        click.echo(text)
    if one.blanked:
        click.echo(f"Its payload ({plural(one.payload_bytes, 'byte')}) was blanked after it was settled.")
    elif "payload" in one.unreadable:
        click.echo(f"Its payload ({plural(one.payload_bytes, 'byte')}) cannot be read.")
    else:
        click.echo(f"Payload ({plural(one.payload_bytes, 'byte')}):")
        for text in json_lines(one.payload):
            click.echo(text)
