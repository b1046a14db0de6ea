"""Asking servers over real HTTP: what each kind answers, and what a bad one does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.compaction.windows import Windows, probe
from hermes_state.errors import EndpointUnreachable, InvalidInput
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from tests.support.model_server import Answer, ModelServer

LLAMA: dict[str, Answer] = {
    "GET /v1/models": (200, {"object": "list", "data": [
        {"id": "/models/smol.gguf", "meta": {"n_ctx": 2048, "n_ctx_train": 8192, "n_vocab": 49152}}]}),
}
LLAMA_OLD: dict[str, Answer] = {
    "GET /v1/models": (200, {"data": [{"id": "smol.gguf", "meta": {"n_ctx_train": 8192}}]}),
    "GET /props": (200, {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1}),
}
VLLM: dict[str, Answer] = {
    "GET /v1/models": (200, {"data": [
        {"id": "lora", "root": "lora", "max_model_len": 4096},
        {"id": "qwen", "root": "Qwen/Q", "max_model_len": 32768}]}),
}
LM_STUDIO: dict[str, Answer] = {
    "GET /v1/models": (200, {"data": [{"id": "qwen"}, {"id": "gemma"}]}),
    "GET /api/v0/models": (200, {"data": [
        {"id": "qwen", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 8192},
        {"id": "gemma", "state": "not-loaded", "max_context_length": 8192}]}),
}
OLLAMA: dict[str, Answer] = {
    "GET /v1/models": (200, {"data": [{"id": "qwen:latest"}, {"id": "other"}]}),
    "GET /api/ps": (200, {"models": [{"name": "qwen:latest", "model": "qwen:latest", "context_length": 4096}]}),
    "POST /api/show": (200, {
        "parameters": "stop \"<|im_end|>\"\ntemperature 0.6", "model_info": {"qwen3.context_length": 40960}}),
}


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.mark.parametrize(("answers", "model", "served", "trained", "field"), [
    (LLAMA, "anything", 2048, 8192, "meta.n_ctx"),
    (LLAMA_OLD, "smol.gguf", 2048, 8192, "default_generation_settings.n_ctx"),
    (VLLM, "qwen", 32768, None, "max_model_len"),
    (VLLM, "Qwen/Q", 32768, None, "max_model_len"),
    (LM_STUDIO, "qwen", 8192, 131072, "loaded_context_length"),
    (LM_STUDIO, "gemma", None, 8192, None),
    (OLLAMA, "qwen", 4096, 40960, "context_length"),
    ({**OLLAMA, "GET /api/ps": (200, {"models": []})}, "qwen", None, 40960, None),
    ({**OLLAMA, "GET /api/ps": (200, {"models": []}), "POST /api/show": (200, {"parameters": "num_ctx    16384"})},
     "qwen", 16384, None, "parameters.num_ctx"),
    ({"GET /v1/models": (200, {"data": [{"id": "m", "context_window": 131072}]})}, "m", 131072, None,
     "context_window"),
    (VLLM, "not-served-here", None, None, None),
    ({}, "m", None, None, None),
])
def test_each_kind_of_server_tells_what_it_serves(
    answers: dict[str, Answer], model: str, served: int | None, trained: int | None, field: str | None
) -> None:
    """Reproduction 16: what the model was trained for was taken for what is served."""
    with ModelServer(answers) as server:
        found = probe(f"{server.endpoint}/v1", model)
        kinds = {fact.kind: fact for fact in found.facts}
        assert (found.model, found.endpoint) == (model, server.endpoint)
    assert {kind: fact.tokens for kind, fact in kinds.items()} == {
        kind: tokens for kind, tokens in (("served", served), ("trained", trained)) if tokens is not None
    }
    if field is not None:
        assert kinds["served"].evidence["field"] == field and kinds["served"].evidence["source"] == "probe"


def test_a_probe_is_kept_and_counts_before_what_was_declared(store: Store) -> None:
    with ModelServer(OLLAMA) as server:
        windows = Windows(store.core)
        windows.declare("qwen", server.endpoint, 40960)
        windows.probe("qwen", f"{server.endpoint}/v1")
        assert [(one.kind, one.tokens) for one in windows.known("qwen", server.endpoint)] == [
            ("served", 4096), ("declared", 40960), ("trained", 40960)]


def test_a_server_that_tells_nothing_changes_nothing(store: Store) -> None:
    with ModelServer({"GET /v1/models": (401, {"error": "no key"})}) as server:
        found = Windows(store.core).probe("m", server.endpoint)
        assert found.facts == () and Windows(store.core).known("m", server.endpoint) == ()
        assert found.asked == {
            "GET /v1/models": "401", "GET /props": "404", "GET /api/v0/models": "404", "GET /api/ps": "404"}


@pytest.mark.parametrize("answer", [
    "no json", "[1, 2", "[" * 100_000, [], {}, {"data": 7}, {"data": [None, 7, "x"]}, {"data": [{"id": 7}]},
    {"data": [{"id": "m", "max_model_len": "4096"}]}, {"data": [{"id": "m", "max_model_len": True}]},
    {"data": [{"id": "m", "max_model_len": 0}]}, {"data": [{"id": "m", "max_model_len": 10**12}]},
    {"data": [{"id": "m", "meta": [1]}]}, {"models": [{"name": "m", "context_length": None}]},
])
def test_an_answer_of_any_form_is_no_window(answer: Any) -> None:
    paths = ("GET /v1/models", "GET /props", "GET /api/v0/models", "GET /api/ps", "POST /api/show")
    with ModelServer({path: (200, answer) for path in paths}) as server:
        assert probe(server.endpoint, "m").facts == ()


def test_a_redirect_is_not_followed_so_the_key_goes_to_nobody_else() -> None:
    with ModelServer({"GET /v1/models": (200, {"data": []})}) as other, ModelServer(
        {"GET /v1/models": (302, "")}, headers={"Location": f"{other.endpoint}/v1/models"}
    ) as server:
        assert probe(server.endpoint, "m", api_key="secret").asked["GET /v1/models"] == "302"
        assert other.asked == [] and server.authorizations[0] == "Bearer secret"


def test_nobody_there_is_an_error_without_the_key() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(EndpointUnreachable) as caught:
            probe(f"http://user:secret@127.0.0.1:{port}/v1?key=secret", "m", api_key="secret")
    assert str(caught.value) == (
        f"No model server answers at http://127.0.0.1:{port}: ConnectionRefusedError at GET /v1/models, within 3 s."
    )
    assert "secret" not in repr(caught.value.__dict__)


def test_a_server_that_accepts_and_says_nothing_is_left_after_the_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(EndpointUnreachable) as caught:
            probe(f"127.0.0.1:{silent.getsockname()[1]}", "m", timeout=0.1)
    assert caught.value.reason == "TimeoutError"  # type: ignore[attr-defined]


def test_a_probe_needs_an_address_and_a_time() -> None:
    with pytest.raises(InvalidInput) as caught:
        probe("", "m")
    assert str(caught.value) == "A probe needs the address of a server."
    with pytest.raises(InvalidInput) as caught:
        probe("localhost:1", "m", timeout=0)
    assert str(caught.value) == "timeout is a number of seconds from 0 to 600, not 0."
