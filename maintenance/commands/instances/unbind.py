"""`hermes-state instances unbind`: take threads from the instance that serves them."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Delete the bindings of threads, so that they may be bound anew, and no tombstone waits for them.

What a gateway is owed for a thread is taken back, but for stops, which stay owed; turns and questions that are kept of
it go with its binding. A thread with a turn that runs is refused: stop it, or revoke its instance, first.

What changes on disk: the binding of each, and what goes with it. Lock: the write lock, for some milliseconds each,
beside whoever uses the store.
Left alone: the instances, the transcripts, and every other thread.

\b
Example:
  hermes instances unbind "thread 7"
  hermes instances unbind "thread 7" "thread 8" --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("unbind", help=HELP, short_help="Take threads from the gateway instance that serves them.")
@click.argument("which", nargs=-1, required=True, metavar="THREAD...")
@click.option("--dry-run", is_flag=True, help="Say what would be unbound; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    from hermes_state.errors import ThreadNotFound
    from hermes_state.turns.ending import refuse_unbinding
    from maintenance.commands.instances.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_time, plural, rfc3339, safe_text
    from maintenance.plan import Plan, confirm

    chosen = list(dict.fromkeys(which))
    with opened(ctx, read_only=True) as store:
        bound = []
        for name in chosen:
            one = store.instances.binding(name)
            if one is None:
                raise ThreadNotFound(
                    f"No gateway serves thread {name!r} in {ctx.db}.",
                    hint="`hermes-state instances show ID` lists the threads of an instance.", path=ctx.db,
                    thread_id=name,
                )
            bound.append(one)
        with store.core.reader() as reader:
            for name in chosen:
                refuse_unbinding(reader, name)
    threads = [
        {
            "thread_id": one.thread_id, "instance_id": one.instance_id, "session_id": one.session_id,
            "since": rfc3339(one.created_at),
        }
        for one in bound
    ]
    plan = Plan(
        title=f"{plural(len(bound), 'thread')} of {ctx.db} to unbind",
        lines=tuple(
            safe_text(
                f"{one.thread_id}  session {one.session_id} of {one.instance_id} since"
                f" {human_time(one.created_at, ctx.clock)}"
            )
            for one in bound
        ),
        facts={"path": ctx.db, "threads": threads, "already_done": []},
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if not confirm(plan, yes=yes, question="Unbind them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        already = [name for name in chosen if not store.instances.unbind(name)]
    if ctx.json:
        print_json({"dry_run": False, "path": ctx.db, "threads": threads, "already_done": already})
        return 0
    for name in chosen:
        click.echo(safe_text(f"{name} was unbound before." if name in already else f"{name} is unbound."))
    return 0
