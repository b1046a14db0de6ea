"""`hermes-state routing import`: chats of hermes-agent's session index go on where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.store import Store

HELP = """Bring in which session each chat goes on in, from hermes-agent's session index.

FILE is sessions/sessions.json of a home, as hermes-agent 0.19 writes it; without --from that of the home of the store.
Bring in the sessions first, with `hermes sessions adopt` or `hermes sessions import`: an entry whose session is not in
the store is not brought in. Neither is one of another profile, or one whose key is not that of its chat. What is routed
here already stays as it is. Fields that hermes-agent 0.19 does not write are named and not kept; credentials of a model
choice never are.

An entry that does not say whose bot received it says nothing here either: the only bot of its platform and profile
answers until a message comes.

What changes on disk: one row a chat. Lock: the write lock, for some milliseconds each, beside whoever uses the store.
Left alone: FILE, and hermes-agent's own routing table.

\b
Example:
  hermes routing import --dry-run
  hermes routing import --profile work --from ~/.hermes/profiles/work/sessions/sessions.json

Exit: 0 done, 1 refused or failed, 2 usage, 3 some entries could not be brought in, 65 damaged, 75 busy.
"""


@click.command("import", help=HELP, short_help="Bring in where chats go on, from hermes-agent's session index.")
@click.option("--from", "file", metavar="FILE", help="The index; default: sessions/sessions.json of the home.")
@click.option("--dry-run", is_flag=True, help="Say what would be brought in; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, file: str | None, dry_run: bool, yes: bool) -> int:
    from pathlib import Path

    from maintenance.commands.outbox.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text

    source = Path(file).expanduser().absolute() if file is not None else ctx.db.parent / "sessions" / "sessions.json"
    with opened(ctx, read_only=dry_run) as store:
        found = bring_in(store, read_index(source), dry_run=dry_run)
    if ctx.json:
        print_json({"dry_run": dry_run, "path": ctx.db, "source": source} | found)
        return 3 if found["problems"] else 0
    for one in found["routes"]:
        words = "would go on" if dry_run else "goes on"
        click.echo(safe_text(f"{one['session_key']}  {one['state']}  {words} in {one['session_id']}"))
    for key in found["present"]:
        click.echo(safe_text(f"{key}  is routed here already"))
    for one in found["unknown"]:
        click.echo(safe_text(f"{one['entry']}: not known and not kept: {', '.join(one['fields'])}"), err=True)
    for one in found["problems"]:
        click.echo(safe_text(f"{one['entry']}: {one['why']}"), err=True)
    click.echo(f"{plural(len(found['routes']), 'chat')} {'to bring in' if dry_run else 'brought in'}.")
    return 3 if found["problems"] else 0


def read_index(source: Path) -> dict[str, Any]:
    """The entries of an index, by the keys that it has them under. Raises `NotFound`, `InvalidInput`."""
    import json

    from hermes_state.errors import InvalidInput, NotFound

    try:
        found = json.loads(source.read_bytes())
    except FileNotFoundError as error:
        raise NotFound(
            f"There is no file {source}.",
            hint="hermes-agent writes it where `gateway.write_sessions_json` is not false; name another with --from.",
            path=source,
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{source} is no JSON: {error}.", hint="Name hermes-agent's sessions.json with --from.", argument="--from",
            path=source,
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(
            f"{source} is no index of sessions: it holds {type(found).__name__}, and an index is an object.",
            hint="Name hermes-agent's sessions.json with --from.", argument="--from", path=source,
        )
    # hermes-agent's own notes in the file begin so.
    return {key: entry for key, entry in found.items() if not key.startswith("_")}


def bring_in(store: Store, entries: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Bring entries in, each by itself; the fields of `--json` that say what became of them."""
    from hermes_state.errors import HomeRemoved, InvalidInput, KeyCollision, SessionDeleted, SessionNotFound
    from hermes_state.routing import taking_in

    home = store.routing.home
    routes: list[dict[str, Any]] = []
    present: list[str] = []
    problems: list[dict[str, str]] = []
    unknown: list[dict[str, Any]] = []
    made: set[str] = set()
    for name, entry in entries.items():
        try:
            # The key in the entry is the one that hermes-agent goes by; an index that has it elsewhere was edited.
            if isinstance(entry, dict) and entry.get("session_key") != name:
                raise InvalidInput(
                    f"The index has it under {name!r}, and it says {entry.get('session_key')!r:.80}.",
                    argument="session_key",
                )
            old = taking_in.old_entry(entry, profile=home.profile)
            with store.core.reader() as reader:
                there = taking_in.look(reader, home, old)
            if there is None and not dry_run:
                store.routing.take_in(entry, home)
        except HomeRemoved:
            raise
        except (InvalidInput, SessionNotFound, SessionDeleted, KeyCollision) as error:
            problems.append({"entry": name, "why": error.message})
            continue
        if fields := taking_in.unknown_fields(entry):
            unknown.append({"entry": name, "fields": fields})
        if there is not None or old.key.text in made:
            present.append(old.key.text)
        else:
            made.add(old.key.text)
            routes.append({
                "session_key": old.key.text, "session_id": old.session_id, "state": str(old.state),
                "transport_profile": old.transport_profile,
            })
    return {"routes": routes, "present": present, "unknown": unknown, "problems": problems}
