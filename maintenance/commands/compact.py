"""`hermes-state sessions compact`: one pass by hand, its plan, the generations, and going back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.compaction.outcomes import Outcome
    from hermes_state.store import Store

HELP = """Fit a session into a small window, or see it through an older generation.

SESSION is an id, the start of one that no other id has, or a title. One pass puts a summary in the place of the oldest
messages of what the model is sent; every message stays readable, and --rollback takes the pass back. The window is how
many tokens a request and its reply may have together: --window, or what is known of --model (`hermes-state sessions
window` shows it). Tokens are counted by a built-in estimate. Without --summarizer the summary is made of the messages'
own words, with no model. A pass by hand ignores how recent the last one was, but it is not made when it would free too
little: of a session that fits there is nothing to do then, and that is no failure. Begin with --plan.
docs/compaction.md explains every answer.

What changes on disk: a row for the pass, and where the session's view begins; no message. --plan, --dry-run and
--generations change nothing.
Lock: the write lock twice for some milliseconds, none while the summary is made; beside whoever uses the store.
Left alone: history, search, other sessions. A file of hermes-agent is refused with the command that adopts it.

\b
Example:
  hermes-state sessions compact 20260820_0000 --window 8192 --plan
  hermes-state sessions compact 20260820_0000 --model qwen3:8b@http://localhost:11434
  hermes-state sessions compact 20260820_0000 --window 8192 --summarizer "command:./summarise --short"
  hermes-state sessions compact 20260820_0000 --rollback 2

Exit: 0 done, planned or nothing to do, 1 not compacted or refused, 2 usage, 65 damaged, 75 busy.
"""


@click.command("compact", help=HELP, short_help="Fit a session into a small window; go back to a generation.")
@click.argument("session")
@click.option("--window", type=click.IntRange(min=1), metavar="N",
              help="The model's window, in tokens (default: what is known of --model).")
@click.option("--model", "model_at", metavar="MODEL@ENDPOINT",
              help="Whose window counts (default: the session's model, at any endpoint).")
@click.option("--policy", type=click.Choice(["default", "hermes", "hermes-uncapped"]), default="default",
              show_default=True,
              help="Where the kept messages begin: default, as hermes-agent does, or as it did before its 20 % cap.")
@click.option("--summarizer", metavar="HOW", default="extractive", show_default=True,
              help="Who makes the summary: extractive (no model), command:PROGRAM ARGS, or openai:URL.")
@click.option("--summarizer-model", metavar="MODEL",
              help="The model that openai:URL is asked for (default: that of --model).")
@click.option("--fixed-tokens", type=click.IntRange(min=0), default=0, metavar="N",
              help="Tokens of the system prompt and the tools in each request (default: 0).")
@click.option("--reply-reserve", type=click.IntRange(min=0), metavar="N",
              help="Tokens kept for the reply (default: an eighth of the window; at most a quarter).")
@click.option("--deadline", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True,
              metavar="SECONDS", help="For all of the summariser's work; then the extract stands in.")
@click.option("--plan", "plan_only", is_flag=True, help="Print what a pass would do; change nothing.")
@click.option("--dry-run", is_flag=True, help="The same as --plan.")
@click.option("--generations", is_flag=True, help="List the passes over the session; change nothing.")
@click.option("--rollback", type=click.IntRange(min=0), metavar="GEN",
              help="See the session through generation GEN; 0 for all of it.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, session: str, plan_only: bool, dry_run: bool, generations: bool, rollback: int | None, yes: bool,
    **said: Any,
) -> int:
    from hermes_state.store import open_store
    from maintenance.reading.compaction_output import (
        generations_document,
        outcome_document,
        rollback_document,
        tell_generations,
        tell_outcome,
        tell_rollback,
    )

    if generations and rollback is not None:
        raise click.UsageError("--generations and --rollback are two questions: give one of them.")
    only_look = plan_only or dry_run or generations
    with open_store(path=ctx.db, clock=ctx.clock, read_only=only_look) as store:
        session_id = _resolved(ctx, session)
        shown: dict[str, Any] = {"path": ctx.db, "session_id": session_id, "dry_run": only_look}
        status = 0
        if generations:
            shown |= generations_document(store, session_id)
        elif rollback is not None:
            shown |= rollback_document(store, session_id, rollback, only_look=only_look)
        else:
            outcome = _outcome(store, session_id, said, only_look=only_look)
            shown |= outcome_document(outcome)
            positions = store.compaction.view(session_id).positions if only_look and not ctx.json else ()
            status = 0 if only_look and outcome.why != "prefix_too_large" else status_of(outcome)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json(shown)
    elif generations:
        tell_generations(ctx, shown)
    elif rollback is not None:
        tell_rollback(ctx, shown)
    else:
        tell_outcome(ctx, outcome, planned=only_look, positions=positions)
    return status


def status_of(outcome: Outcome) -> int:
    """The exit status of a pass: busy is worth another try, everything else that is not done is not.

    A session that fits and cannot be made smaller is done: nobody has to do anything.
    """
    from maintenance.reading.compaction_output import nothing_to_do

    if outcome.state == "compacted" or nothing_to_do(outcome):
        return 0
    error = outcome.error
    return 75 if outcome.why == "running" else 1 if error is None else int(getattr(error, "exit_code", 1))


def summarizer_of(how: str, model: str | None) -> Any:
    """The summariser that an option names; None for the built-in extract. Raises `InvalidInput`."""
    import shlex

    from hermes_state.compaction.summary import command_summarizer, openai_summarizer
    from hermes_state.errors import InvalidInput

    kind, _, what = how.partition(":")
    if how == "extractive":
        return None
    if kind == "command" and what.strip():
        return command_summarizer(shlex.split(what))
    if kind == "openai" and what.strip():
        if not model:
            raise InvalidInput(
                "openai:URL needs a model to ask for.", hint="Give --summarizer-model NAME.", argument="summarizer",
            )
        return openai_summarizer(what, model)
    raise InvalidInput(
        f"--summarizer is extractive, command:PROGRAM or openai:URL, not {how!r}.", argument="summarizer",
    )


def _outcome(store: Store, session_id: str, said: dict[str, Any], *, only_look: bool) -> Outcome:
    from hermes_state.compaction.windows import model_at

    model, endpoint = model_at(said["model_at"]) if said["model_at"] else ("", "")
    options: dict[str, Any] = {
        "window": said["window"], "model": model, "endpoint": endpoint, "policy": said["policy"],
        "fixed_tokens": said["fixed_tokens"], "reply_reserve": said["reply_reserve"], "deadline": said["deadline"],
        "summarizer": summarizer_of(said["summarizer"], said["summarizer_model"] or model), "trigger": "manual",
    }
    if only_look:
        return store.compaction.preview(session_id, **options)
    from maintenance.output.progress import progress

    with progress(None, "making the summary"):
        return store.compaction.compact(session_id, **options)


def _resolved(ctx: Context, session: str) -> str:
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading
    from maintenance.reading.resolve import resolve_session

    with reading(ctx) as reader:
        return resolve_session(reader, dialect_of(reader), session)
