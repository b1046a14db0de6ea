"""`hermes-state work show`: one piece of background work, lane, reply or sign-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.store import Store

HELP = """Show one piece of background work with its result, or what waits in a lane.

WHICH is the first word of a line of `hermes work list`: process/ID/EPOCH, delegation/ID, lane/KEY, reply/TURN or
login/ID. A result is readable until it is forgotten, also when nobody was told of it. Times are local; --json has them
in UTC.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes work show delegation/d41
  hermes work show lane/agent:main:telegram:dm:7 --json

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""
MOST_ITEMS = 200


@click.command("show", help=HELP, short_help="Show one piece of background work, or what waits in a lane.")
@click.argument("which", metavar="WHICH")
@store_options
def command(ctx: Context, *, which: str) -> None:
    from hermes_state.store import open_store
    from maintenance.commands.outbox.shown import json_lines
    from maintenance.output.documents import print_json

    with open_store(path=ctx.db, read_only=True, clock=ctx.clock) as store:
        kind, facts, details = _found(store, which)
    if ctx.json:
        print_json({"path": ctx.db, "kind": kind, "facts": facts, "details": details})
        return
    for text in json_lines({name: value for name, value in facts.items() if value not in (None, "")}):
        click.echo(text)
    if details is not None:
        click.echo("Details:")
        for text in json_lines(details):
            click.echo(text)


def _found(store: Store, which: str) -> tuple[str, dict[str, Any], Any]:
    """Its kind, what `work list` says of it, and what it holds."""
    from hermes_state.errors import NotFound
    from hermes_state.work.background import Process
    from maintenance.commands.work import shown

    kind, _slash, rest = which.partition("/")
    work = store.work
    if kind == "process" and rest:
        name, _slash, epoch = rest.partition("/")
        process = work.processes.get(name, epoch or None)
        if process is not None:
            said = {
                "command": process.command, "cwd": process.cwd, "pid": process.pid, "pid_scope": process.pid_scope,
                "exit_code": process.exit_code, "patterns": list(process.patterns), "output": process.output,
            }
            return kind, shown.background(process), said
    elif kind == "delegation" and rest:
        given = work.delegations.get(rest)
        if given is not None:
            assert not isinstance(given, Process)
            return kind, shown.background(given), {"task": given.task, "result": given.result}
    elif kind == "lane" and rest:
        items = work.lanes.waiting(rest, limit=MOST_ITEMS)
        if items:
            return kind, {"lane": rest, "waiting": len(items)}, [shown.item(one) for one in items]
    elif kind == "reply" and rest:
        reply = work.streams.get(rest)
        if reply is not None:
            return kind, shown.reply(reply), None
    elif kind == "login" and rest:
        return kind, shown.login(work.logins.get(rest)), None
    raise NotFound(
        f"There is no {which!r} in {store.core.path}.",
        hint="Take the first word of a line of `hermes-state work list`.", path=store.core.path,
    )
