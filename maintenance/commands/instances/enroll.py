"""`hermes-state instances enroll`: mint a token that a plugin redeems."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Mint a one-time token with which a plugin enrolls itself, and print it once.

An instance that is not registered is added by the same transaction; give its --nickname then. Earlier tokens of the
instance are dead from then on, and so is its credential: a plugin that is connected with it is sent away.

What changes on disk: a row of the instance, one of its token (a digest). Lock: the write lock, for some milliseconds,
beside whoever uses the store.
Left alone: threads that are bound to the instance, and every other instance.

\b
Example:
  hermes instances enroll laptop --nickname "My laptop" --url wss://laptop:8443/
  hermes instances enroll laptop --minutes 5 --yes

Exit: 0 done, 1 refused, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("enroll", help=HELP, short_help="Mint a one-time token with which a plugin enrolls itself.")
@click.argument("which", metavar="ID")
@click.option("--nickname", metavar="NAME", help="What people call it; needed for one that is not registered.")
@click.option("--url", metavar="URL", help="Where its connector is: http, https, ws or wss.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True, max=1440), default=10.0, show_default=True,
              help="How long the token is good.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing and mint nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a credential that works is ended.")
@store_options
def command(
    ctx: Context, *, which: str, nickname: str | None, url: str | None, minutes: float, dry_run: bool, yes: bool
) -> int:
    from hermes_state.errors import InstanceNotFound
    from hermes_state.instances import Event
    from hermes_state.shell_words import shell_word
    from maintenance.commands.instances.shown import actor, document, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import rfc3339
    from maintenance.plan import Plan, confirm

    with opened(ctx, read_only=True) as store:
        try:
            before = store.instances.preview(which, Event.MINT, nickname=nickname, connector_url=url)
        except InstanceNotFound as error:
            raise InstanceNotFound(
                error.message, hint="Give its --nickname to add it, or the id of one that"
                f" `hermes-state instances list --db {shell_word(ctx.db)}` shows.", **error.facts,
            ) from None
    works = before is not None and before.credential_issued_at is not None
    plan = Plan(
        title=f"A token for {which} of {ctx.db}" + (", which is added" if before is None else ""),
        lines=(
            *(() if before is None else (line(before, ctx),)),
            *(("Its credential ends now: a plugin that is connected with it is sent away.",) if works else ()),
        ),
        facts={
            "path": ctx.db, "instance": None if before is None else document(before), "ends_credential": works,
            "token": None, "expires_at": None, "added": before is None,
        },
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if works and not confirm(plan, yes=yes, question="Mint it?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        minted = store.instances.enroll(
            which, nickname=nickname, connector_url=url, actor=actor("enroll"), ttl_seconds=minutes * 60
        )
    if ctx.json:
        print_json({
            "dry_run": False, "path": ctx.db, "instance": document(minted.instance), "ends_credential": works,
            "token": minted.token, "expires_at": rfc3339(minted.expires_at), "added": minted.added,
        })
        return 0
    click.echo(minted.token)
    click.echo(f"Good until {rfc3339(minted.expires_at)}, once. It is not shown again.", err=True)
    return 0
