"""Archive, pin and unpin between their options and their work: plan, ask, set, report.

Invariant: sessions that a person named are flagged without a question, because the same verb takes it back; a sweep by
filters asks. A dry run changes nothing and is never refused. Not for: choosing or setting (`marking`).
"""

from __future__ import annotations

import click

from maintenance.context import Context
from maintenance.output.text import plural
from maintenance.removal.flag_output import WORDS, changing_conversations, flag_plan, print_flagged
from maintenance.removal.flow import agreed
from maintenance.removal.marking import Flagging, apply


def run_flagging(ctx: Context, verb: str, flagging: Flagging, *, dry_run: bool, asks: bool, yes: bool) -> int:
    """Everything after the choice; gives the exit status."""
    plan = flag_plan(ctx, flagging, everything=dry_run)
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if flagging.ids and asks:
        count = plural(len(changing_conversations(flagging)), "conversation")
        verb_word = WORDS[(flagging.flag, flagging.value)][0]
        if not agreed(ctx, plan, yes=yes, question=f"{verb_word} {count}?"):
            click.echo("Nothing was changed.", err=True)
            return 1
    print_flagged(ctx, flagging, apply(ctx, verb, flagging) if flagging.ids else 0)
    return 0
