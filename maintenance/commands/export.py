"""`hermes-state sessions export`: options in, a verified file out; the work is in `maintenance.reading.export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from maintenance.context import Context, store_options
from maintenance.selection import Filters, filter_options

if TYPE_CHECKING:
    from maintenance.reading.export.run import Format

HELP = """Write sessions to a file, one JSON line each.

OUTPUT is a file, - for standard output (not sqlite), or with --format md a folder (session-exports in the home) unless
its name ends in .md. A JSON line is a session with every column of its row and its live messages; html is one page that
needs nothing else; sqlite is a file for Datasette with search; hermes-agent is what its own import loads, in several
files where one would be too much for it. A delegate goes along with the session that handed it out. Archived sessions
need --include-archived; rewound and compacted messages need --all-messages; what was left out is said on stderr.
docs/interchange.md says what each format keeps.

With --since-id N each message is a line of its own, only newer ones are written, and the last line names the id to give
next time: --since-id 0 begins. Ids are never used twice.

What changes on disk: only the files named; each is written under another name, read back, counted, then put in place
(mode 0600). An existing file needs --force. Lock: none; the store is opened read-only, a snapshot for each session.
Leaves the store alone.

\b
Example:
  hermes sessions export all.jsonl --include-archived
  hermes sessions export - --session-id 20260820_0000 --redact
  hermes sessions export talks.html --format html --source telegram --newer-than 30d
  hermes sessions export new.jsonl --since-id 48211 --include-archived --all-messages

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("export", help=HELP, short_help="Write sessions to a file, one JSON line each.")
@click.argument("output", required=False)
@click.option("-o", "--output", "output_option", metavar="FILE", help="The same as OUTPUT.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "html", "md", "sqlite", "hermes-agent"]),
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
@click.option(
    "--since-id", type=click.IntRange(0, 2**63 - 1), metavar="N",
    help="Messages with a higher id, a line each (jsonl only)."
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
    since_id: int | None,
    force: bool,
    dry_run: bool,
    filters: Filters,
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.reading.export.flow import Wishes, run

    wishes = Wishes(
        output=output,
        output_option=output_option,
        form=form,
        session_id=session_id,
        only_user=only is not None,
        lineage=lineage,
        all_messages=all_messages,
        redact=redact,
        since_id=since_id,
        force=force,
        dry_run=dry_run,
        filters=filters,
    )
    return run(ctx, wishes)
