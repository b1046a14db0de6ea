"""The options that declare a job, shared by `add` and `edit`, and what they mean.

Invariant: an option that is not given is not there: nothing is written for it. Not for: checking values, which
`cron_store` does for every caller.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from maintenance.context import Context

_Verb = TypeVar("_Verb", bound=Callable[..., Any])

GAPS, FOLDS = ("next", "skip"), ("first", "both", "skip")
_OPTIONS = (
    click.option("--name", metavar="TEXT", help="What people call it."),
    click.option("--prompt", metavar="TEXT", help="The field `prompt`: what an agent is asked."),
    click.option("--set", "texts", multiple=True, metavar="NAME=TEXT", help="A field of the job; may be repeated."),
    click.option("--set-json", "values", multiple=True, metavar="NAME=JSON", help="The same for a JSON value."),
    click.option("--zone", metavar="NAME", help="IANA time zone, such as Europe/Berlin."),
    click.option("--gap", type=click.Choice(GAPS), help="A time that the clock leaves out: the next instant, or none."),
    click.option("--fold", type=click.Choice(FOLDS), help="A time that comes twice: which of them."),
    click.option("--effect", type=click.Choice(("once", "idempotent")),
                 help="Idempotent: run again under the same key when its process died."),
    click.option("--misfire", type=click.Choice(("coalesce", "run_all", "skip", "notify")),
                 help="What becomes of slots whose time passed before anybody looked."),
    click.option("--grace", "grace_seconds", type=float, metavar="SECONDS", help="How late is still on time."),
    click.option("--spacing", "spacing_seconds", type=float, metavar="SECONDS",
                 help="Between two starts that catch up, for run_all."),
    click.option("--most-late", type=int, metavar="N", help="How many late slots run_all keeps: the newest."),
    click.option("--overlap", type=click.Choice(("skip", "queue", "allow")),
                 help="A slot that comes due while the job runs."),
    click.option("--repeat", "repeat_times", type=int, metavar="N", help="Runs in all; without it for ever."),
    click.option("--allowance", "allowance_seconds", type=float, metavar="SECONDS",
                 help="How long a run without a thread is left alone."),
    click.option("--session-reuse/--no-session-reuse", default=None, help="All runs go on in one session, or not."),
    click.option("--keep", "keep_executions", type=int, metavar="N", help="Runs in the history, for each source."),
)
POLICIES = (
    "effect", "misfire", "grace_seconds", "spacing_seconds", "most_late", "overlap", "repeat_times",
    "allowance_seconds", "session_reuse", "keep_executions",
)


def declaring(function: _Verb) -> _Verb:
    """Put these options on a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def policies_of(said: dict[str, Any]) -> dict[str, Any]:
    """The policies that were given."""
    return {name: said[name] for name in POLICIES if said.get(name) is not None}


def fields_of(prompt: str | None, texts: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """The fields that were given."""
    found: dict[str, Any] = {} if prompt is None else {"prompt": prompt}
    for option, given in (("--set", texts), ("--set-json", values)):
        for pair in given:
            name, equals, value = pair.partition("=")
            if not name or not equals:
                raise click.UsageError(f"{option} is NAME=VALUE, not {pair!r}.")
            try:
                found[name] = value if option == "--set" else json.loads(value)
            except ValueError as error:
                raise click.UsageError(f"The value of {option} {name} is no JSON: {error}.") from None
    return found


def zone_or_ask(ctx: Context, zone: str | None) -> str:
    """The zone that was given, else that of the home, else that of the machine. Raises `InvalidInput` for none."""
    from hermes_state.errors import InvalidInput
    from maintenance.cron_import.zones import zone_of_home

    if zone is not None:
        return zone
    found = zone_of_home(ctx.home, os.environ)
    if found is None:
        raise InvalidInput(
            "In which time zone? Neither HERMES_TIMEZONE, nor config.yaml of the home, nor this machine names one.",
            hint="Add --zone with an IANA name, such as --zone Europe/Berlin.", option="--zone",
        )
    return found.name
