"""What `sessions export` does between its options and its report: check, choose, write.

Invariant: options that do not fit together are refused before the store is opened; the choice is made in one snapshot,
with the id at which an export by id ends. Not for: the shape of a file, or what is said of it (`report`).
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_state.errors import InvalidInput
from maintenance.dialects.detect import dialect_of
from maintenance.gate import reading
from maintenance.lineage import Forest
from maintenance.marks import read_marks
from maintenance.output.progress import progress
from maintenance.output.streams import stdout_is_closed
from maintenance.reading.export.feed import FeedHead
from maintenance.reading.export.items import Chosen, ExportChoice, ExportSource
from maintenance.reading.export.report import Written, report
from maintenance.reading.export.run import (
    ExportedFile,
    Format,
    export_to_file,
    export_to_folder,
    export_to_stream,
)
from maintenance.reading.resolve import resolve_session
from maintenance.selection import Filters, select

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.context import Context
    from maintenance.dialects.base import Dialect


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How an export was asked for."""

    output: str | None  # OUTPUT
    output_option: str | None  # --output
    form: Format  # what to write
    session_id: str | None  # only this session, or the start of its id
    only_user: bool  # only what people wrote
    lineage: Literal["single", "logical"]  # a record a session, or a record a conversation
    all_messages: bool  # rewound and compacted ones too
    redact: bool  # mask secrets
    since_id: int | None  # only messages with a higher id
    force: bool  # replace files that exist
    dry_run: bool  # say what would be written
    filters: Filters  # which sessions


def run(ctx: Context, wishes: Wishes) -> int:
    """The whole export; gives the exit status."""
    form = _form(wishes)
    target = _target(ctx, wishes, form)
    if wishes.session_id is not None and wishes.filters.narrows:
        raise InvalidInput("--session-id names one session; it does not go with filters.", option="--session-id")
    choice = ExportChoice(
        lineage=wishes.lineage, only_user=wishes.only_user, every_message=wishes.all_messages, redact=wishes.redact,
        since_id=wishes.since_id,
    )
    with reading(ctx) as store:
        dialect = dialect_of(store)
        with store.snapshot():
            chosen = _chosen(ctx, store, dialect, wishes)
            head = None if wishes.since_id is None else _head(ctx, store, dialect, chosen, wishes.since_id)
        with progress(len(chosen.ids), "exporting sessions") as bar:
            source = ExportSource(store, dialect, chosen, choice, bar.advance)
            written = Written(form=form, target=target, chosen=chosen, source=source, dry_run=wishes.dry_run)
            if wishes.dry_run:
                pass
            elif form == "hermes-agent":
                _hand_over(ctx, store, dialect, written, force=wishes.force)
            else:
                written.files = _write(ctx, source, form, target, head, force=wishes.force)
    return report(ctx, written)


def _form(wishes: Wishes) -> Format:
    """The format, and whether the other options go with it."""
    if wishes.form == "hermes-agent":
        taken = {"--only": wishes.only_user, "--all-messages": wishes.all_messages,
                 "--lineage logical": wishes.lineage == "logical", "--since-id": wishes.since_id is not None}
        if names := [name for name, given in taken.items() if given]:
            raise InvalidInput(
                f"--format hermes-agent does not go with {names[0]}: its import takes whole sessions with their live "
                "messages.", option=names[0].split()[0],
            )
        return "hermes-agent"
    if wishes.since_id is None:
        return wishes.form
    if wishes.form != "jsonl" or wishes.lineage != "single":
        raise InvalidInput(
            "--since-id writes a line for each message: it goes with --format jsonl and --lineage single.",
            option="--since-id",
        )
    return "messages"


def _target(ctx: Context, wishes: Wishes, form: Format) -> str:
    output, option = wishes.output, wishes.output_option
    if output is not None and option is not None and output != option:
        raise InvalidInput("OUTPUT and --output name two files.", hint="Name one.", option="--output")
    target = output if output is not None else option
    if target is None:
        if form == "md" or wishes.dry_run:
            return str(ctx.home / "session-exports")
        raise InvalidInput(
            "There is no OUTPUT to write to.", hint="Name a file, or - for standard output.", option="OUTPUT"
        )
    if target == "-" and form == "sqlite":
        raise InvalidInput("--format sqlite needs a file.", hint="Name one as OUTPUT.", option="OUTPUT")
    if target == "-" and ctx.json:
        raise InvalidInput("--json and OUTPUT - would both use standard output.", option="--json")
    if target == "-" and not wishes.dry_run and stdout_is_closed():
        raise InvalidInput("OUTPUT is - and standard output is closed.", hint="Name a file.", option="OUTPUT")
    return target


def _chosen(ctx: Context, store: ReadStore, dialect: Dialect, wishes: Wishes) -> Chosen:
    if wishes.session_id is not None:
        forest = Forest(dialect.lineage(store))
        key = resolve_session(store, dialect, wishes.session_id, titles=False)
        chosen = Chosen(forest=forest, ids=forest.segments(key) if wishes.lineage == "logical" else (key,))
    else:
        # A hidden chat is a person's text like any other: an export that left it out could not be a backup.
        filters = replace(wishes.filters, include_hidden=True)
        selection = select(store, dialect, read_marks(ctx.db), filters, ctx.clock.now())
        units = (selection.forest.unit(entry.id).ids for entry in selection.conversations)
        members = dict.fromkeys(key for ids in units for key in ids)
        chosen = Chosen(
            forest=selection.forest, ids=tuple(members), archived_left_out=selection.left_out.archived
        )
    return chosen if wishes.since_id is None else _newer(store, dialect, chosen, wishes.since_id)


def _newer(store: ReadStore, dialect: Dialect, chosen: Chosen, since_id: int) -> Chosen:
    """The chosen sessions that have newer messages; from 0 on all of them."""
    high_id = max(dialect.newest_message(store), since_id)
    if since_id == 0:
        return replace(chosen, high_id=high_id)
    grown = {session_id for _, session_id in dialect.messages_after(store, since_id)}
    return replace(chosen, high_id=high_id, ids=tuple(key for key in chosen.ids if key in grown))


def _head(ctx: Context, store: ReadStore, dialect: Dialect, chosen: Chosen, since_id: int) -> FeedHead:
    from hermes_state.engine.core import identity
    from maintenance.output.text import rfc3339

    store_id, incarnation = identity(store) if dialect.is_native else (None, None)
    return FeedHead(
        since_id=since_id,
        high_id=since_id if chosen.high_id is None else chosen.high_id,
        dialect=dialect.name,
        store_id=store_id,
        incarnation=incarnation,
        made_at=rfc3339(ctx.clock.now()),
    )


def _write(
    ctx: Context, source: ExportSource, form: Format, target: str, head: FeedHead | None, *, force: bool
) -> list[ExportedFile]:
    if target == "-":
        _plain_stdout()
        export_to_stream(source, form, sys.stdout, head)
        return []
    if form == "md" and not (target.endswith(".md") and not Path(target).is_dir()):
        return export_to_folder(source, Path(target), ctx.db, force=force)
    return [export_to_file(source, form, Path(target), ctx.db, force=force, head=head)]


def _hand_over(ctx: Context, store: ReadStore, dialect: Dialect, written: Written, *, force: bool) -> None:
    from maintenance.interop.to_hermes_agent import Tally
    from maintenance.reading.export.for_hermes_agent import Handed

    source = written.source
    handed = Handed(
        store=store, dialect=dialect, chosen=written.chosen, tally=Tally(),
        redactor=source.redactor if source.redacts else None,
    )
    if written.target == "-":
        _plain_stdout()
        written.imports = handed.stream(sys.stdout)
    else:
        written.files = handed.write(Path(written.target), ctx.db, force=force)
        written.imports = len(written.files)
    told, tally = handed.tally, source.tally
    tally.sessions = tally.records = told.sessions
    tally.messages, tally.not_live, tally.missing = told.messages, told.hidden, told.missing
    written.too_large = tuple(told.too_large)


def _plain_stdout() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
