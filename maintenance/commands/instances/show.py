"""`hermes-state instances show`: one instance whole."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show one gateway instance: its state, what lets it in, its threads, when it was last seen.

The last line says which gateway server has the store, since when, and whether its process runs; whether the instance is
connected to it is in that process's memory and not known here.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything. No token and no credential is shown: the store has none.

\b
Example:
  hermes instances show laptop

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""

_SHOWN = 20


@click.command("show", help=HELP, short_help="Show one gateway instance, its threads, and when it was last seen.")
@click.argument("which", metavar="ID")
@store_options
def command(ctx: Context, *, which: str) -> None:
    from hermes_state import tombstones
    from hermes_state.instances import failures, last_seen, registry, remembered
    from maintenance.commands.instances.shown import document, opened, server, server_line, tombstone
    from maintenance.output.documents import print_json
    from maintenance.output.tables import print_facts
    from maintenance.output.text import plural, rfc3339, safe_text

    with opened(ctx, read_only=True) as store:
        one = store.instances.get(which)
        threads, many = store.instances.bound(which, limit=_SHOWN), store.instances.bound_count(which)
        with store.core.reader() as reader:
            link, needs = remembered.read(reader, which), failures.attention(reader, which)
            holder = store.gateway.holder()
            seen, buried = last_seen.read(reader, which), tombstones.find(reader, registry.KIND, which)
    facts = document(one) | {
        "last_seen_at": rfc3339(seen), "protocol_version": None if link is None else link.protocol_version,
        "attention": None if needs is None else {
            "code": needs.code, "since": rfc3339(needs.since), "detail": needs.detail
        },
        "bindings": many,
    }
    if ctx.json:
        print_json({
            "path": ctx.db, **facts, "server": server(holder), "tombstone": tombstone(buried),
            "threads": [
                {"thread_id": bound.thread_id, "session_id": bound.session_id, "created_at": rfc3339(bound.created_at)}
                for bound in threads
            ],
        })
        return
    if needs is not None:
        facts["attention"] = f"{needs.code} since {rfc3339(needs.since)} {needs.detail}".rstrip()
    print_facts((name.replace("_", " "), value) for name, value in facts.items() if value not in (None, ""))
    for bound in threads:
        click.echo(safe_text(f"thread {bound.thread_id} in session {bound.session_id}"))
    if many > len(threads):
        click.echo(f"… and {plural(many - len(threads), 'thread')} more")
    click.echo(server_line(holder, ctx))
