"""R117, R122: a bundled profile never rewrites a built-in row; reasoning details go to the provider they are of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.models import Route, replayable, replayed

BUILTIN = '{"auth_type": "api_key",  "inference_base_url": "https://builtin", "base_url_env_var": "X_BASE_URL"}'


def test_r117_a_bundled_profile_never_rewrites_a_built_in_row_whichever_comes_last(store: Store, home: Home) -> None:
    models = store.work.models
    models.register("x", "bundled", {"inference_base_url": "https://early"}, home)
    models.register("x", "builtin", BUILTIN, home)
    models.register("x", "bundled", {"auth_type": "oauth", "inference_base_url": "https://late"}, home)
    found = models.registration("x")
    assert found is not None
    assert (found.text, [str(one) for one in found.sources]) == (BUILTIN, ["builtin"])


def test_r117_a_users_plugin_changes_what_it_says_and_leaves_the_rest(store: Store, home: Home) -> None:
    models = store.work.models
    models.register("x", "builtin", BUILTIN, home)
    models.register("x", "user", {"inference_base_url": "https://staging", "auth_type": None}, home, origin="my plugin")
    models.register("x", "user", {"inference_base_url": "https://mine"}, home, origin="my other plugin")
    found = models.registration("x")
    assert found is not None
    assert found.content == {
        "auth_type": "api_key", "inference_base_url": "https://mine", "base_url_env_var": "X_BASE_URL",
    }
    assert ([str(one) for one in found.sources], found.origin) == (["user", "builtin"], "my other plugin")
    assert models.unregister("x", "user", home)
    assert not models.unregister("x", "user", home)
    again = models.registration("x")
    assert again is not None
    assert again.text == BUILTIN


def test_r117_78_rows_are_byte_identical_without_a_users_plugin(store: Store, home: Home) -> None:
    """Odd white space, order and escapes included."""
    models = store.work.models
    texts = {
        f"provider {number:02}": json.dumps({"z": number, "a": "ü\u2028", "list": [1, 2.5, None]}, indent=number % 4,
                                            ensure_ascii=bool(number % 2))
        for number in range(78)
    }
    for name, content in texts.items():
        models.register(name, "builtin", content, home)
    for name in list(texts)[::3]:
        models.register(name, "bundled", {"z": "bundled", "more": 1}, home)
        models.register(name, "user", {"z": "user"}, home)
        models.unregister(name, "user", home)
    assert {one.name: one.text for one in models.registrations()} == texts


def test_the_same_registration_again_writes_nothing(store: Store, home: Home) -> None:
    assert store.work.models.register("x", "builtin", BUILTIN, home)
    with store.core.reader() as reader:
        before = reader.rows("SELECT count(*) FROM changes")
        assert not store.work.models.register("x", "builtin", BUILTIN, home)
        assert reader.rows("SELECT count(*) FROM changes") == before


def test_what_is_no_registration_is_refused(store: Store, home: Home) -> None:
    models = store.work.models
    assert models.registration("x") is None
    with pytest.raises(InvalidInput, match=r"^'plugin' is no source of a registration\.$"):
        models.register("x", "plugin", {}, home)
    with pytest.raises(InvalidInput, match=r"^The registration of a provider is a mapping, as JSON: it is no mapping"):
        models.register("x", "user", "[1]", home)


DETAILS: list[Any] = [
    {"type": "reasoning.text", "text": "a", "signature": "s"}, {"type": "acme.blob", "data": "AA==", "n": 1.0},
    {"type": "reasoning.encrypted", "data": "x"}, {"type": "other.blob"}, {"text": "no type"}, "no item",
]


@pytest.mark.parametrize(("route", "kept"), [
    (Route(provider="acme", native_type="acme.blob"), [1]),
    (Route(provider="acme", native_type="acme.blob", takes_standard=True), [0, 1, 2]),
    (Route(provider="openrouter", takes_standard=True), [0, 2]),
    (Route(provider="strict"), []),
    (Route(provider="other", native_type="other.blob"), [3]),
])
def test_r122_reasoning_details_go_to_the_provider_that_declares_them(route: Route, kept: list[int]) -> None:
    assert replayable(DETAILS, route) == [DETAILS[at] for at in kept]
    message = {"role": "assistant", "content": "x", "reasoning_details": DETAILS, "reasoning": "kept"}
    sent = replayed(message, route)
    assert sent == {name: value for name, value in message.items() if name != "reasoning_details" or kept} | (
        {"reasoning_details": [DETAILS[at] for at in kept]} if kept else {}
    )
    assert message["reasoning_details"] is DETAILS  # what is stored stays as it is


def test_r122_bytes_in_are_bytes_out_through_the_store_for_the_declaring_route_only(store: Store) -> None:
    blob = {"type": "acme.blob", "data": "AA==\u2028ü", "order": {"z": 1, "a": 2}, "n": 1e-7, "empty": []}
    store.sessions.create(id="s", source="cli")
    store.messages.append("s", role="assistant", content="answer", extra={"reasoning_details": [blob, DETAILS[0]]})
    (stored,) = store.messages.context("s", extras=True)
    details = stored["reasoning_details"]
    own = replayable(details, Route(provider="acme", native_type="acme.blob"))
    assert json.dumps(own) == json.dumps([blob])
    assert replayable(details, Route(provider="router", takes_standard=True)) == [DETAILS[0]]
    assert replayable(details, Route(provider="strict")) == []
