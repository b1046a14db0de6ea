"""`hermes-state sessions stats`: whole-store figures; the work is in `maintenance.reading.store_stats`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Count sessions and messages by source, with sizes.

Every source is counted. --sizes adds each table and search index, and images and other structured content with its
exact repeats; it walks the whole file: some seconds a gigabyte when it is in memory, longer from disk.

What changes on disk: nothing. Lock: none; the store is opened read-only beside whoever uses it.
Left alone: everything.

\b
Example:
  hermes sessions stats
  hermes sessions stats --sizes --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("stats", help=HELP, short_help="Count sessions and messages by source, with sizes.")
@click.option("--sizes", "by_size", is_flag=True, help="Sizes by table and index too; reads the whole file.")
@store_options
def command(ctx: Context, *, by_size: bool) -> None:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.marks import read_marks
    from maintenance.output.documents import print_json
    from maintenance.output.progress import progress
    from maintenance.output.text import safe_text
    from maintenance.reading.stats_output import print_stats, stats_document
    from maintenance.reading.store_stats import store_stats

    marks = read_marks(ctx.db)
    with reading(ctx) as store, progress(None, "adding up sizes" if by_size else "counting"):
        stats = store_stats(store, dialect_of(store), marks, by_size=by_size)
    if ctx.json:
        print_json({"path": str(ctx.db)} | stats_document(stats))
    else:
        click.echo(f"Store: {safe_text(str(ctx.db))}")
        print_stats(stats, ctx.clock)
