"""What every verb is told: which store, which output, which clock; and the options that say so.

Invariant: a verb never reads the environment or the process's arguments by itself; it gets a `Context`. The same four
options stand on every verb, and may stand before it as well (`hermes -p work sessions list`).

Not for: opening the store (see `maintenance.gate`). A global context object was rejected: tests and callers could not
run two of them beside each other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, overload

import click

from hermes_state.clock import clock_from_environment
from maintenance.home import locate
from maintenance.store_context import Context as Context

_Verb = TypeVar("_Verb", bound=Callable[..., Any])


_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fields: docs/cli-json.md)."),
    click.option("--db", metavar="FILE", help="The store itself, instead of a home's state.db."),
    click.option("--profile", "-p", metavar="NAME", help="A profile of that home."),
    click.option("--home", metavar="DIR", help="The home that holds the store (default: $HERMES_HOME or ~/.hermes)."),
)


def with_options(function: _Verb) -> _Verb:
    """Put the four options on a click command or group."""
    for option in _OPTIONS:
        function = option(function)
    return function


def remember_options(ctx: click.Context, **said: Any) -> None:
    """For groups: keep what stood before the verb, the later word winning."""
    ctx.obj = {**(ctx.obj or {}), **{name: value for name, value in said.items() if value}}


@overload
def store_options(function: _Verb, /) -> _Verb: ...
@overload
def store_options(*, must_exist: bool, home_must_exist: bool = ...) -> Callable[[_Verb], _Verb]: ...


def store_options(
    function: _Verb | None = None, /, *, must_exist: bool = True, home_must_exist: bool = True
) -> Any:
    """Give a verb --home, --profile, --db and --json, and its function a `Context` as first argument.

    `must_exist=False` is for verbs that have something to say without a store, `home_must_exist=False` for those that
    make its folder.
    """
    if function is None:
        return functools.partial(_decorate, must_exist=must_exist, home_must_exist=home_must_exist)
    return _decorate(function, must_exist=must_exist, home_must_exist=home_must_exist)


def _decorate(function: _Verb, *, must_exist: bool, home_must_exist: bool) -> Any:
    @functools.wraps(function)
    def run(
        *args: Any, home: str | None, profile: str | None, db: str | None, as_json: bool, **options: Any
    ) -> Any:
        before = click.get_current_context().obj or {}
        if home is None and profile is None and db is None:
            home, profile, db = before.get("home"), before.get("profile"), before.get("db")
        elif db is None:
            home = home or before.get("home")
            profile = profile or before.get("profile")
        place = locate(
            home=home, profile=profile, db=db, environ=os.environ, must_exist=must_exist,
            home_must_exist=home_must_exist,
        )
        context = Context(
            home=place.home, profile=place.profile, db=place.db, json=as_json or bool(before.get("as_json")),
            clock=clock_from_environment(),
        )
        return function(context, *args, **options)

    return with_options(run)
