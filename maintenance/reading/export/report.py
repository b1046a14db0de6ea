"""What an export says of what it wrote: to people on stdout and stderr, to programs as one document.

Invariant: whatever was left out is said. Standard output has nothing else when the export itself goes there. Not for:
writing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from maintenance.output.documents import print_json
from maintenance.output.text import human_bytes, plural, safe_text
from maintenance.reading.stale import stale_documents, stale_holders, stale_warning

if TYPE_CHECKING:
    from maintenance.context import Context
    from maintenance.interop.to_hermes_agent import TooLarge
    from maintenance.reading.export.items import Chosen, ExportSource
    from maintenance.reading.export.run import ExportedFile, Format


@dataclass(kw_only=True)
class Written:
    """One export as it was made."""

    form: Format  # what was written
    target: str  # where: a file, a folder, or - for standard output
    chosen: Chosen  # which sessions
    source: ExportSource  # what was counted
    dry_run: bool  # nothing was written
    files: list[ExportedFile] = field(default_factory=list)  # finished files
    imports: int = 1  # imports of hermes-agent that it is
    too_large: tuple[TooLarge, ...] = ()  # sessions that hermes-agent's import would refuse


def report(ctx: Context, written: Written) -> int:
    """Say it; gives the exit status: 1 when hermes-agent would not take all sessions."""
    source, chosen, tally = written.source, written.chosen, written.source.tally
    form = "jsonl" if written.form == "messages" else written.form
    stale = stale_holders(ctx.db)
    status = 1 if written.too_large else 0
    too_large = [{"id": one.id, "messages": one.messages, "bytes": one.bytes} for one in written.too_large]
    if ctx.json:
        print_json(
            {
                "dry_run": written.dry_run,
                "format": form,
                "sessions": len(chosen.ids) if written.dry_run else tally.sessions,
                "records": tally.records,
                "messages": tally.messages,
                "messages_left_out": tally.not_live,
                "archived_left_out": chosen.archived_left_out,
                "missing": tally.missing,
                "too_large": too_large,
                "redacted": source.redactor.count,
                "since_id": source.since_id,
                "high_id": chosen.high_id,
                "stale_holders": stale_documents(stale),
                "files": [{"path": item.path, "bytes": item.bytes, "sha256": item.sha256} for item in written.files],
            }
        )
        return status
    if written.dry_run:
        click.echo(f"Would write {plural(len(chosen.ids), 'session')} to {written.target} ({form}).")
    elif written.target != "-":
        _say_files(written)
    notes = [
        (chosen.archived_left_out, "archived session", "left out (--include-archived)"),
        (tally.not_live, "rewound or compacted message", _hidden_note(written)),
        (source.redactor.count, "secret", "masked"),
        (len(tally.missing), "session", "deleted meanwhile and not in the export"),
        (len(written.too_large), "session", "left out: larger than hermes-agent imports"),
    ]
    for count, noun, what in notes:
        if count:
            click.echo(f"{plural(count, noun)} {what}.", err=True)
    for one in written.too_large:
        size = f"{plural(one.messages, 'message')} and {human_bytes(one.bytes)}"
        click.echo(safe_text(f"  {one.id}: more than {size}"), err=True)
    if stale:
        click.echo(safe_text(f"Warning: {stale_warning(stale, 'the export')}"), err=True)
    return status


def _say_files(written: Written) -> None:
    tally, files = written.source.tally, written.files
    size = human_bytes(sum(item.bytes for item in files))
    counts = f"{plural(tally.sessions, 'session')}, {plural(tally.messages, 'message')}"
    click.echo(f"Wrote {counts} to {written.target} ({size}), verified.")
    if len(files) == 1:
        click.echo(f"sha256 {files[0].sha256}")
    elif written.form == "hermes-agent":
        click.echo(f"In {len(files)} files, to be imported in this order:")
        for item in files:
            click.echo(safe_text(f"  {item.path} ({human_bytes(item.bytes)})"))
    if written.chosen.high_id is not None:
        click.echo(f"Next time: --since-id {written.chosen.high_id}")


def _hidden_note(written: Written) -> str:
    return "left out" if written.form == "hermes-agent" else "left out (--all-messages)"
