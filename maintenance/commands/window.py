"""`hermes-state sessions window`: what is known of a model's window; see `hermes_state.compaction.windows`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from hermes_state.compaction.tokens import Factor
    from hermes_state.compaction.windows import Probe, Window

HELP = """Show what is known of a model's window, and which number counts.

A window is how many tokens a request and its reply may have together. It is known in four ways: served (the server said
what it gives), learned (from a refusal, from a request that was cut), declared (somebody said so), trained (what the
model was made for). Of served and learned the newer one counts, then declared, then trained, with a warning: a local
server often gives 4,096 tokens of a model that was trained for 131,072. With it stand the learned factors: how many
real tokens one counted token is.

MODEL@ENDPOINT is the model as the server names it and the server's address, as in qwen3:8b@localhost:11434. Without an
endpoint it is the model wherever it is served. --probe asks the server (llama-server, Ollama, LM Studio, vLLM, and what
lists models like them), without a key, some seconds at most. The facts are kept in the store, so a store is needed.

What changes on disk: nothing; with --declare, --probe and --forget a row of the store, unless --dry-run.

Lock: none to look; otherwise the write lock, for some milliseconds, beside whoever uses the store.
Left alone: sessions, messages, compactions that were made for another window.

\b
Example:
  hermes-state sessions window qwen3:8b@localhost:11434
  hermes-state sessions window qwen3:8b@localhost:11434 --probe
  hermes-state sessions window my-model@http://10.0.0.5:8080 --declare 16384
  hermes-state sessions window qwen3:8b@localhost:11434 --forget learned

Exit: 0 done, 1 failed or nobody answers, 2 usage, 3 nothing is known, 65 damaged, 75 busy.
"""


@click.command("window", help=HELP, short_help="Show what is known of a model's window; probe or declare it.")
@click.argument("name", metavar="MODEL@ENDPOINT")
@click.option("--declare", type=click.IntRange(min=1), metavar="N",
              help="Say that it is N tokens, prompt and reply together; kept in the store.")
@click.option("--probe", is_flag=True, help="Ask the server at ENDPOINT, and keep what it says.")
@click.option(
    "--forget", type=click.Choice(["served", "learned", "declared", "trained"]), help="Forget one kind first."
)
@click.option("--dry-run", is_flag=True, help="Say what would be kept; change nothing. A probe still asks.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, name: str, declare: int | None, probe: bool, forget: str | None, dry_run: bool, yes: bool
) -> int:
    from hermes_state.compaction.windows import model_at
    from hermes_state.compaction.windows.records import valid_window
    from hermes_state.errors import InvalidInput

    model, endpoint = model_at(name)
    if declare is not None:
        valid_window(declare, "--declare")
    if probe and not endpoint:
        raise InvalidInput(
            f"A probe needs the address of a server: {model}@ENDPOINT.", argument="name",
            hint="As in qwen3:8b@localhost:11434.",
        )
    before, factors = look(ctx, model, endpoint)
    answered = ask(ctx, model, endpoint) if probe else None
    if not dry_run and (declare is not None or forget is not None or (answered is not None and answered.facts)):
        change(ctx, model, endpoint, declare=declare, forget=forget, answered=answered)
        known, factors = look(ctx, model, endpoint)
    else:
        known = before
    shown = document(ctx, model, endpoint, known, factors, answered, dry_run=dry_run, declare=declare, forget=forget)
    if ctx.json:
        from maintenance.output.documents import print_json

        print_json(shown)
    else:
        tell(ctx, shown, known)
    return 0 if known or dry_run or forget is not None else 3


def look(ctx: Context, model: str, endpoint: str) -> tuple[tuple[Window, ...], tuple[tuple[str, Factor], ...]]:
    """What the store knows. A file of hermes-agent, or of an older version of ours, knows nothing."""
    from hermes_state.compaction.tokens.factors import factors_of
    from hermes_state.compaction.windows import known
    from maintenance.dialects.detect import dialect_of
    from maintenance.gate import reading

    with reading(ctx) as store, store.snapshot():
        dialect_of(store)
        return known(store, model, endpoint), factors_of(store, model, endpoint)


def ask(ctx: Context, model: str, endpoint: str) -> Probe:
    """Ask the server, and say on stderr when it does not tell."""
    from hermes_state.compaction.windows import probe
    from maintenance.output.text import safe_text

    found = probe(endpoint, model)
    if not found.facts:
        asked = ", ".join(f"{question}: {said}" for question, said in found.asked.items())
        click.echo(f"{endpoint} answers, and does not say what it serves of {safe_text(model)} ({asked}).", err=True)
    return found


def change(
    ctx: Context, model: str, endpoint: str, *, declare: int | None, forget: Any, answered: Probe | None
) -> None:
    """Forget first, then keep what was asked and what was said. Raises `ForeignStore` for a file of hermes-agent."""
    from hermes_state.compaction.windows import Windows
    from hermes_state.store import open_store

    with open_store(path=ctx.db, clock=ctx.clock) as store:
        windows = Windows(store.core)
        if forget is not None:
            windows.forget(model, endpoint, forget)
        if answered is not None and answered.facts:
            windows.observe(answered)
        if declare is not None:
            windows.declare(model, endpoint, declare, by="hermes sessions window")


def document(
    ctx: Context, model: str, endpoint: str, known: tuple[Window, ...], factors: tuple[tuple[str, Factor], ...],
    answered: Probe | None, *, dry_run: bool, declare: int | None, forget: str | None,
) -> dict[str, Any]:
    """The window that counts, all that is known, and what was done. Times are RFC 3339, UTC."""
    from maintenance.output.text import rfc3339

    facts = [
        {
            "tokens": one.tokens, "kind": one.kind, "endpoint": one.endpoint, "observed_at": rfc3339(one.observed_at),
            "evidence": dict(one.evidence), "why": one.why,
        }
        for one in known
    ]
    return {
        "path": ctx.db,
        "dry_run": dry_run,
        "model": model,
        "endpoint": endpoint,
        "window": facts[0] if facts else None,
        "known": facts,
        "factors": [
            {
                "tokenizer": tokenizer, "factor": factor.factor, "samples": factor.samples,
                "updated_at": rfc3339(factor.updated_at),
            }
            for tokenizer, factor in factors
        ],
        "declared": declare,
        "forgot": forget,
        "probed": None if answered is None else {
            "asked": dict(answered.asked),
            "found": [
                {"tokens": fact.tokens, "kind": fact.kind, "evidence": dict(fact.evidence)} for fact in answered.facts
            ],
        },
    }


def tell(ctx: Context, shown: dict[str, Any], known: tuple[Window, ...]) -> None:
    """The same for people."""
    from maintenance.doctor.findings import command as command_line
    from maintenance.output.tables import Column, print_table
    from maintenance.output.text import human_age, safe_text

    name = safe_text(f"{shown['model']}@{shown['endpoint']}" if shown["endpoint"] else shown["model"])
    if shown["dry_run"]:
        said = [f"{fact['tokens']} {fact['kind']}" for fact in (shown["probed"] or {"found": []})["found"]]
        said += [] if shown["declared"] is None else [f"{shown['declared']} declared"]
        click.echo(f"Would keep: {', '.join(said) or 'nothing'}. Nothing was changed.")
    if not known:
        click.echo(f"Nothing is known of the window of {name}.")
        way = "--probe" if shown["endpoint"] else "--declare TOKENS"
        click.echo(f"Next: {command_line('sessions window', ctx.db, name, way)}")
        return
    first = known[0]
    click.echo(f"{name}: {first.tokens} tokens, {safe_text(first.why)}.")
    print_table(
        [Column("tokens", right=True), "kind", "age", Column("evidence", shrinks=True, widest=80)],
        [(one.tokens, one.kind, human_age(one.observed_at, ctx.clock), evidence(one)) for one in known],
    )
    for factor in shown["factors"]:
        click.echo(
            f"Factor of {safe_text(factor['tokenizer'])}: {factor['factor']:.2f}, from {factor['samples']} replies."
        )


def evidence(window: Window) -> str:
    """Where a number was seen, in a few words."""
    said = dict(window.evidence)
    source = said.pop("source", "")
    words = [f"{key} {value}" for key, value in sorted(said.items()) if value is not None]
    place = "" if window.endpoint else " (any endpoint)"
    return f"{source}{': ' if words else ''}{', '.join(words)}{place}"
