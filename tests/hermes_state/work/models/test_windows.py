"""T8.6, R112: a window of endpoint A never answers for B, and what is distrusted is resolved again."""

from __future__ import annotations

import pytest

from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens.factors import Factors
from hermes_state.compaction.windows import Fact, Probe, Window, Windows
from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.models import ContextWindow, Facts, Layer, resolve
from hermes_state.work.models.windows import choose, is_local

A, B = "https://a.example/v1", "https://b.example/v1"


def serve(store: Store, model: str, endpoint: str, tokens: int) -> Probe:
    """The server says what it serves."""
    fact = Fact(tokens=tokens, kind="served", evidence={"source": "probe"})
    found = Probe(model=model, endpoint=endpoint, facts=(fact,))
    Windows(store.core).observe(found)
    return found


def test_t8_6_what_endpoint_a_serves_never_answers_for_b(store: Store) -> None:
    serve(store, "m", A, 32_000)
    Windows(store.core).learn("m", "https://c.example", 16_000)
    models = store.work.models
    found = models.window("p", "m", A)
    assert (found.tokens, found.source, found.endpoint) == (32_000, "served", "https://a.example")
    for endpoint in (B, ""):
        other = models.window("p", "m", endpoint)
        assert (other.tokens, other.source) == (None, None)
    # Two spellings of one address are one endpoint.
    assert models.window("p", "m", "HTTPS://A.example:443/v1/chat/completions").tokens == 32_000


@pytest.mark.parametrize(("provider", "model", "tokens", "believed"), [
    ("openai-codex", "gpt-5.5", 399_999, True),
    ("openai-codex", "gpt-5.5", 400_000, False),
    ("openai", "gpt-5.5", 1_050_000, True),
    ("openrouter", "moonshotai/kimi-k2", 32_768, False),
    ("openrouter", "moonshotai/kimi-k2", 32_769, True),
    ("openrouter", "akimix", 4_096, True),
    ("openrouter", "minimax/minimax-m3", 204_800, False),
    ("openrouter", "minimax/minimax-m3", 512_000, True),
    ("xai", "grok-4.3", 256_000, False),
    ("xai", "grok-4", 256_000, True),
])
def test_t8_6_distrusted_values_are_passed_over_by_name_and_the_next_source_answers(
    provider: str, model: str, tokens: int, believed: bool
) -> None:
    window = Window(tokens=tokens, kind="served", model=model, endpoint="https://a.example", observed_at=1_000.0)

    def found(facts: Facts) -> ContextWindow:
        return choose(
            facts, [window], provider=provider, model=model, endpoint="https://a.example", now=1_000_000.0
        )

    if believed:
        assert (found(Facts()).tokens, found(Facts()).source, found(Facts()).passed) == (tokens, "served", ())
        return
    assert (found(Facts()).tokens, found(Facts()).source) == (None, None)
    assert [(one.tokens, one.source, bool(one.why)) for one in found(Facts()).passed] == [(tokens, "served", True)]
    catalog = resolve({Layer.CATALOG: {"context_window": 272_000}})
    assert (found(catalog).tokens, found(catalog).source) == (272_000, "catalog")


def test_t8_6_a_distrusted_value_is_asked_for_again_once(store: Store) -> None:
    serve(store, "gpt-5.5", A, 1_050_000)
    asked: list[tuple[str, str]] = []

    def probe(model: str, endpoint: str) -> Probe:
        asked.append((model, endpoint))
        return serve(store, model, endpoint, 272_000)

    models = store.work.models
    for _ in range(2):
        found = models.resolve_window("openai-codex", "gpt-5.5", A, probe=probe)
        assert (found.tokens, found.source) == (272_000, "served")
    assert asked == [("gpt-5.5", A)]


def test_what_a_server_has_loaded_is_believed_for_five_minutes(store: Store, fake_clock: FakeClock) -> None:
    serve(store, "m", "http://localhost:1234", 8_192)
    models = store.work.models
    fake_clock.advance(300.0)
    assert models.window("lmstudio", "m", "localhost:1234").tokens == 8_192
    assert models.window("ollama", "m", "localhost:1234").tokens == 8_192
    fake_clock.advance(1.0)
    assert models.window("lmstudio", "m", "localhost:1234").tokens is None
    assert models.window("ollama", "m", "localhost:1234").tokens == 8_192


def test_a_number_from_a_time_that_has_not_come_is_old_and_gives_way(store: Store, fake_clock: FakeClock) -> None:
    """A clock that was a year ahead: what it saw is not believed where only fresh numbers are, nor hides newer ones."""
    windows, models, here = Windows(store.core), store.work.models, "http://localhost:1234"
    fake_clock.step_wall(365 * 86_400.0)
    serve(store, "m", here, 131_072)
    fake_clock.step_wall(-365 * 86_400.0)
    assert models.window("lmstudio", "m", here).tokens is None
    assert models.resolve_window(
        "lmstudio", "m", here, probe=lambda model, endpoint: serve(store, model, endpoint, 8_192)
    ).tokens == 8_192
    windows.learn("m", here, 4_096)
    assert models.window("lmstudio", "m", here).tokens == 4_096
    serve(store, "m", here, 16_384)
    assert models.window("lmstudio", "m", here).tokens == 16_384


def test_t8_6_what_a_plugin_or_a_catalog_says_is_distrusted_by_the_same_rules(store: Store, home: Home) -> None:
    """Not what the user says, nor the default; the layer below answers."""
    models = store.work.models
    models.declare("catalog", "codex", "gpt-5.5", {"context_window": 400_000, "supports_tools": True}, home)
    assert models.window("codex", "gpt-5.5", A).tokens is None
    models.declare("default", "codex", "_default", {"context_window": 272_000}, home)
    found = models.window("codex", "gpt-5.5", A)
    assert (found.tokens, found.source) == (272_000, "default")
    assert [(one.tokens, one.source) for one in found.passed] == [(400_000, "catalog")]
    models.declare("plugin", "router", "kimi-k2", {"context_window": 32_768}, home)
    models.declare("catalog", "router", "kimi-k2", {"context_window": 262_144}, home)
    assert models.window("router", "kimi-k2", A).tokens == 262_144
    models.declare("override", "router", "kimi-k2", {"context_window": 16_384}, home)
    assert models.window("router", "kimi-k2", A).tokens == 16_384


def test_a_measured_name_is_looked_up_exactly_then_without_upper_and_lower_case(store: Store) -> None:
    serve(store, "Hermes-4", A, 32_000)
    models = store.work.models
    assert [models.window("p", name, A).tokens for name in ("Hermes-4", "hermes-4", "hermes-5")] == [
        32_000, 32_000, None,
    ]
    serve(store, "hermes-4", A, 16_000)
    assert [models.window("p", name, A).tokens for name in ("Hermes-4", "hermes-4", "HERMES-4")] == [
        32_000, 16_000, 32_000,
    ]


def test_an_asynchronous_probe_is_refused(store: Store) -> None:
    async def later(model: str, endpoint: str) -> None:
        raise AssertionError

    with pytest.raises(InvalidInput, match=r"^The probe of a window is a plain function, not an asynchronous one\.$"):
        store.work.models.resolve_window("p", "m", A, probe=later)  # type: ignore[arg-type]


def test_a_refusal_and_a_server_of_ones_own_are_believed_whatever_the_numbers_say_elsewhere(store: Store) -> None:
    Windows(store.core).learn("kimi-k2", A, 16_384)
    assert store.work.models.window("openrouter", "kimi-k2", A).tokens == 16_384
    serve(store, "kimi-k2", "http://192.168.1.5:8080", 8_192)
    assert store.work.models.window("llama", "kimi-k2", "http://192.168.1.5:8080").tokens == 8_192


def test_the_order_of_all_sources_one_taken_away_after_the_other(
    store: Store, home: Home, fake_clock: FakeClock
) -> None:
    windows, models = Windows(store.core), store.work.models
    models.declare("override", "p", "m", {"context_window": 1_001}, home)
    serve(store, "m", A, 1_002)
    fake_clock.advance(1.0)
    windows.learn("m", A, 1_003)
    windows.declare("m", A, 1_004)
    models.declare("plugin", "p", "m", {"context_window": 1_005}, home)
    models.declare("catalog", "p", "m", {"context_window": 1_006}, home)
    windows.observe(Probe(model="m", endpoint=A, facts=(Fact(tokens=1_007, kind="trained", evidence={}),)))
    models.declare("default", "p", "_default", {"context_window": 1_008}, home)
    seen = []
    for take in (
        lambda: models.take_back("override", "p", "m", home), lambda: windows.forget("m", A, "learned"),
        lambda: windows.forget("m", A, "served"), lambda: windows.forget("m", A, "declared"),
        lambda: models.take_back("plugin", "p", "m", home), lambda: models.take_back("catalog", "p", "m", home),
        lambda: windows.forget("m", A, "trained"), lambda: models.take_back("default", "p", "_default", home),
    ):
        seen.append((models.window("p", "m", A).source, models.window("p", "m", A).tokens))
        assert take()
    assert seen == [
        ("override", 1_001), ("learned", 1_003), ("served", 1_002), ("declared", 1_004), ("plugin", 1_005),
        ("catalog", 1_006), ("trained", 1_007), ("default", 1_008),
    ]
    assert models.window("p", "m", A).tokens is None  # and nothing is invented


def test_an_override_counts_and_what_speaks_against_it_is_told(store: Store, home: Home) -> None:
    store.work.models.declare("override", "p", "m", {"context_window": 128_000}, home)
    Windows(store.core).learn("m", A, 8_192)
    found = store.work.models.window("p", "m", A)
    assert (found.tokens, found.source, found.contradicted_by) == (128_000, "override", 8_192)
    assert store.work.models.window("p", "m", B).contradicted_by is None


def test_what_compaction_learned_of_a_counter_makes_the_countable_part(store: Store) -> None:
    serve(store, "m", A, 9_000)
    models = store.work.models
    assert models.window("p", "m", A).countable == 9_000
    for _ in range(40):
        Factors(store.core).learn("m", A, "estimate", 1_000, 1_500)
    factor = Factors(store.core).of("m", A).factor
    assert factor == pytest.approx(1.5, abs=0.01)
    found = models.window("p", "m", A)
    assert (found.tokens, found.countable) == (9_000, int(9_000 / factor))


@pytest.mark.parametrize(("endpoint", "local"), [
    ("http://localhost:1", True), ("http://127.0.0.1", True), ("http://[::1]:2", True), ("http://10.0.0.8", True),
    ("http://box.local", True), ("https://a.example", False), ("https://8.8.8.8", False),
])
def test_which_endpoints_are_ones_own(endpoint: str, local: bool) -> None:
    assert is_local(endpoint) is local
