"""Outcomes, generations and views of compaction as documents and as text.

Invariant: the text says nothing that the document does not have. Not for: deciding anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from maintenance.output.tables import Column, print_facts, print_table
from maintenance.output.text import plural, rfc3339, safe_text
from maintenance.reading.compaction_reasons import for_people

if TYPE_CHECKING:
    from hermes_state.compaction.generations import Generation, LiveView
    from hermes_state.compaction.outcomes import Outcome
    from hermes_state.compaction.planning import Plan
    from hermes_state.store import Store
    from maintenance.context import Context

LINE_WIDTH = 90


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """What a pass came to, or would."""
    found = outcome.document()
    del found["session_id"]
    found["plan"] = None if outcome.plan is None else plan_document(outcome.plan, fixed=outcome.tokens_fixed)
    found["error"] = None if outcome.error is None else {
        "code": getattr(outcome.error, "code", type(outcome.error).__name__), "message": str(outcome.error),
    }
    return found


def plan_document(plan: Plan, *, fixed: int) -> dict[str, Any]:
    """Which messages of the view go, and why. Places are those in the view, from 0; tokens are of messages only.

    `fixed`: tokens that the caller declared, which a plan counts in its sums.
    """
    return {
        "start": plan.start, "end": plan.end, "summarised": len(plan.summarised), "tail_messages": plan.tail_rows,
        "tail_tokens": plan.tail_tokens, "summary_budget": plan.summary_budget, "anchors": list(plan.anchors),
        "clipped": sorted(plan.clips), "tokens_after_at_most": plan.tokens_after_at_most - fixed,
        "reasons": list(plan.reasons),
    }


def generations_document(store: Store, session_id: str) -> dict[str, Any]:
    """Every pass over a session, oldest first, and the one that it is seen through."""
    seen = store.compaction.status(session_id).generation
    return {
        "seen_through": None if seen is None else seen.generation,
        "generations": [generation_document(one) for one in store.compaction.generations(session_id)],
    }


def generation_document(one: Generation) -> dict[str, Any]:
    """One row of a pass."""
    return {
        "generation": one.generation, "state": one.state, "reason": one.reason, "policy": one.policy, "form": one.form,
        "summarizer": one.summarizer, "cut_at": one.cut_at, "source_messages": one.source_rows,
        "anchors": list(one.anchors), "window": one.window, "counter": one.tokenizer, "tokens_fixed": one.tokens_fixed,
        "tokens_reserved": one.tokens_reserved, "tokens_before": one.tokens_before, "tokens_after": one.tokens_after,
        "turn": one.turn, "model": one.model, "summary": one.summary,
        "error": None if one.error is None else dict(one.error), "started_at": rfc3339(one.started_at),
        "ended_at": rfc3339(one.ended_at),
    }


def view_document(view: LiveView) -> dict[str, Any]:
    """What a model is sent, message by message."""
    from hermes_state.compaction.tokens import Estimator, message_tokens

    counter = Estimator()
    tokens = [message_tokens(message, counter) for message in view.messages]
    return {
        "generation": None if view.generation is None else view.generation.generation,
        "tokens": sum(tokens),
        "counter": counter.name,
        "messages": [
            {
                "position": position, "id": message_id, "tokens": count, "summary": place == view.summary_at,
                "clipped": position is not None and position in view.clips, "message": message,
            }
            for place, (message, position, message_id, count) in enumerate(
                zip(view.messages, view.positions, view.ids, tokens, strict=True)
            )
        ],
    }


def nothing_to_do(outcome: Outcome) -> bool:
    """Whether no pass was made because none is needed: what there is fits, and none would make it smaller."""
    return outcome.state == "not_needed" or (outcome.state, outcome.why) == ("not_compacted", "not_worth_it")


def tell_outcome(
    ctx: Context, outcome: Outcome, *, planned: bool, positions: Sequence[int | None] = ()
) -> None:
    """A pass, or what it would be, for people. `positions`: of the messages of the view that was planned on."""
    settings, plan = outcome.settings, outcome.plan
    who, said = safe_text(outcome.session_id), outcome.state.replace("_", " ")
    if settings is not None and nothing_to_do(outcome):
        fits = "it fits" if outcome.fits else "and only the server knows whether it fits"
        click.echo(
            f"Session {who}: nothing to do, {fits} ({outcome.why}): {outcome.tokens_before} of {settings.usable}"
            f" tokens. {safe_text(outcome.detail, 400)}"
        )
    else:
        said = "a pass would be made" if planned and outcome.changed else said
        click.echo(f"Session {who}: {said} ({outcome.why}). {safe_text(outcome.detail, 400)}")
    facts: list[tuple[str, str]] = []
    if settings is not None:
        asked = settings.reserve_asked
        lowered = "" if asked is None or asked <= settings.reserve else (
            f" (of {asked} asked for: at most a quarter of the window)"
        )
        facts += [
            ("window", f"{settings.window} tokens ({settings.window_kind}): {settings.fixed} fixed,"
                       f" {settings.reserve} for the reply{lowered}"
                       f", {settings.usable} usable for messages (fixed: system prompt and tools)"
                       + (", by an estimate that may be too high" if settings.estimated else "")),
            ("limits", f"in tokens: trigger {settings.trigger} (above it a pass is due), summary {settings.summary},"
                       f" tail {settings.tail}, anchors {settings.anchors};"
                       f" worth {settings.worth} (what it must free)"),
            ("passes", f"one in {settings.turns_between} user messages while they fit, else after each"
                       f" {settings.steps_between} answers, or {settings.burst} in as many messages; summariser"
                       f" {settings.summarizer}, {settings.deadline_seconds:g} s"),
            ("counter", settings.counter + (
                " (no tokenizer: it may be off by a fifth or more)" if settings.counter.startswith("estimate") else ""
            )),
        ]
    facts.append(("tokens", f"messages {outcome.tokens_before} before" + (
        "" if outcome.tokens_after is None else f", {'at most ' if planned else ''}{outcome.tokens_after} after"
    )))
    if planned and plan is not None and plan.needed:
        facts += [
            ("summarised", f"{plural(len(plan.summarised), 'message')} in at most {plan.summary_budget} tokens"),
            ("tail", f"{plural(plan.tail_rows, 'message')} kept as they are, {plan.tail_tokens} tokens"),
            ("anchors", f"{plural(len(plan.anchors), 'older message')} kept all the same"),
            ("clipped", f"{plural(len(plan.clips), 'kept message')} shown shortened"),
            ("because", "; ".join(for_people(plan.reasons, positions))),
        ]
    print_facts((name, safe_text(value, 1200)) for name, value in facts)
    for one in outcome.fills:
        where = f" at {one.positions[0]}" if one.positions else ""
        click.echo(f"  {one.tokens:>8}  {one.what}{where}: {safe_text(one.detail, 200)}")
    for line in outcome.advice:
        click.echo(f"Try: {safe_text(line, 400)}")
    for line in outcome.warnings:
        click.echo(f"Warning: {safe_text(line, 400)}", err=True)
    if settings is not None and nothing_to_do(outcome):
        click.echo(
            f"Next: send the session as it is; a pass is due above {settings.trigger} tokens. A smaller --window makes"
            " one now."
        )
    if outcome.changed and planned:
        click.echo("Nothing was changed. Next: the same command without --plan makes the pass.")
    if outcome.changed and not planned:
        from hermes_state.shell_words import shell_word
        from maintenance.doctor.findings import command as command_line

        back = command_line("sessions compact", ctx.db, shell_word(outcome.session_id), "--rollback 0")
        click.echo(f"Take it back: {back}")


def rollback_document(store: Store, session_id: str, generation: int, *, only_look: bool) -> dict[str, Any]:
    """Where a session is seen from now on, or would be, and whether that fits the window of its newest pass."""
    from hermes_state.compaction.tokens import Estimator, request_tokens

    before = store.compaction.status(session_id).generation
    if only_look:
        found = store.compaction.view(session_id, as_of=generation).generation
    else:
        found = store.compaction.rollback(session_id, generation)
    counter = Estimator()
    view = store.compaction.view(session_id, as_of=generation if only_look else None)
    tokens = request_tokens(view.messages, counter)
    done = [one for one in store.compaction.generations(session_id) if one.state == "done"]
    window = done[-1].window if done else None
    return {
        "seen_before": None if before is None else before.generation,
        "seen_through": None if found is None else found.generation,
        "already_done": before == found,
        "tokens": tokens, "counter": counter.name, "window": window,
        "fits": None if not done else tokens <= done[-1].window - done[-1].tokens_fixed - done[-1].tokens_reserved,
    }


def tell_rollback(ctx: Context, shown: Mapping[str, Any]) -> None:
    """The same for people, with the way forward again."""
    from hermes_state.shell_words import shell_word
    from maintenance.doctor.findings import command as command_line

    session_id, through, before = shown["session_id"], shown["seen_through"], shown["seen_before"]
    would = "would be" if shown["dry_run"] else "is"
    click.echo(f"Session {safe_text(session_id)} {would} seen through " + (
        "its whole history." if through is None else f"generation {through}."
    ))
    size = f"That is {shown['tokens']} tokens by the built-in {shown['counter']}"
    if shown["window"] is not None:
        fits = "which fits" if shown["fits"] else "which does not fit"
        size += f", {fits} the {shown['window']} tokens of its last window with what was fixed and kept for the reply"
    click.echo(size + ".")
    if before != through and not shown["dry_run"]:
        back = command_line("sessions compact", ctx.db, shell_word(session_id), f"--rollback {before or 0}")
        click.echo(f"Where it was: {back}")


def tell_generations(ctx: Context, shown: Mapping[str, Any]) -> None:
    """The passes over a session, for people."""
    if not shown["generations"]:
        click.echo(f"Session {safe_text(shown['session_id'])} of {ctx.db} was never compacted.")
        return
    print_table(
        [
            Column("generation", right=True), Column("state"), Column("form"), Column("window", right=True),
            Column("before", right=True), Column("after", right=True), Column("messages", right=True),
            Column("summariser", widest=30), Column("started"), Column("why it ended", widest=60),
        ],
        [
            [
                f"{one['generation']}{' *' if one['generation'] == shown['seen_through'] else ''}", one["state"],
                one["form"] or "-", one["window"], one["tokens_before"],
                "-" if one["tokens_after"] is None else one["tokens_after"], one["source_messages"],
                safe_text(one["summarizer"] or "-"), one["started_at"] or "-",
                safe_text((one["error"] or {}).get("message", "")),
            ]
            for one in shown["generations"]
        ],
    )
    through = shown["seen_through"]
    click.echo("Seen whole." if through is None else f"* The session is seen through generation {through}.")


def tell_view(shown: Mapping[str, Any], *, whole: bool) -> None:
    """A view for people: one line a message, or all of it."""
    through = "its whole history" if shown["generation"] is None else f"generation {shown['generation']}"
    count = plural(len(shown["messages"]), "message")
    click.echo(f"Session {safe_text(shown['session_id'])} through {through}: {count}, {shown['tokens']} tokens"
               f" by the built-in {shown['counter']}.")
    if not whole and shown["messages"]:
        click.echo("  place  tokens  message")
    for one in shown["messages"]:
        message = one["message"]
        marks = "".join(f" ({word})" for word in ("summary", "clipped") if one[word])
        where = "-" if one["position"] is None else one["position"]
        text = _text(message)
        if whole:
            click.echo(f"--- {where}  {message['role']}{marks}  {one['tokens']} tokens")
            for line in text.splitlines() or [""]:
                click.echo(safe_text(line))
        else:
            line = " ".join(text.split())
            click.echo(f"  {where:>5}  {one['tokens']:>6}  {message['role']}{marks}: {safe_text(line, LINE_WIDTH)}")


def _text(message: Mapping[str, Any]) -> str:
    import json

    parts = []
    content = message.get("content")
    if isinstance(content, str):
        parts.append(content)
    elif content is not None:
        parts.append(json.dumps(content, ensure_ascii=False, default=str))
    parts += [json.dumps(call, ensure_ascii=False, default=str) for call in message.get("tool_calls") or ()]
    return "\n".join(parts)
