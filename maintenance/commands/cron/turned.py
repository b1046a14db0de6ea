"""What `pause` and `resume` say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cron_store.records import Job
    from maintenance.context import Context


def tell(ctx: Context, before: Sequence[Job], after: Sequence[Job], *, active: bool, dry_run: bool) -> None:
    """Print what was done, or would be."""
    from maintenance.commands.cron.shown import document, line
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    done = [job.job_id for job in before if job.active is active]
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "jobs": [document(job) for job in after], "already_done": done,
        })
        return
    word = "resumed" if active else "paused"
    for job, now in zip(before, after, strict=True):
        if job.job_id in done:
            click.echo(safe_text(f"{job.job_id} is {'not paused' if active else 'paused already'}."))
        else:
            click.echo(safe_text(f"{job.job_id} would be {word}.") if dry_run else line(now, ctx))
