"""`hermes-state sessions spool`: the turns that wait beside a store; see `hermes_state.conversation.spooling`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.conversation.spooling import Replayed

HELP = """Show the turns that wait beside a store, and bring them in.

A turn that the store cannot take (busy, full, damaged, being rewritten) is kept in a folder beside it, on the disk,
until the store takes it. A program brings in what waits before it saves the next turn; --replay does it now. Replaying
is safe to repeat and to kill: each message is stored once. An item that can never be stored (its session was deleted,
its line is torn) is quarantined with the reason and holds nobody up; --requeue puts it back after the reason is gone.

What changes on disk: nothing; with --replay messages are appended and the spool's files taken away when all of them are
in the store.

Lock: none to look; with --replay the write lock, for some milliseconds for each twenty turns, beside whoever uses the
store.
Left alone: sessions that are there, messages that were brought in before.

\b
Example:
  hermes sessions spool
  hermes sessions spool --replay
  hermes sessions spool --requeue all --replay

Exit: 0 done, 1 failed, 2 usage, 3 items are quarantined, 65 damaged, 75 busy.
"""


@click.command("spool", help=HELP, short_help="Show turns that wait beside a store; bring them in.")
@click.option("--replay", is_flag=True, help="Bring in what waits.")
@click.option("--requeue", metavar="ID", help="Put a quarantined item back first, or `all` of them.")
@click.option("--dry-run", is_flag=True, help="Say what would be brought in; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options(must_exist=False)
def command(ctx: Context, *, replay: bool, requeue: str | None, dry_run: bool, yes: bool) -> int:
    from hermes_state.errors import NotFound
    from hermes_state.spool import Spool
    from hermes_state.store import open_store

    spool = Spool(ctx.db, clock=ctx.clock)
    if requeue is not None:
        chosen = [kept for kept in spool.quarantined() if requeue in ("all", kept.path.stem)]
        if not chosen and requeue != "all":
            raise NotFound(
                f"There is no quarantined item {requeue} in {spool.folder}.",
                hint="`hermes-state sessions spool` lists them.", path=spool.folder,
            )
        for kept in [] if dry_run else chosen:
            spool.requeue(kept)
    done: Replayed | None = None
    if replay and not dry_run and not spool.is_empty():
        with open_store(path=ctx.db, clock=ctx.clock) as store:
            done = store.spool.replay()
    shown = document(ctx, spool, done)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json(shown | {"dry_run": dry_run})
    else:
        tell(ctx, shown)
    return 3 if shown["quarantined"] else 0


def document(ctx: Context, spool: Any, done: Replayed | None) -> dict[str, Any]:
    """What waits, what is quarantined and what was brought in. Times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    return {
        "path": ctx.db,
        "folder": spool.folder,
        "waiting": [
            {
                "id": item.id, "session_id": item.payload.get("session_id"),
                "messages": len(item.payload.get("rows", [])), "at": rfc3339(item.at), "cause": item.cause,
            }
            for item in spool.items()
        ],
        "quarantined": [
            {"id": kept.path.stem, "file": kept.path, "code": kept.code, "reason": kept.reason, "at": rfc3339(kept.at)}
            for kept in spool.quarantined()
        ],
        "replayed": None if done is None else {"turns": done.applied, "messages": done.messages},
    }


def tell(ctx: Context, shown: dict[str, Any]) -> None:
    """The same for people."""
    from maintenance.doctor.findings import command as command_line
    from maintenance.output.text import plural, safe_text

    done = shown["replayed"]
    if done is not None:
        click.echo(f"{plural(done['turns'], 'turn')} brought in, {plural(done['messages'], 'message')} of them new.")
    waiting, quarantined = shown["waiting"], shown["quarantined"]
    if not waiting and not quarantined:
        click.echo(f"Nothing waits beside {ctx.db}.")
        return
    if waiting:
        click.echo(f"{plural(len(waiting), 'turn')} waiting in {shown['folder']}, oldest first:")
    for item in waiting:
        session = safe_text(item["session_id"])
        click.echo(f"  {item['at']}  {session}  {plural(item['messages'], 'message')}  {safe_text(item['cause'])}")
    if quarantined:
        click.echo(f"{plural(len(quarantined), 'item')} that cannot be stored:")
    for kept in quarantined:
        click.echo(f"  {kept['id']}  {safe_text(kept['reason'])}")
    if waiting:
        click.echo(f"Next: {command_line('sessions spool', ctx.db, '--replay')}")
