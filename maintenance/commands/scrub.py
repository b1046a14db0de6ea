"""`hermes-state sessions scrub`: options in, report out; the work is in `maintenance.scrub`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.plan import Plan
    from maintenance.scrub.flow import Found, Scrubbed

HELP = """Find secrets in a store and take them out for good.

Searches every text of every table: messages, tool arguments, prompts, titles, usage, tables of other programs. What
matches is replaced by [redacted KIND 1a2b3c]; equal secrets get the same six digits, from which nothing can be learned.
--preset secrets looks for keys, tokens and private keys of well-known services; it needs `pip install
'hermes-state[scrub]'`. A --pattern with groups replaces only what the groups match.

What changes on disk: the rows that match; the search index is overwritten and made anew, the file is rewritten so that
no free page keeps old text, and the WAL is emptied. Then the bytes of all of these are searched for what was found.
This cannot be undone. Copies beside the store (backups, captures, exports) are searched, named and left alone.

Lock: SQLite's exclusive lock. Beside other processes rows are redacted in short transactions, and the exit is 75: free
pages, WAL and search index need the store alone, so stop them and run it again.
Left alone: copies beside the store; what the file system keeps of blocks that are no longer in use; ids and words that
are this program's own.

\b
Example:
  hermes sessions scrub --preset secrets --dry-run
  hermes sessions scrub --preset secrets
  hermes sessions scrub --pattern 'password: (\\S+)'

Exit: 0 done and proven, 1 refused or not proven, 2 usage, 65 damaged, 75 incomplete or busy.
"""


@click.command("scrub", help=HELP, short_help="Find secrets in a store and take them out for good.")
@click.option("--pattern", "patterns", multiple=True, metavar="REGEX", help="What a secret looks like; repeatable.")
@click.option("--preset", type=click.Choice(["secrets"]), help="Keys and tokens of well-known services.")
@click.option("--dry-run", is_flag=True, help="Say what was found; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, patterns: tuple[str, ...], preset: str | None, dry_run: bool, yes: bool) -> int:
    from maintenance.plan import confirm
    from maintenance.scrub.flow import document, look, scrub
    from maintenance.scrub.patterns import rules_for

    rules = rules_for(patterns, preset)
    found = look(ctx, rules)
    plan = plan_of(ctx, found, document(ctx, found, None))
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    question = "Replace them? This cannot be undone."
    if not confirm(plan, yes=yes, question=question, quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    done = scrub(ctx, rules, found)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": False} | document(ctx, found, done))
    else:
        tell(ctx, done)
    return 75 if done.incomplete else 0 if done.proven else 1


def plan_of(ctx: Context, found: Found, facts: dict[str, Any]) -> Plan:
    """What would be replaced."""
    from maintenance.output.text import plural
    from maintenance.plan import Plan

    rows, matches = sum(found.rows.values()), sum(found.rules.values())
    lines = [f"{name}: {plural(count, 'match', 'matches')}" for name, count in sorted(found.rules.items())]
    lines += [f"table {name}: {plural(count, 'row')}" for name, count in sorted(found.rows.items())]
    lines += copy_lines(found.copies)
    lines.append("The search index is made anew, the file rewritten and the WAL emptied, whether rows match or not.")
    return Plan(
        title=f"Redact {plural(matches, 'match', 'matches')} in {plural(rows, 'row')} of {ctx.db}",
        lines=tuple(lines), facts=facts,
    )


def copy_lines(copies: tuple[Any, ...]) -> list[str]:
    """The copies beside the store that need a look."""
    said = {"holds": "still holds it", "unreadable": "cannot be looked into (compressed or encrypted)"}
    return [f"{trace.path}: {said[trace.state]}" for trace in copies]


def tell(ctx: Context, done: Scrubbed) -> None:
    """What was done, for people."""
    from maintenance.output.text import plural

    rows, matches = sum(done.rows.values()), sum(done.rules.values())
    click.echo(f"Redacted {plural(matches, 'match', 'matches')} in {plural(rows, 'row')} of {ctx.db}.")
    if done.incomplete:
        click.echo(f"Incomplete: {done.incomplete}")
        for holder in done.holders:
            click.echo(f"  {holder}")
        click.echo("Next: stop them and run the same command again.")
    elif done.proven:
        names = ", ".join(trace.path.name for trace in done.proof)
        if done.looked_for:
            click.echo(f"Proven: none of it is in the bytes of {names}.")
        else:
            # A run that was killed, or worked beside others, has replaced the rows and taken what they said with it.
            click.echo(f"No row matches, so there was nothing to look for in {names}; they were written anew.")
    else:
        for trace in done.proof:
            if trace.state != "clean":
                click.echo(f"Not gone: {trace.path} {'still holds it' if trace.state == 'holds' else 'is unreadable'}.")
        for name, count in done.left.items():
            click.echo(f"Not gone: {plural(count, 'row')} of table {name} still match.")
    for line in copy_lines(done.copies):
        click.echo(line)
