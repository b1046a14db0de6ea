"""The rows of `model_facts` and of `provider_registrations`.

Invariant: a layer's row is written whole or not at all, and never changes another layer's; so is the registration of
each source. A model is found by its exact name before a name that differs in upper and lower case only, in the rows of
its provider before those for whichever provider.

Not for: which layer counts (see `layers`, `registrations`). One row a model with all layers merged was rejected: taking
a layer away again would not bring back what it hid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.work.models.layers import DEFAULT_MODEL, Layer

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


def key_of(model: str) -> str:
    """A name without upper and lower case."""
    return model.casefold()


def said_of(reader: Reader, provider: str, model: str) -> dict[Layer, dict[str, Any]]:
    """What each layer says of a model: one row of the provider, whose gaps one row for any provider fills."""
    if not has_tables(reader):
        return {}
    found = reader.rows(
        "SELECT layer, provider, facts FROM model_facts WHERE provider IN (?1, '')"
        " AND layer IN ('override', 'plugin', 'catalog', 'default') AND model_key IN (?2, ?3)"
        " AND (layer = 'default') = (model_key = ?3)"
        " ORDER BY provider = '', model <> ?4, model",
        (provider, key_of(model), DEFAULT_MODEL, model),
    )
    layers: dict[Layer, dict[str, Any]] = {}
    seen = set[tuple[str, str]]()
    for name, owner, text in found:
        if (name, owner) in seen:
            continue  # a name that differs in case only, after the exact one
        seen.add((name, owner))
        facts = layers.setdefault(Layer(name), {})
        for fact, value in json.loads(text).items():
            if value is not None:
                facts.setdefault(fact, value)
    return layers


def measured_as(reader: Reader, model: str, endpoint: str) -> str:
    """The name under which windows of a model are known at an endpoint: as it is given, or else spelled otherwise.

    Of several spellings the first in the order of letters.
    """
    if reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'model_windows'") is None:
        return model
    names = [name for (name,) in reader.rows(
        "SELECT DISTINCT model FROM model_windows WHERE endpoint IN (?, '') ORDER BY model", (endpoint,)
    )]
    if model in names:
        return model
    return next((name for name in names if key_of(name) == key_of(model)), model)


def put(tx: Transaction, layer: Layer, provider: str, model: str, facts: str, *, source: str, at: float) -> None:
    """Write what a layer says of a model, over what it said before."""
    tx.execute(
        "INSERT INTO model_facts (provider, layer, model_key, model, facts, source, declared_at) VALUES"
        " (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (provider, layer, model_key, model) DO UPDATE SET facts = ?5,"
        " source = ?6, declared_at = ?7",
        (provider, str(layer), key_of(model), model, facts, source, at),
    )
    record(tx, "model_facts", f"{layer}/{provider}/{model}", "update", at)


def put_all(
    tx: Transaction, layer: Layer, provider: str, entries: Sequence[tuple[str, str]], *, source: str, at: float
) -> int:
    """Write the whole layer of a provider; what it had besides goes. Gives how many rows changed. One entry of feed."""
    before = dict(tx.rows(
        "SELECT model, facts FROM model_facts WHERE provider = ? AND layer = ?", (provider, str(layer))
    ))
    wanted = dict(entries)
    gone = [model for model in before if model not in wanted]
    new = [(model, facts) for model, facts in wanted.items() if before.get(model) != facts]
    tx.executemany(
        "DELETE FROM model_facts WHERE provider = ? AND layer = ? AND model_key = ? AND model = ?",
        [(provider, str(layer), key_of(model), model) for model in gone],
    )
    tx.executemany(
        "INSERT OR REPLACE INTO model_facts (provider, layer, model_key, model, facts, source, declared_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(provider, str(layer), key_of(model), model, facts, source, at) for model, facts in new],
    )
    if gone or new:
        record(tx, "model_facts", f"{layer}/{provider}", "update", at)
    return len(gone) + len(new)


def take_back(tx: Transaction, layer: Layer, provider: str, model: str, *, at: float) -> bool:
    """Take away what a layer says of a model; False when it said nothing."""
    gone = tx.execute(
        "DELETE FROM model_facts WHERE provider = ? AND layer = ? AND model_key = ? AND model = ?",
        (provider, str(layer), key_of(model), model),
    )
    if gone:
        record(tx, "model_facts", f"{layer}/{provider}/{model}", "delete", at)
    return bool(gone)


def registered(reader: Reader, name: str | None = None) -> list[tuple[str, str, str, str, float]]:
    """Every registration, or those of one provider, by name and source: name, source, content, origin, time."""
    if not has_tables(reader):
        return []
    return reader.rows(
        "SELECT name, source, content, origin, registered_at FROM provider_registrations WHERE ?1 IS NULL OR name = ?1"
        " ORDER BY name, source", (name,),
    )


def register(tx: Transaction, name: str, source: str, content: str, *, origin: str, at: float) -> bool:
    """Write the registration of a source, over the one that it made before; False when it is the same."""
    before = tx.row("SELECT content, origin FROM provider_registrations WHERE name = ? AND source = ?", (name, source))
    if before == (content, origin):
        return False
    tx.execute(
        "INSERT INTO provider_registrations (name, source, content, origin, registered_at) VALUES (?1, ?2, ?3, ?4, ?5)"
        " ON CONFLICT (name, source) DO UPDATE SET content = ?3, origin = ?4, registered_at = ?5",
        (name, source, content, origin, at),
    )
    record(tx, "provider_registrations", f"{name}/{source}", "update" if before else "insert", at)
    return True


def unregister(tx: Transaction, name: str, source: str, *, at: float) -> bool:
    """Take a registration away; those of other sources are as they were. False when there was none."""
    gone = tx.execute("DELETE FROM provider_registrations WHERE name = ? AND source = ?", (name, source))
    if gone:
        record(tx, "provider_registrations", f"{name}/{source}", "delete", at)
    return bool(gone)


def has_tables(reader: Reader) -> bool:
    """Whether the store has the tables: they come with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'model_facts'") is not None


def facts_of(reader: Reader, layer: Layer, provider: str) -> Mapping[str, dict[str, Any]]:
    """All that one layer says of a provider's models, by name as it was written."""
    if not has_tables(reader):
        return {}
    return {
        model: json.loads(text)
        for model, text in reader.rows(
            "SELECT model, facts FROM model_facts WHERE provider = ? AND layer = ? ORDER BY model",
            (provider, str(layer)),
        )
    }
