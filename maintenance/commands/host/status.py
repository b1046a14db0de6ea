"""`hermes-state host status`: who owns the host and which gateways live."""

from __future__ import annotations

import click

HELP = """Show who owns the host, which gateways live and what they need.

The host is everything that one user of one machine runs. Its owner is the gateway that holds the lock gateway.lock;
whom it serves is what it answers now, not what a file says. Then each run that is not known to have ended: alive (with
a sign of life in the last 120 s), silent, dead (by proof), unknown (of another boot or container), or ignored (another
user's).

Below that, where there is any: platforms that need attention, stores that do not open, runs that end to be started
again, runs whose code is not what lies on disk and how to restart each, homes that two gateways serve or two units
start, and open markers.

What changes on disk: nothing. Lock: none is kept; the owner is asked over its socket.
Left alone: every home and its store.

\b
Example:
  hermes host status
  hermes host status --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("status", help=HELP, short_help="Show who owns the host, which gateways live and what they need.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md).")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool) -> None:
    import os

    from hermes_state.errors import NotFound
    from hermes_state.host import SessionStore, host_folder, open_host
    from hermes_state.host.folder import LOCK_NAME
    from hermes_state.host.layout import HOST_NAME
    from hermes_state.host.status import served_twice
    from maintenance.commands.host import shown
    from maintenance.output.documents import print_json

    as_json = as_json or bool((ctx.obj or {}).get("as_json"))
    path = host_folder(os.environ) / HOST_NAME
    try:
        host = open_host(read_only=True)
    except NotFound:
        if as_json:
            print_json({
                "path": path, "host": None, "runs": [], "stale": [], "conflicts": [], "served_twice": [],
                "markers": [],
            })
        else:
            click.echo(f"No gateway of this user has run here: there is no {path}.")
        return
    with host:
        view, statuses, stale = host.host_gateway(), host.statuses(), host.stale_code()
        markers = host.markers.list_open()
        labels = {home: host.guards(home).labels for home in sorted({one.judged.gateway.home for one in statuses})}
    host_lock = path.parent / LOCK_NAME
    twice = served_twice(statuses)
    conflicts = [{"home": home, "labels": list(found)} for home, found in labels.items() if len(found) > 1]
    if as_json:
        print_json({
            "path": path, "host": shown.host_document(view), "runs": [shown.run_document(one) for one in statuses],
            "stale": [shown.stale_document(one) for one in stale], "conflicts": conflicts,
            "served_twice": [{"home": home, "gateways": [run.no for run in runs]} for home, runs in twice.items()],
            "markers": [shown.marker_document(one) for one in markers],
        })
        return
    from maintenance.output.tables import Column, print_table

    owner = view.owner
    if owner is None:
        click.echo(f"Owner: {view.seen}: {'; '.join(view.because)}.")
    else:
        answer = view.answer
        homes = "does not answer" if answer is None else (
            "has not settled whom it serves" if answer.served is None else f"serves {len(answer.served)} homes"
        )
        click.echo(f"Owner: {owner} (fence {owner.fence}), {homes}.")
        if view.lock_lost:
            click.echo(f"Lock: {host_lock} was removed or replaced; the owner keeps the host while it lives.")
    columns = [
        Column("no", right=True), Column("pid", right=True), Column("life"), Column("state"),
        Column("agents", right=True), Column("started by"), Column("home", shrinks=True),
    ]
    rows = []
    for status in statuses:
        run = status.judged.gateway
        who = run.supervisor if not run.label else f"{run.supervisor}:{run.label}"
        pid = "" if run.identity is None else run.identity.pid
        rows.append((run.no, pid, shown.life(status), run.state, run.active_agents, who, run.home))
    if rows:
        print_table(columns, rows)
    from hermes_state.host.status import current_platforms

    for one in current_platforms(statuses).values():
        if one.needs_attention is not None:
            click.echo(f"Attention: {one.platform} of {one.home} ({one.state}): {one.needs_attention}")
    for status in statuses:
        for home, store in status.stores.items() if status.judged.may_live else ():
            if store in (SessionStore.RETRYING, SessionStore.UNAVAILABLE):
                click.echo(f"Store: {home} is {store} in gateway {status.judged.gateway.no}")
        if status.judged.gateway.restart_requested:
            click.echo(f"Restart: gateway {status.judged.gateway.no} ends to be started again")
    for old in stale:
        click.echo(f"Old code: gateway {old.gateway.no} ({old.gateway.home}): {old.how}")
    for home, runs in twice.items():
        click.echo(f"Served twice: {home} by {' and by '.join(f'gateway {run.no}' for run in runs)}")
    for conflict in conflicts:
        click.echo(f"Started twice: {conflict['home']} by {' and by '.join(conflict['labels'])}")
    for marker in markers:
        target = "" if marker.target is None else f" for PID {marker.target.pid}"
        click.echo(f"Marker: {marker.kind} of {marker.home}{target}: {marker.reason}")
