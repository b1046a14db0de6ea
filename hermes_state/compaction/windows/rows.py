"""The rows of `model_windows`: one for each kind of knowledge about a model at an endpoint, and which one counts.

Invariant: what the server says it serves, or what it refused, beats what a person declared, and that beats what the
model was trained for. Of served and learned the newer one counts: a refusal corrects an older probe, and the next probe
corrects the refusal. Times of one model at one endpoint only rise, so a clock that was set back cannot make new
knowledge old.

A row without an endpoint is about the model wherever it is served. It may declare, and say what the model was trained
for; it is not asked for what a particular server serves.

Not for: asking servers (see `servers`). Taking the smallest of all numbers was rejected: one wrong refusal would shrink
a model for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hermes_state.compaction.windows.endpoints import endpoint_key
from hermes_state.compaction.windows.records import KINDS, SMALLEST, Kind, Refusal, Truncation, Window, valid_window
from hermes_state.engine import Reader, Transaction
from hermes_state.errors import InvalidInput, NotFound
from hermes_state.shell_words import shell_word

_COLUMNS = "tokens, kind, model, endpoint, observed_at, evidence"
_LONGEST_MODEL = 500


def known(reader: Reader, model: str, endpoint: str = "") -> tuple[Window, ...]:
    """All that is known, best first; `why` is set on each. Empty when nothing is.

    `endpoint`: an address as `endpoint_key` takes it; empty: the model wherever it is served. Raises `InvalidInput`.
    """
    model, key = _model(model), endpoint_key(endpoint)
    if not _has_table(reader):
        return ()
    found = [_window(row) for row in reader.rows(
        f"SELECT {_COLUMNS} FROM model_windows WHERE model = ? AND endpoint IN (?, '')", (model, key)
    )]
    # What was said of this endpoint itself goes before what was said of the model anywhere.
    usable = [one for one in found if one.endpoint == key or one.kind in ("declared", "trained")]
    usable.sort(key=lambda one: (KINDS.index(one.kind), one.endpoint != key))
    if len(usable) > 1 and {usable[0].kind, usable[1].kind} == {"served", "learned"}:
        served, learned = usable[0], usable[1]
        if learned.observed_at > served.observed_at:
            usable[0], usable[1] = learned, served
    return tuple(
        replace(one, why=_why(one, usable[1:]) if place == 0 else f"{usable[0].kind} counts before it")
        for place, one in enumerate(usable)
    )


def resolve(reader: Reader, model: str, endpoint: str = "") -> Window:
    """The window that counts, with `why`. Raises `NotFound` when nothing is known, `InvalidInput`."""
    found = known(reader, model, endpoint)
    if not found:
        key = endpoint_key(endpoint)
        where = f" at {key}" if key else ""
        name = f"{model}@{key}" if key else model
        raise NotFound(
            f"Nothing is known of the window of {model}{where}, in {reader.path}.",
            hint=(
                f"`hermes sessions window --db {shell_word(reader.path)} {shell_word(name)} "
                f"{'--probe' if key else '--declare TOKENS'}`"
                f"{' asks the server; `--declare TOKENS` says it' if key else ' says it'}."
            ),
            path=str(reader.path), model=model, endpoint=key,
        )
    return found[0]


def put(
    tx: Transaction, kind: Kind, model: str, endpoint: str, tokens: int, *, at: float, evidence: Mapping[str, Any]
) -> Window:
    """Write what was seen, over what was known of that kind; returns the row. Raises `InvalidInput`.

    `at`: epoch seconds. Rows of the pair from a time that has not come are taken back to just before it: a clock was
    ahead, and what is seen now is newer than they are.
    """
    model, key = _model(model), endpoint_key(endpoint)
    if kind not in KINDS:
        raise InvalidInput(f"A window is {', '.join(KINDS)}, not {kind!r}.", argument="kind")
    if not key and kind in ("served", "learned"):
        raise InvalidInput(f"A {kind} window belongs to an endpoint, and none was named.", argument="endpoint")
    valid_window(tokens)
    at = float(at)
    tx.execute(
        "UPDATE model_windows SET observed_at = ?3 - 0.001 WHERE model = ?1 AND endpoint = ?2 AND observed_at >= ?3",
        (model, key, at),
    )
    text = json.dumps(dict(evidence), ensure_ascii=False, sort_keys=True)
    tx.execute(
        f"INSERT INTO model_windows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (model, endpoint, kind)"
        " DO UPDATE SET tokens = excluded.tokens, observed_at = excluded.observed_at, evidence = excluded.evidence",
        (tokens, kind, model, key, at, text),
    )
    return Window(tokens=tokens, kind=kind, model=model, endpoint=key, observed_at=at, evidence=json.loads(text))


def declare(tx: Transaction, model: str, endpoint: str, tokens: int, *, at: float, by: str = "caller") -> Window:
    """A person or a program says what the window is."""
    return put(tx, "declared", model, endpoint, tokens, at=at, evidence={"source": by})


def observe_served(
    tx: Transaction, model: str, endpoint: str, tokens: int, *, at: float, evidence: Mapping[str, Any]
) -> Window:
    """The server says what it serves."""
    return put(tx, "served", model, endpoint, tokens, at=at, evidence=evidence)


def learn(
    tx: Transaction, model: str, endpoint: str, said: Refusal | Truncation | int, *, at: float
) -> Window | None:
    """Keep what a refusal, a cut or a filled window teaches; None when it names no window.

    `said`: an int is the sum of prompt and reply that a reply ran into (`stopped_at_window`). A cut teaches what surely
    fits, which may be half of the window: it stays until the server is asked; one below the smallest window teaches
    nothing. A refusal for the reply's share only (prompt and window fit) teaches the window just as well.
    """
    if isinstance(said, Refusal):
        if said.window is None:
            return None
        evidence: dict[str, Any] = {
            "source": "refusal", "server": said.server, "status": said.status, "evidence": said.evidence,
            "prompt_tokens": said.prompt_tokens,
        }
        return put(tx, "learned", model, endpoint, said.window, at=at, evidence=evidence)
    if isinstance(said, Truncation):
        if said.fits < SMALLEST:
            return None  # So few say nothing of a window; some servers leave out what they had cached.
        evidence = {"source": "truncation", "counted": said.counted, "reported": said.reported}
        return put(tx, "learned", model, endpoint, said.fits, at=at, evidence=evidence)
    return put(tx, "learned", model, endpoint, said, at=at, evidence={"source": "filled"})


def forget(tx: Transaction, model: str, endpoint: str, kind: Kind) -> bool:
    """Take one row away; False when there was none. Raises `InvalidInput`."""
    if kind not in KINDS:
        raise InvalidInput(f"A window is {', '.join(KINDS)}, not {kind!r}.", argument="kind")
    gone = tx.execute(
        "DELETE FROM model_windows WHERE model = ? AND endpoint = ? AND kind = ?",
        (_model(model), endpoint_key(endpoint), kind),
    )
    return gone > 0


def _why(window: Window, others: list[Window]) -> str:
    by_kind = {one.kind: one for one in reversed(others)}
    served, learned, declared, trained = (by_kind.get(kind) for kind in KINDS)
    if window.kind == "served":
        said = "which the server says that it serves"
        if learned is not None:
            said += f", after it had been learned to be {learned.tokens}"
        if declared is not None and declared.tokens != window.tokens:
            said += f"; {declared.tokens} was declared"
        if trained is not None and trained.tokens != window.tokens:
            said += f"; the model was trained for {trained.tokens}"
        return said
    if window.kind == "learned":
        said = f"learned from {_LESSONS.get(str(window.evidence.get('source')), 'what the server did')}"
        return said if served is None else f"{said}, newer than the {served.tokens} that it said it serves"
    if window.kind == "declared":
        return "declared, and no server has said otherwise"
    return "warning: what the model was trained for; a server may give much less, so probe or declare it"


_LESSONS = {
    "refusal": "a refusal", "truncation": "a request that was cut", "filled": "a reply that ran into the end",
}


def _window(row: tuple[Any, ...]) -> Window:
    tokens, kind, model, endpoint, observed_at, evidence = row
    return Window(
        tokens=tokens, kind=kind, model=model, endpoint=endpoint, observed_at=observed_at, evidence=_evidence(evidence)
    )


def _evidence(text: str) -> dict[str, Any]:
    """Where a number was seen, for people; the number counts without it, so damage to it is told and stops nobody."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"source": "unreadable"}
    return found if isinstance(found, dict) else {"source": found}


def _has_table(reader: Reader) -> bool:
    """False in a store that an older version made and nobody has opened for writing since."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'model_windows'") is not None


def _model(model: str) -> str:
    if not isinstance(model, str) or not model.strip() or len(model) > _LONGEST_MODEL or "\0" in model:
        raise InvalidInput(f"A model is named by a text of 1 to {_LONGEST_MODEL} characters.", argument="model")
    return model.strip()
