"""The filter options of a command.

Invariant: one decorator puts the same options on every verb and hands over one `Filters`; a verb cannot forget one or
spell it another way. Not for: verbs' own options.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hermes_state.clock import clock_from_environment
from hermes_state.errors import InvalidInput
from maintenance.selection.ages import parse_age, parse_age_limit, parse_moment
from maintenance.selection.filters import Filters, directory

Command = TypeVar("Command", bound=Callable[..., Any])

_TEXTS = {
    "title": "Part of the title; wildcards are ordinary characters.",
    "model": "Part of the model name.",
    "branch": "Part of the git branch.",
    "workspace": "Part of the project path: the git work tree, else the working directory.",
    "end-reason": "Exact end reason, for example cli_close or compression.",
    "provider": "Exact billing provider, in any case.",
    "cwd": "This working directory or one below it.",
    "user": "Exact gateway user id.",
    "chat-id": "Exact gateway chat id.",
    "chat-type": "Exact gateway chat type.",
}
_COUNTS = {"messages": "messages", "tokens": "input and output tokens", "tool-calls": "tool calls"}

OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--older-than",
        metavar="AGE",
        help="Last activity longer ago: 90d, 12h, 4w; a bare number is days. By source: cron=7d,cli=90d.",
    ),
    click.option("--newer-than", metavar="AGE", help="Last activity within this time."),
    click.option(
        "--before", metavar="TIME", help="Last activity before a date or time (local unless it says its offset)."
    ),
    click.option("--after", metavar="TIME", help="Last activity at or after a date or time."),
    click.option("--source", "sources", multiple=True, metavar="NAME", help="cli, telegram, cron, ...; repeatable."),
    *(click.option(f"--{name}", metavar="TEXT", help=text) for name, text in _TEXTS.items()),
    *(
        click.option(f"--{end}-{name}", type=int, metavar="N", help=f"{word} this many {what}.")
        for name, what in _COUNTS.items()
        for end, word in (("min", "At least"), ("max", "At most"))
    ),
    click.option("--min-cost", type=float, metavar="USD", help="At least this cost (actual, else estimated)."),
    click.option("--max-cost", type=float, metavar="USD", help="At most this cost; an unknown cost never matches."),
    click.option("--ended", "state", flag_value="ended", help="Only sessions that ended."),
    click.option("--open", "state", flag_value="open", help="Only sessions that nothing ended."),
    click.option("--never-active", is_flag=True, help="Only gateway sessions that never had a turn."),
    click.option("--include-archived", is_flag=True, help="Archived sessions too."),
    click.option("--include-pinned", is_flag=True, help="Let a bulk verb take pinned sessions too."),
    click.option("--include-delegates", is_flag=True, help="Delegates as entries of their own too."),
)
_NAMES = (
    *("older_than", "newer_than", "before", "after", "sources", "state"),
    *(name.replace("-", "_") for name in _TEXTS),
    *(f"{end}_{name.replace('-', '_')}" for name in (*_COUNTS, "cost") for end in ("min", "max")),
    *("never_active", "include_archived", "include_pinned", "include_delegates"),
)


def filter_options(command: Command) -> Command:
    """Put the filter options on a command; it receives them as the keyword argument `filters`."""

    @functools.wraps(command)
    def with_filters(*args: Any, **given: Any) -> Any:
        options = {name: given.pop(name) for name in _NAMES}
        return command(*args, filters=filters_from(options, clock_from_environment().now()), **given)

    decorated: Any = with_filters
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def filters_from(options: dict[str, Any], now: float) -> Filters:
    """Filters of raw option values; InvalidInput names the option that cannot be used."""
    values = dict(options)
    texts = {name: name.replace("-", "_") for name in _TEXTS}
    for option, text in (
        *(("source", source) for source in values["sources"]),
        *((option, values[name]) for option, name in texts.items()),
    ):
        if text == "":
            raise InvalidInput(
                f"--{option} is empty, which filters nothing.",
                hint="An unset shell variable does that. Give it a value, or leave the option away.",
                option=f"--{option}",
                value="",
            )
    values |= {name: values[name] or "" for name in texts.values()}
    older, newer = values.pop("older_than"), values.pop("newer_than")
    before, after = values.pop("before"), values.pop("after")
    if values["cwd"]:
        values["cwd"] = directory(values["cwd"])
    return Filters(
        older_than=None if older is None else parse_age_limit(older, now),
        newer_than=None if newer is None else parse_age(newer, now, "--newer-than"),
        before=None if before is None else parse_moment(before, "--before", now),
        after=None if after is None else parse_moment(after, "--after", now),
        state=values.pop("state") or "any",
        sources=tuple(values.pop("sources")),
        **values,
    )
