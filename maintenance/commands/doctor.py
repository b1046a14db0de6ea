"""`hermes-state doctor`: look at a store in every way and change nothing.

Invariant: the result goes to stdout, also when something is wrong; what is wrong decides the exit status. Not for:
repairs; the report names the command that helps.
"""

from __future__ import annotations

import click

from maintenance.context import Context, store_options
from maintenance.doctor.examine import Options, examine
from maintenance.doctor.report import document, lines
from maintenance.output.documents import print_json
from maintenance.output.tables import Column, print_table
from maintenance.output.text import human_bytes


@click.command()
@click.option("--quick", is_flag=True, help="Leave out what reads the whole file: pages, search indexes, foreign keys.")
@click.option(
    "--deep", is_flag=True, help="Also compare every index with its rows, for search indexes on a private copy."
)
@click.option("--sizes", is_flag=True, help="Also add up the pages of every table and index.")
@click.option(
    "--new-identity", is_flag=True, help="Check nothing: give this copy of a native store an identity of its own."
)
@store_options
def command(ctx: Context, /, quick: bool, deep: bool, sizes: bool, new_identity: bool) -> int:
    """Check a store: pages, search indexes, WAL, holders, file system.

    Names the damaged table, index or list of pages, tells damage of rows from what can be built again out of them, and
    ends with the one command to run next. Foreign search indexes are judged by the rule they were built with. Of a
    native store it also checks identity, schema steps, the check that every message carries (a sample; all with
    --deep), numbers, bodies, owners, and the search index beside it.

    \b
    Changes:  nothing. --deep writes a private copy into TMPDIR and removes it. --new-identity changes one row, alone
              on the store.
    Locks:    none that a writer waits for. While pages are checked (about 1 s a GB when cached) a read
              transaction is open, so the WAL cannot be reset meanwhile.
    Leaves:   permission bits, journal mode, WAL, every row. An empty -wal and a -shm may stay beside the file.

    \b
    Example:
      hermes doctor --sizes

    \b
    Exit: 0 healthy, 1 the store does not exist, 2 usage, 3 problems, or damage that `sessions repair` can
          build again from the rows, 65 rows are damaged or cannot be reached.
    """
    if quick and deep:
        raise click.UsageError("--quick leaves out what --deep asks for: give only one of them.")
    if new_identity:
        if quick or deep or sizes:
            raise click.UsageError("--new-identity checks nothing: leave the other options away.")
        return _new_identity(ctx)
    found = examine(
        ctx.db,
        ctx.home,
        Options(quick=quick, deep=deep, sizes=sizes),
        clock=ctx.clock,
        say=lambda line: click.echo(line, err=True),
    )
    if ctx.json:
        print_json(document(found))
    else:
        for line in lines(found):
            click.echo(line)
        if found.objects:
            click.echo()
            rows = [(item.name, item.kind, human_bytes(item.bytes), f"{item.share:.1%}") for item in found.objects]
            print_table(
                [Column("object"), Column("kind"), Column("size", right=True), Column("share", right=True)], rows
            )
    return found.exit_code


def _new_identity(ctx: Context) -> int:
    from maintenance.doctor.native_identity import new_identity

    before, after = new_identity(ctx)
    if ctx.json:
        print_json({"store": str(ctx.db), "store_id_before": before.store_id, "store_id": after.store_id})
    else:
        click.echo(f"{ctx.db} is now store {after.store_id}; it was {before.store_id}. Its search index starts anew.")
    return 0
