"""T8.5, R111: the 16 combinations of four layers as a table; unknown stays unknown; a layer erases nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hermes_state.errors import InvalidInput, WrongHome
from hermes_state.routing import Home, home_of
from hermes_state.store import Store, open_store
from hermes_state.work.models import DEFAULT_MODEL, Facts, Layer, Models, resolve

# Which layers say something of the window -> what counts, and who said it. All of 2**4.
PRECEDENCE = {
    (): (None, None),
    ("default",): (4, "default"),
    ("catalog",): (3, "catalog"),
    ("catalog", "default"): (3, "catalog"),
    ("plugin",): (2, "plugin"),
    ("plugin", "default"): (2, "plugin"),
    ("plugin", "catalog"): (2, "plugin"),
    ("plugin", "catalog", "default"): (2, "plugin"),
    ("override",): (1, "override"),
    ("override", "default"): (1, "override"),
    ("override", "catalog"): (1, "override"),
    ("override", "catalog", "default"): (1, "override"),
    ("override", "plugin"): (1, "override"),
    ("override", "plugin", "default"): (1, "override"),
    ("override", "plugin", "catalog"): (1, "override"),
    ("override", "plugin", "catalog", "default"): (1, "override"),
}
SAID = {"override": 1, "plugin": 2, "catalog": 3, "default": 4}


@pytest.mark.parametrize("layers", list(PRECEDENCE))
def test_t8_5_the_precedence_of_four_layers(layers: tuple[str, ...]) -> None:
    found = resolve({Layer(name): {"context_window": SAID[name]} for name in reversed(layers)})
    assert (found.context_window, found.said_by.get("context_window")) == PRECEDENCE[layers]


@pytest.mark.parametrize("layers", list(PRECEDENCE))
def test_t8_5_each_fact_by_itself_so_a_patch_erases_nothing(layers: tuple[str, ...]) -> None:
    """Each layer says a fact of its own as well: all of those stay, known to us or not."""
    found = resolve({
        Layer(name): {"context_window": SAID[name], f"of {name}": name, "supports_tools": None} for name in layers
    })
    assert found.others == {f"of {name}": name for name in layers}
    assert found.supports_tools is None


def test_the_table_is_whole() -> None:
    layers = [str(layer) for layer in Layer]
    assert set(PRECEDENCE) == {
        chosen for size in range(5) for chosen in itertools.combinations(layers, size)
    }


def test_what_nobody_says_stays_unknown_also_on_a_catalog_miss() -> None:
    found = resolve({Layer.PLUGIN: {"supports_vision": True}})
    assert (found.supports_vision, found.supports_tools, found.supports_reasoning) == (True, None, None)
    assert resolve({}) == Facts()


def test_false_is_said_and_hides_what_is_below() -> None:
    found = resolve({Layer.OVERRIDE: {"supports_tools": False}, Layer.CATALOG: {"supports_tools": True}})
    assert found.supports_tools is False


def test_layers_are_stored_found_by_name_and_taken_back(store: Store, home: Home) -> None:
    models = store.work.models
    models.declare_all("catalog", "nous", {
        "Hermes-4": {"context_window": 100, "supports_tools": True, "price": {"in": 1.5}}, "other": {},
    }, home, source="models.dev")
    models.declare("plugin", "nous", "hermes-4", {"supports_tools": None, "supports_vision": False}, home)
    models.declare("default", "nous", DEFAULT_MODEL, {"max_output_tokens": 8, "supports_tools": False}, home)
    models.declare("override", "nous", "HERMES-4", {"context_window": 50}, home)
    found = models.facts("nous", "hermes-4")
    assert found == Facts(
        context_window=50, max_output_tokens=8, supports_tools=True, supports_vision=False,
        others={"price": {"in": 1.5}}, said_by={
            "context_window": Layer.OVERRIDE, "supports_vision": Layer.PLUGIN, "supports_tools": Layer.CATALOG,
            "price": Layer.CATALOG, "max_output_tokens": Layer.DEFAULT,
        },
    )
    assert models.take_back("override", "nous", "HERMES-4", home)
    assert not models.take_back("override", "nous", "HERMES-4", home)
    assert models.facts("nous", "hermes-4").context_window == 100
    assert models.facts("elsewhere", "hermes-4") == Facts()


def test_the_exact_name_counts_before_one_in_other_letters(store: Store, home: Home) -> None:
    models = store.work.models
    for name, tokens in (("GPT-X", 1), ("gpt-x", 2), ("Gpt-x", 3)):
        models.declare("override", "p", name, {"context_window": tokens, name: True}, home)
    assert [models.facts("p", name).context_window for name in ("GPT-X", "gpt-x", "Gpt-x")] == [1, 2, 3]
    assert models.facts("p", "gpt-x").others == {"gpt-x": True}  # not mixed with the other two
    assert models.facts("p", "gPT-X").context_window == 1  # the first by its letters


def test_what_is_said_for_any_provider_fills_gaps_of_the_same_layer(store: Store, home: Home) -> None:
    models = store.work.models
    models.declare("override", "", "m", {"context_window": 9, "supports_tools": True}, home)
    models.declare("override", "p", "m", {"context_window": 5}, home)
    models.declare("catalog", "p", "m", {"supports_tools": False}, home)
    found = models.facts("p", "m")
    assert (found.context_window, found.supports_tools) == (5, True)


def test_a_whole_layer_replaces_itself_and_the_same_again_changes_nothing(store: Store, home: Home) -> None:
    models = store.work.models
    many = {f"model {number}": {"context_window": number + 1} for number in range(200)}
    assert models.declare_all("catalog", "p", many, home) == 200
    assert models.declare_all("catalog", "p", many, home) == 0
    del many["model 0"]
    many["model 1"] = {"context_window": 7}
    assert models.declare_all("catalog", "p", many, home) == 2
    assert len(models.said("catalog", "p")) == 199
    assert models.facts("p", "model 0") == Facts()


def test_a_model_is_found_by_the_index(store: Store) -> None:
    with store.core.reader() as reader:
        plan = reader.rows(
            "EXPLAIN QUERY PLAN SELECT layer, facts FROM model_facts WHERE provider IN ('p', '') AND layer IN"
            " ('override', 'plugin', 'catalog', 'default') AND model_key IN ('m', '_default')"
        )
    assert "SEARCH model_facts USING PRIMARY KEY (provider=? AND layer=? AND model_key=?)" in str(plan)


@pytest.mark.parametrize(("layer", "model", "facts", "message"), [
    ("user", "m", {}, "'user' is no layer."),
    ("override", "_default", {}, "The override layer does not say anything of '_default'."),
    ("default", "m", {}, "The default layer does not say anything of 'm'."),
    ("override", "m", {"context_window": 0}, "context_window is a whole number from 1 to 2147483647, not 0."),
    ("override", "m", {"supports_tools": 1}, "supports_tools is True, False or None (unknown), not 1."),
    ("override", "m", {"model_family": 3}, "model_family is a text or None, not 3."),
    (
        "override", "m", {"x": float("inf")},
        "Facts of a model are JSON: Out of range float values are not JSON compliant.",
    ),
])
def test_what_no_layer_can_say_is_refused(
    unopened: Models, layer: str, model: str, facts: dict[str, Any], message: str
) -> None:
    """Before the store is touched."""
    with pytest.raises(InvalidInput) as refused:
        unopened.declare(layer, "p", model, facts, None)  # type: ignore[arg-type]
    assert str(refused.value).replace(": inf", "") == message


@pytest.fixture(name="unopened")
def models_of_no_store() -> Models:
    return Models(None)  # type: ignore[arg-type]


def test_facts_of_one_home_are_not_written_to_another(store: Store, tmp_path: Any) -> None:
    with open_store(tmp_path / "b") as other, pytest.raises(WrongHome):
        store.work.models.declare("override", "p", "m", {}, home_of(other.core))
