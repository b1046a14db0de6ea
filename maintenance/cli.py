"""The tree of commands, built from the table of verbs and loaded one at a time.

Invariant: running one verb imports that verb's module and no other; the lists of verbs come from the table alone. That
is what keeps `sessions list` quick to start.

Not for: deciding between our commands and hermes-agent's (see `handoff.py`), or exit statuses (see `entry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from hermes_state import __version__
from maintenance.context import remember_options, with_options
from maintenance.verbs import GROUPS, Verb, verbs_of

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class VerbGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, *, group: str | None, **settings: Any) -> None:
        super().__init__(**settings)
        self._group = group

    def _verbs(self) -> dict[str, Verb]:
        return verbs_of(self._group)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(GROUPS if self._group is None else ()), *self._verbs()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if self._group is None and cmd_name in GROUPS:
            return group_command(cmd_name)
        verb = self._verbs().get(cmd_name)
        if verb is None:
            return None
        command: click.Command = import_module(verb.module).command
        command.context_settings = {**SETTINGS, **command.context_settings}
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown verb is answered with the nearest ones."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=3)
            where = f"{ctx.command_path} --help"
            advice = f"Did you mean {' or '.join(near)}?" if near else f"`{where}` lists the verbs."
            raise click.UsageError(f"There is no verb {name!r}. {advice}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, help) for name, help in GROUPS.items()] if self._group is None else []
        rows += [(name, verb.help) for name, verb in self._verbs().items()]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        note = ctx.find_root().meta.get("maintenance.handed_on")
        if note:
            formatter.write_paragraph()
            formatter.write_text(note)


def group_command(name: str) -> VerbGroup:
    """The command of one group of verbs."""
    return _group(name, name, GROUPS[name])


def root_command() -> VerbGroup:
    """The whole program."""
    version = click.version_option(__version__, "--version", message="hermes-state %(version)s")
    text = "Keep a Hermes state.db small, fast and recoverable while gateways are running."
    return _group("hermes-state", None, text, version)


def _group(name: str, group: str | None, text: str, *more: Callable[[Any], Any]) -> VerbGroup:
    @with_options
    @click.pass_context
    def run(ctx: click.Context, /, **said: Any) -> None:
        remember_options(ctx, **said)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())

    for option in more:
        option(run)  # click notes an option on the function itself
    params = list(reversed(getattr(run, "__click_params__", [])))
    return VerbGroup(
        group=group, name=name, params=params, help=text, callback=run, invoke_without_command=True,
        context_settings=dict(SETTINGS), subcommand_metavar="VERB [OPTIONS]",
    )
