"""`store.work.models`: what is known of models and providers, by whom, and the window of each at each endpoint.

Invariant: every write names its home. Facts are stored by layer and put together when they are asked for, so that a
layer which is taken back leaves what was below it. Servers are asked outside of any transaction.

Not for: talking to providers. A table of resolved facts was rejected: it would have to be made anew with every change,
and would outlive what it was made from.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.work.guarded import Guarded
from hermes_state.work.models import registrations, rows
from hermes_state.work.models.layers import DEFAULT_MODEL, Facts, Layer, checked, resolve
from hermes_state.work.models.registrations import Registration, Source, effective
from hermes_state.work.models.windows import RULES, ContextWindow, Distrust, believed, choose

if TYPE_CHECKING:
    from hermes_state.compaction.windows import Probe
    from hermes_state.engine import Transaction
    from hermes_state.routing import Home

# Most models in one call: the largest public catalog has about 5,000.
MOST_MODELS = 50_000


class Models(Guarded):
    """The facts about models in one home. Safe for threads."""

    # --- facts -------------------------------------------------------------------------------------------------

    def facts(self, provider: str, model: str) -> Facts:
        """What is known of a model: override before plugin before catalog, and the default where they say nothing.

        The exact name before one that differs in upper and lower case. What nobody says is None. Raises `InvalidInput`.
        """
        _named(provider=provider, model=model)
        with self._core.reader() as reader:
            return resolve(rows.said_of(reader, provider, model))

    def said(self, layer: Layer | str, provider: str) -> Mapping[str, Mapping[str, Any]]:
        """All that one layer says of a provider's models."""
        with self._core.reader() as reader:
            return rows.facts_of(reader, _layer(layer), provider)

    def declare(
        self, layer: Layer | str, provider: str, model: str, facts: Mapping[str, Any], home: Home, *, source: str = ""
    ) -> None:
        """Keep what a layer says of a model, over what it said before; an empty `provider` means whichever.

        The default layer is of no model: give `_default`. Raises `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        known, kept = _layer(layer), checked(facts)
        _entry(known, provider, model)
        text("source", source, empty=True, of="")
        at = self._core.clock.now()
        self._write(
            home, lambda tx: rows.put(tx, known, provider, model, kept, source=source, at=at), power=False
        )

    def declare_all(
        self, layer: Layer | str, provider: str, facts: Mapping[str, Mapping[str, Any]], home: Home, *,
        source: str = "",
    ) -> int:
        """Keep a whole layer of a provider (a catalog, a plugin's list) in one transaction; what it had besides goes.

        Gives how many rows changed: none when it is the same again. Raises as `declare`.
        """
        known = _layer(layer)
        if len(facts) > MOST_MODELS:
            raise InvalidInput(f"A layer has at most {MOST_MODELS:,} models, not {len(facts):,}.", argument="facts")
        for model in facts:
            _entry(known, provider, model)
        text("source", source, empty=True, of="")
        entries = [(model, checked(said)) for model, said in facts.items()]
        at = self._core.clock.now()
        return self._write(
            home, lambda tx: rows.put_all(tx, known, provider, entries, source=source, at=at), power=False
        )

    def take_back(self, layer: Layer | str, provider: str, model: str, home: Home) -> bool:
        """Take away what a layer says of a model; False when it said nothing."""
        known, at = _layer(layer), self._core.clock.now()
        return self._write(home, lambda tx: rows.take_back(tx, known, provider, model, at=at), power=False)

    # --- windows -----------------------------------------------------------------------------------------------

    def window(
        self, provider: str, model: str, endpoint: str = "", *, tokenizer: str = "estimate",
        rules: Sequence[Distrust] = RULES,
    ) -> ContextWindow:
        """The window of a model at an endpoint; `tokens` is None when nobody knows it.

        What was measured or learned at another endpoint never answers. A name is looked up exactly, then without upper
        and lower case. `tokenizer` names the counter whose learned
        factor makes `countable`. Raises `InvalidInput` for an endpoint that is none.
        """
        from hermes_state.compaction.tokens.factors import factor_of
        from hermes_state.compaction.windows import endpoint_key, known

        _named(provider=provider, model=model)
        key = endpoint_key(endpoint)
        with self._core.reader() as reader:
            said = rows.said_of(reader, provider, model)
            layers, passed = believed(said, provider=provider, model=model, rules=rules)
            name = rows.measured_as(reader, model, key)
            return choose(
                resolve(layers), known(reader, name, key), provider=provider, model=model, endpoint=key,
                now=self._core.clock.now(), factor=factor_of(reader, name, key, tokenizer).factor, rules=rules,
                passed_over=passed,
            )

    def resolve_window(
        self, provider: str, model: str, endpoint: str, *, probe: Callable[[str, str], Probe],
        tokenizer: str = "estimate", rules: Sequence[Distrust] = RULES,
    ) -> ContextWindow:
        """As `window`; where nothing measured counts, or it is distrusted, the server is asked first, once.

        `probe(model, endpoint)` asks it and keeps what it says: `Windows(store.core).probe` of
        `hermes_state.compaction.windows`. What it raises is raised here. The user's override needs no asking. Raises
        `InvalidInput` for an asynchronous one.
        """
        found = self.window(provider, model, endpoint, tokenizer=tokenizer, rules=rules)
        if found.source in ("override", "served", "learned") or not found.endpoint:
            return found
        said: object = probe(model, endpoint)
        if inspect.isawaitable(said):
            if inspect.iscoroutine(said):
                said.close()
            raise InvalidInput(
                "The probe of a window is a plain function, not an asynchronous one.",
                hint="Give one that waits for the answer itself.", argument="probe",
            )
        return self.window(provider, model, endpoint, tokenizer=tokenizer, rules=rules)

    # --- registrations -----------------------------------------------------------------------------------------

    def register(
        self, name: str, source: Source | str, content: Mapping[str, Any] | str, home: Home, *, origin: str = ""
    ) -> bool:
        """Keep the registration of a provider by one source, over its own last one; False when it is the same.

        `content`: a mapping, or a JSON text, which is kept byte for byte. No source changes the row of another.
        """
        text("name", name, of=" of a provider")
        text("origin", origin, empty=True, of="")
        known, kept, at = _source(source), registrations.checked(content), self._core.clock.now()
        return self._write(
            home, lambda tx: rows.register(tx, name, str(known), kept, origin=origin, at=at), power=False
        )

    def unregister(self, name: str, source: Source | str, home: Home) -> bool:
        """Take back the registration of one source; what it hid counts again. False when there was none."""
        known, at = _source(source), self._core.clock.now()

        def work(tx: Transaction) -> bool:
            return rows.unregister(tx, name, str(known), at=at)

        return self._write(home, work, power=False)

    def registration(self, name: str) -> Registration | None:
        """What counts for a provider: the user's plugin over what is built in, that before what is bundled."""
        with self._core.reader() as reader:
            return effective(rows.registered(reader, name))

    def registrations(self) -> list[Registration]:
        """What counts for every provider, by name."""
        with self._core.reader() as reader:
            found = rows.registered(reader)
        names = dict.fromkeys(name for name, *_ in found)
        every = [effective([row for row in found if row[0] == name]) for name in names]
        return [one for one in every if one is not None]


def _named(**values: str) -> None:
    for name, value in values.items():
        text(name, value, empty=name == "provider", of=" of a model")


def _entry(layer: Layer, provider: str, model: str) -> None:
    _named(provider=provider, model=model)
    if (layer is Layer.DEFAULT) != (model == DEFAULT_MODEL):
        raise InvalidInput(
            f"The {layer} layer does not say anything of {model!r:.80}.",
            hint=f"Only the default layer has {DEFAULT_MODEL!r}, and it has nothing else.", argument="model",
        )


def _layer(layer: Layer | str) -> Layer:
    try:
        return Layer(layer)
    except ValueError:
        raise InvalidInput(
            f"{layer!r:.80} is no layer.", hint=f"They are {', '.join(Layer)}.", argument="layer"
        ) from None


def _source(source: Source | str) -> Source:
    try:
        return Source(source)
    except ValueError:
        raise InvalidInput(
            f"{source!r:.80} is no source of a registration.", hint=f"They are {', '.join(Source)}.", argument="source"
        ) from None
