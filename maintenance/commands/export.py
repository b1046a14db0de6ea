"""`hermes-state sessions export`: options in, a verified file out; the work is in `maintenance.reading.export`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from hermes_state.errors import InvalidInput
from maintenance.context import Context, store_options
from maintenance.output.streams import stdout_is_closed
from maintenance.selection import Filters, filter_options

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.dialects.base import Dialect
    from maintenance.marks import Marks
    from maintenance.reading.export.items import Chosen, ExportSource
    from maintenance.reading.export.run import ExportedFile, Format

HELP = """Write sessions to a file, one JSON line each.

OUTPUT is a file, - for standard output (not sqlite), or with --format md a folder (session-exports in the home).
A JSON line is a session with every column of its row and its live messages, as hermes-agent imports them. A delegate
goes along with the session that handed it out. Archived sessions need --include-archived; rewound and compacted
messages need --all-messages; what was left out is said on stderr.

What changes on disk: only the files named; each is written under another name, read back, counted, then put in place
(mode 0600). An existing file needs --force. Lock: none; the store is opened read-only, a snapshot for each session.
Leaves the store alone.

\b
Example:
  hermes sessions export all.jsonl --include-archived
  hermes sessions export - --session-id 20260820_0000 --redact
  hermes sessions export talks.html --format html --source telegram --newer-than 30d

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("export", help=HELP, short_help="Write sessions to a file, one JSON line each.")
@click.argument("output", required=False)
@click.option("-o", "--output", "output_option", metavar="FILE", help="The same as OUTPUT.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "html", "md", "sqlite"]),
    default="jsonl",
    show_default=True,
    help="What to write.",
)
@click.option("--session-id", metavar="ID", help="Only this session: an id or the start of one.")
@click.option("--only", type=click.Choice(["user-prompts"]), help="Only what people wrote.")
@click.option(
    "--lineage",
    type=click.Choice(["single", "logical"]),
    default="single",
    show_default=True,
    help="A record a session, or one for all segments of a conversation.",
)
@click.option("--all-messages", is_flag=True, help="Rewound and compacted messages too.")
@click.option("--redact", is_flag=True, help="Mask what looks like keys, tokens and passwords. A help, not a proof.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--dry-run", is_flag=True, help="Say what would be written and stop.")
@filter_options
@store_options
def command(
    ctx: Context,
    *,
    output: str | None,
    output_option: str | None,
    form: Format,
    session_id: str | None,
    only: str | None,
    lineage: Literal["single", "logical"],
    all_messages: bool,
    redact: bool,
    force: bool,
    dry_run: bool,
    filters: Filters,
) -> None:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.marks import read_marks
    from maintenance.output.progress import progress
    from maintenance.reading.export.items import ExportChoice, ExportSource

    target = _target(ctx, output, output_option, form, dry_run=dry_run)
    if session_id is not None and filters.narrows:
        raise InvalidInput("--session-id names one session; it does not go with filters.", option="--session-id")
    marks = read_marks(ctx.db)
    choice = ExportChoice(lineage=lineage, only_user=only is not None, every_message=all_messages, redact=redact)
    with reading(ctx) as store:
        dialect = dialect_of(store)
        with store.snapshot():
            chosen = _chosen(store, dialect, marks, filters, session_id, ctx.clock.now(), lineage)
        files: list[ExportedFile] = []
        with progress(len(chosen.ids), "exporting sessions") as bar:
            source = ExportSource(store, dialect, chosen, choice, bar.advance)
            if not dry_run:
                files = _write(source, form, target, ctx, force=force)
    _report(ctx, source, chosen, files, target, form, dry_run=dry_run)


def _target(ctx: Context, output: str | None, option: str | None, form: Format, *, dry_run: bool) -> str:
    if output is not None and option is not None and output != option:
        raise InvalidInput("OUTPUT and --output name two files.", hint="Name one.", option="--output")
    target = output if output is not None else option
    if target is None:
        if form == "md" or dry_run:
            return str(ctx.home / "session-exports")
        raise InvalidInput(
            "There is no OUTPUT to write to.", hint="Name a file, or - for standard output.", option="OUTPUT"
        )
    if target == "-" and form == "sqlite":
        raise InvalidInput("--format sqlite needs a file.", hint="Name one as OUTPUT.", option="OUTPUT")
    if target == "-" and ctx.json:
        raise InvalidInput("--json and OUTPUT - would both use standard output.", option="--json")
    if target == "-" and not dry_run and stdout_is_closed():
        raise InvalidInput("OUTPUT is - and standard output is closed.", hint="Name a file.", option="OUTPUT")
    return target


def _chosen(
    store: ReadStore, dialect: Dialect, marks: Marks, filters: Filters, named: str | None, now: float, lineage: str
) -> Chosen:
    from dataclasses import replace

    from maintenance.lineage import Forest
    from maintenance.reading.export.items import Chosen
    from maintenance.reading.resolve import resolve_session
    from maintenance.selection import select

    if named is not None:
        forest = Forest(dialect.lineage(store))
        key = resolve_session(store, dialect, named, titles=False)
        return Chosen(forest=forest, ids=forest.segments(key) if lineage == "logical" else (key,))
    # A hidden chat is a person's text like any other: an export that left it out could not be a backup.
    selection = select(store, dialect, marks, replace(filters, include_hidden=True), now)
    members = dict.fromkeys(key for entry in selection.conversations for key in selection.forest.unit(entry.id).ids)
    return Chosen(forest=selection.forest, ids=tuple(members), archived_left_out=selection.left_out.archived)


def _write(source: ExportSource, form: Format, target: str, ctx: Context, *, force: bool) -> list[ExportedFile]:
    from maintenance.reading.export.run import export_to_file, export_to_folder, export_to_stream

    if target == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        export_to_stream(source, form, sys.stdout)
        return []
    if form == "md":
        return export_to_folder(source, Path(target), ctx.db, force=force)
    return [export_to_file(source, form, Path(target), ctx.db, force=force)]


def _report(
    ctx: Context,
    source: ExportSource,
    chosen: Chosen,
    files: list[ExportedFile],
    target: str,
    form: Format,
    *,
    dry_run: bool,
) -> None:
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_bytes, plural, safe_text
    from maintenance.reading.stale import stale_documents, stale_holders, stale_warning

    tally = source.tally
    stale = stale_holders(ctx.db)
    if ctx.json:
        print_json(
            {
                "dry_run": dry_run,
                "format": form,
                "sessions": len(chosen.ids) if dry_run else tally.sessions,
                "records": tally.records,
                "messages": tally.messages,
                "messages_left_out": tally.not_live,
                "archived_left_out": chosen.archived_left_out,
                "missing": tally.missing,
                "redacted": source.redactor.count,
                "stale_holders": stale_documents(stale),
                "files": [{"path": item.path, "bytes": item.bytes, "sha256": item.sha256} for item in files],
            }
        )
        return
    if dry_run:
        click.echo(f"Would write {plural(len(chosen.ids), 'session')} to {target} ({form}).")
    elif target != "-":
        size = human_bytes(sum(item.bytes for item in files))
        written = f"{plural(tally.sessions, 'session')}, {plural(tally.messages, 'message')}"
        click.echo(f"Wrote {written} to {target} ({size}), verified.")
        if len(files) == 1:
            click.echo(f"sha256 {files[0].sha256}")
    notes = [
        (chosen.archived_left_out, "archived session", "left out (--include-archived)"),
        (tally.not_live, "rewound or compacted message", "left out (--all-messages)"),
        (source.redactor.count, "secret", "masked"),
        (len(tally.missing), "session", "deleted meanwhile and not in the export"),
    ]
    for count, noun, what in notes:
        if count:
            click.echo(f"{plural(count, noun)} {what}.", err=True)
    if stale:
        click.echo(safe_text(f"Warning: {stale_warning(stale, 'the export')}"), err=True)
