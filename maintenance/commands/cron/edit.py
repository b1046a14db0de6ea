"""`hermes-state cron edit`: change what is named of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.commands.cron.declared import POLICIES, declaring
from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from cron_store.records import Job
    from cron_store.schedule import Schedule

HELP = """Change what is named of a cron job, and nothing else.

Another schedule, zone, --gap or --fold is a new version of its schedule: slots that came due before keep theirs and are
accounted for by it, and the new one begins now. A new interval begins its grid now. Everything else keeps the schedule
and the runs as they are. With --if-version, nothing is written when somebody else edited it since `cron show` said that
version.

What changes on disk: one job; a version of its schedule. Lock: the write lock, for some milliseconds, beside whoever
uses the store. Left alone: a run in flight, the history, every field that is not named.

\b
Example:
  hermes cron edit daily-brief --schedule "30 8 * * 1-5"
  hermes cron edit daily-brief --prompt "What is new, in one line?" --unset model --if-version 3
  hermes cron edit backup --misfire run_all --most-late 3 --reset grace_seconds --dry-run

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("edit", help=HELP, short_help="Change what is named of a cron job, and nothing else.")
@click.argument("which", metavar="ID")
@click.option("--schedule", "text", metavar="SCHEDULE", help="When it runs, as `cron add` takes it.")
@declaring
@click.option("--after-finish", is_flag=True, help="With --schedule: an interval from the end of the run before.")
@click.option("--unset", multiple=True, metavar="NAME", help="Take a field away; may be repeated.")
@click.option("--reset", multiple=True, type=click.Choice(POLICIES), help="A policy as it is when nobody says one.")
@click.option("--if-version", type=click.IntRange(min=1), metavar="N", help="Only while it is of this version.")
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, which: str, text: str | None, prompt: str | None, texts: tuple[str, ...],
    values: tuple[str, ...], zone: str | None, gap: str | None, fold: str | None, after_finish: bool,
    unset: tuple[str, ...], reset: tuple[str, ...], if_version: int | None, dry_run: bool, yes: bool, **said: Any,
) -> None:
    from cron_store.cron import Cron
    from cron_store.jobs import checking
    from cron_store.records import Policies
    from cron_store.schedule import next_slot, require_fire
    from maintenance.commands.cron.declared import fields_of, policies_of
    from maintenance.commands.cron.shown import document, find, line, opened, tell_moved
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    fields = fields_of(prompt, texts, values)
    policies = {name: getattr(Policies(), name) for name in reset} | policies_of(said)
    if not (fields or policies or unset or said["name"] is not None or text or zone or gap or fold):
        raise click.UsageError("Name what is to change.")
    with opened(ctx, read_only=dry_run) as store:
        cron = Cron(store)
        before = find(cron, which)
        schedule = _schedule(
            before, ctx.clock.now(), text=text, zone=zone, gap=gap, fold=fold, after_finish=after_finish
        )
        if dry_run:
            checking.merged(before.policies, policies)
            if schedule is not None:
                require_fire(schedule, ctx.clock.now())
            after = before
        else:
            after = cron.edit(
                before.job_id, name=said["name"], fields=fields, remove_fields=unset, schedule=schedule,
                policies=policies, if_version=if_version,
            )
    changes = _changes(before, said["name"], fields, unset, schedule, policies)
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "before": document(before), "job": document(after),
            "changes": changes,
        })
        return
    if schedule is not None:
        tell_moved(schedule, next_slot(schedule, ctx.clock.now()))
    if dry_run:
        for change in changes:
            click.echo(safe_text(f"{change['name']}: {change['before']} would be {change['after']}", 400))
        if not changes:
            click.echo("Nothing would change.")
    else:
        click.echo(line(after, ctx))


def _schedule(
    job: Job, now: float, *, text: str | None, zone: str | None, gap: str | None, fold: str | None, after_finish: bool
) -> Schedule | None:
    """The schedule as it is to be; None: as it is."""
    from dataclasses import replace

    from cron_store.schedule import Fold, Gap, Interval, check_zone, parse

    old = job.schedule
    if text is not None:
        policies = (old.gap, old.fold) if not isinstance(old, Interval) else (Gap.NEXT, Fold.FIRST)
        return parse(
            text, zone=zone or old.zone, now=now, gap=Gap(gap) if gap else policies[0],
            fold=Fold(fold) if fold else policies[1], after_finish=after_finish,
        )
    if after_finish:
        raise click.UsageError("--after-finish goes with --schedule.")
    if not (zone or gap or fold):
        return None
    new = replace(old, zone=check_zone(zone)) if zone else old
    if isinstance(new, Interval):
        if gap or fold:
            raise click.UsageError("--gap and --fold are for times of a wall clock; this job has an interval.")
        return new
    return replace(new, gap=Gap(gap) if gap else new.gap, fold=Fold(fold) if fold else new.fold)


def _changes(
    job: Job, name: str | None, fields: dict[str, Any], unset: tuple[str, ...], schedule: Schedule | None,
    policies: dict[str, Any],
) -> list[dict[str, Any]]:
    """What is named and is not so already."""
    from cron_store.schedule import describe

    found: list[tuple[str, Any, Any]] = [("name", job.name, job.name if name is None else name)]
    found += [(f"field {key}", job.fields.get(key), value) for key, value in fields.items()]
    found += [(f"field {key}", job.fields[key], None) for key in unset if key in job.fields and key not in fields]
    found += [(key, getattr(job.policies, key), value) for key, value in policies.items()]
    if schedule is not None:
        found.append(("schedule", describe(job.schedule), describe(schedule)))
    return [{"name": key, "before": old, "after": new} for key, old, new in found if old != new]
