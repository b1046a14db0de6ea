"""`hermes-state sessions import`: options in; the work is in `maintenance.intake`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.intake.detect import Wanted

HELP = """Merge sessions of files and other programs into this store.

FILE is an export of this program (jsonl), a state.db of hermes-agent or of this program, a JSONL export of
hermes-agent, or a transcript of Claude Code or Codex; a folder stands for the .jsonl files below it. Importing again
adds only what is new, also after it was killed. A session is the same when its id and its start are; a message when
its id in the file, or its content and time, are. An id or a title that something else has here gets a suffix, which is
said. A line may have 64 MiB, or a sixteenth of the free memory; `sessions export --since-id 0` makes short
ones.

What changes on disk: sessions, messages and usage are added; nothing that is here changes but sessions that an earlier
import left open. The files are only read.
Lock: the write lock, for some milliseconds at a time, beside whoever uses the store.
Left alone: every other session. A line that cannot be used is named, the rest is imported, and the exit is 1. A last
line that is not finished is left for the next time.

\b
Example:
  hermes sessions import old-laptop.jsonl --dry-run
  hermes sessions import ~/.claude/projects --from claude --yes
  hermes -p work sessions import ~/.hermes/state.db --verify

Exit: 0 done, 1 refused or not all imported, 2 usage, 3 --verify found differences, 65 damaged, 75 busy.
"""


@click.command("import", help=HELP, short_help="Merge sessions of files and other programs into this store.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--from",
    "wanted",
    type=click.Choice(["auto", "hermes-state", "hermes-agent", "claude", "codex"]),
    default="auto",
    show_default=True,
    help="What wrote the files.",
)
@click.option("--source", "source_name", metavar="NAME", help="The source that new sessions get, instead of their own.")
@click.option("--verify", is_flag=True, help="Read the files again afterwards and compare every message.")
@click.option("--allow-partial", is_flag=True, help="Exit 0 although something could not be imported.")
@click.option("--new", is_flag=True, help="Make the store, and its folder, if there is none.")
@click.option("--dry-run", is_flag=True, help="Say what would be imported and stop.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options(must_exist=False, home_must_exist=False)
def command(
    ctx: Context,
    *,
    files: tuple[str, ...],
    wanted: Wanted,
    source_name: str | None,
    verify: bool,
    allow_partial: bool,
    new: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.intake.flow import Wishes, run

    wishes = Wishes(
        files=tuple(Path(name) for name in files),
        wanted=wanted,
        source_name=source_name,
        dry_run=dry_run,
        yes=yes,
        allow_partial=allow_partial,
        verify=verify,
        new=new,
    )
    return run(ctx, wishes)
