"""`hermes-state outbox show`: one obligation whole."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show one obligation with its payload and its last verdict.

ID is its number or its dedupe id. A payload is readable until a day after it was settled.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes outbox show 17

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("show", help=HELP, short_help="Show one obligation with its payload and its last verdict.")
@click.argument("which", metavar="ID")
@store_options
def command(ctx: Context, *, which: str) -> None:
    import json

    from maintenance.commands.outbox.shown import document, key_of, opened
    from maintenance.output.documents import print_json
    from maintenance.output.tables import print_facts

    with opened(ctx, read_only=True) as store:
        one = store.outbox.get(key_of(which))
    if ctx.json:
        print_json({"path": ctx.db, **document(one), "payload": one.payload})
        return
    facts = document(one)
    print_facts((name.replace("_", " "), value) for name, value in facts.items() if value not in (None, "", 0))
    if one.payload is None:
        click.echo(f"Its payload ({one.payload_bytes} bytes) was blanked after it was settled.")
    else:
        click.echo(json.dumps(one.payload, indent=2, ensure_ascii=True))
