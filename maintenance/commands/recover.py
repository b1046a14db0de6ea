"""`hermes-state sessions recover`: options in, findings and report out; the work is in `maintenance.recovery`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.plan import Plan
    from maintenance.recovery.records import Findings, Progress, Report, Step
    from maintenance.replacement.replace import Replaced

HELP = """Salvage what can be read of a damaged store into a new file.

The source is a damaged store with the files beside it, a bare file, a folder of quarantined files (one is taken, all
are listed), or a capture of a lost WAL. It is copied raw before SQLite opens anything, and never written. Rows come
from the tables, around what is damaged down to single keys, from indexes, and from the pages themselves, WAL included.
Every table is recovered, unknown ones too. Conversations whose metadata is gone get a placeholder session. Pins and
archive marks that lie beside the source go with it.

What changes on disk: three new files, the output, a report (OUTPUT.recovery.json), and what was found and is wrong or
cut off (OUTPUT.recovery-apart.jsonl). The report lists for each table what is certain, uncertain and lost. When rows
are known to be lost the output gets the ending .partial and the exit status is 65, unless --allow-partial is given.
--install puts the output in the place of the damaged store, whose files are kept aside first.

Lock: none. With --install SQLite's exclusive lock for the replacement; refused while other processes have the store
open, or could have without being seen.

Left alone: the source. A run that was stopped or killed goes on when the same command is given again; its work is in
the folder OUTPUT.recovering until then.

\b
Example:
  hermes sessions recover --inspect-only
  hermes sessions recover --source ~/broken/state.db --output ~/recovered.db
  hermes sessions recover --install

Exit: 0 done, 1 refused or failed, 2 usage, 3 --inspect-only found damage, 65 rows are lost or nothing can be
recovered, 75 busy.
"""
# Decisions about the whole file that a person has to know of; the others are in the report.
SAID = (
    "file_cut", "pages_unreadable", "hardly_pages", "schema_incomplete", "virtual_table_left_out", "search_left_out",
    "damaged_wal", "horizon_raised",
)


@click.command("recover", help=HELP, short_help="Salvage what can be read of a damaged store into a new file.")
@click.option("--source", metavar="FILE", help="What to recover from: a file or a folder (default: the store).")
@click.option("--output", metavar="FILE", help="The new file (default: SOURCE.recovered.db).")
@click.option("--report", metavar="FILE", help="The report (default: OUTPUT.recovery.json).")
@click.option("--inspect-only", is_flag=True, help="Only say what can be had. Recovers nothing.")
@click.option("--install", is_flag=True, help="Put the result in the place of the damaged store, which is kept aside.")
@click.option("--allow-partial", is_flag=True, help="Accept a result that is known to lack rows.")
@click.option("--native", is_flag=True, help="Make a native store of a file of hermes-agent.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before --install.")
@store_options(must_exist=False)
def command(
    ctx: Context, *, source: str | None, output: str | None, report: str | None, inspect_only: bool, install: bool,
    allow_partial: bool, native: bool, dry_run: bool, yes: bool,
) -> int:
    from maintenance.recovery.sources import find_source

    given = _given(ctx, source)
    target = None if output is None else Path(output).expanduser().absolute()
    if inspect_only or dry_run:
        return _inspect(ctx, given, inspect_only=inspect_only, dry_run=dry_run)
    if install:
        from maintenance.recovery.install import require_free, store_of
        from maintenance.recovery.run import free_output

        into = replace(ctx, db=store_of(find_source(given), ctx.db))
        require_free(into)  # before the work, not only behind it
        target = target or free_output(find_source(given))
        if not _agreed(into, given, yes=yes):
            click.echo("Nothing was changed.", err=True)
            return 1
    from maintenance.recovery import recover

    with _Shown(ctx) as shown:
        made = recover(
            given, target, native=native, allow_partial=allow_partial,
            report=None if report is None else Path(report).expanduser().absolute(), progress=shown, clock=ctx.clock,
        )
        if made.partial or not install:
            return _say(ctx, made, None, into=into.db if install else None)
        from maintenance.recovery.install import install as put_in_place

        return _say(ctx, made, put_in_place(into, made, progress=shown), into=into.db)


def _given(ctx: Context, source: str | None) -> Path:
    if source is not None:
        return Path(source).expanduser().absolute()
    from maintenance.gate.doors import require_file

    require_file(ctx.db)
    return ctx.db


def _inspect(ctx: Context, given: Path, *, inspect_only: bool, dry_run: bool) -> int:
    from maintenance.recovery import inspect

    with _Shown(ctx) as shown:
        found = inspect(given, progress=shown)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": dry_run} | found.document())
    else:
        from maintenance.output.text import safe_text

        for line in _finding_lines(found):
            click.echo(safe_text(line))
    return 3 if inspect_only and found.damaged else 0


def _finding_lines(found: Findings) -> list[str]:
    from maintenance.output.text import human_bytes, plural

    lines = [f"Source: {found.source.name} ({found.source.kind}; schema from: {found.schema})."]
    lines += [
        f"  {'*' if one.chosen else ' '} {one.path} ({human_bytes(one.size_bytes)}, {one.looks})"
        for one in found.source.candidates
    ]
    lines += [f"  {one.sentence}" for one in found.findings]
    for table in found.tables:
        rows = "no row can be read through SQL" if table.rows is None else f"{plural(table.rows, 'row')} through SQL"
        lines.append(f"  {table.name}: {table.state}; {rows}.")
    lines.append(f"A recovery needs {human_bytes(found.needed_bytes)}; {human_bytes(found.free_bytes)} are free.")
    return lines


def _agreed(ctx: Context, given: Path, *, yes: bool) -> bool:
    from maintenance.plan import confirm

    return confirm(_plan(ctx, given), yes=yes, question="Replace the store when that is done?", quiet=ctx.json)


def _plan(ctx: Context, given: Path) -> Plan:
    from maintenance.plan import Plan

    return Plan(
        title=f"Recover {given} and put the result in the place of {ctx.db}",
        lines=(
            "The damaged files are copied aside and compared first.",
            "Nothing is replaced when rows are known to be lost, unless --allow-partial is given.",
        ),
        facts={"source": str(given), "store": str(ctx.db)},
    )


def _say(ctx: Context, made: Report, replaced: Replaced | None, *, into: Path | None) -> int:
    from maintenance.recovery.install import restore_command

    status = 65 if made.partial else 0
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": False} | made.document() | {
            "installed": None if replaced is None else {"path": str(replaced.path)} | replaced.document()
        })
        return status
    from maintenance.output.text import safe_text

    for line in _report_lines(made, replaced):
        click.echo(safe_text(line))
    click.echo(safe_text(_next(ctx, made, replaced)))
    if made.partial:
        click.echo(safe_text(f"Rows are known to be lost: the result is {made.output}."), err=True)
        if into is not None:
            click.echo(safe_text(
                f"{into} was not replaced. Read {made.report_path}; to have what there is put in its place: "
                f"`{restore_command(made.output, into)}`."
            ), err=True)
    return status


def _next(ctx: Context, made: Report, replaced: Replaced | None) -> str:
    """What a person does with the result."""
    from maintenance.doctor.findings import command as command_line
    from maintenance.recovery.install import restore_command

    if replaced is not None:
        return f"Next: {command_line('doctor', replaced.path)}"
    store = made.source.main if made.source.kind not in ("directory", "capture") else ctx.db
    if store is None or not store.exists():
        return f"Next: {command_line('sessions list', made.output)}"
    return f"Next: {restore_command(made.output, store)}"


def _report_lines(made: Report, replaced: Replaced | None) -> list[str]:
    from maintenance.output.text import plural

    lines = [f"Recovered {made.source.name} into {made.output}."]
    for table in made.tables:
        if not (table.rows or table.lost_something or table.apart):
            continue
        words = [f"{plural(table.certain, 'row')} certain"]
        words += [f"{count:,} {what}" for count, what in (
            (table.uncertain, "uncertain"), (table.placeholders, "placeholders"), (table.apart, "kept apart"),
            (table.lost_keys, "known to be lost"),
        ) if count]
        if table.lost_ranges:
            words.append(f"{plural(len(table.lost_ranges), 'range')} of keys unreadable")
        if table.unreadable:
            words.append("part of it cannot be read")
        if not table.complete and not table.lost_something:
            words.append("whether that is all cannot be proved")
        lines.append(f"  {table.name}: {', '.join(words)}.")
    lines += [f"  {said['sentence']}" for said in made.decisions if said["what"] in SAID]
    if made.time_gaps:
        lines.append(f"  {plural(len(made.time_gaps), 'gap')} between messages whose ids jump.")
    lines.append(f"Report: {made.report_path}")
    if made.apart_path is not None:
        lines.append(f"Found and kept apart: {made.apart_path}")
    if replaced is not None:
        lines.append(f"Installed into {replaced.path}; the damaged files are in {replaced.aside}.")
    return lines


class _Shown:
    """Steps of a recovery as a progress bar, with rate and the time that is left."""

    SECONDS = 0.5  # between two looks at the clock

    def __init__(self, ctx: Context) -> None:
        from maintenance.output.progress import progress

        self._clock = ctx.clock
        self._bar = progress(None, "looking")
        self._doing = ""
        self._began = self._shown = 0.0

    def __enter__(self) -> Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def __call__(self, step: Step) -> None:
        now = self._clock.monotonic()
        if step.doing != self._doing:
            self._doing, self._began = step.doing, now
        elif now - self._shown < self.SECONDS:
            return
        self._shown = now
        self._bar.restart(step.total, f"{step.doing}{_pace(step, now - self._began)}")
        self._bar.advance(step.done)


def _pace(step: Step, seconds: float) -> str:
    """", 41.2 MB/s, 12 s left", as far as it can be said."""
    from maintenance.output.text import human_bytes

    if seconds < 1 or not step.done:
        return ""
    rate = step.done / seconds
    said = f", {human_bytes(int(rate))}/s" if step.unit == "bytes" else f", {rate:,.0f} {step.unit}/s"
    return said if step.total is None else f"{said}, {(step.total - step.done) / rate:,.0f} s left"
