"""One key for one server, and nothing secret in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.windows import endpoint_key, model_at
from hermes_state.errors import InvalidInput


@pytest.mark.parametrize(("given_one", "key"), [
    ("", ""),
    ("  ", ""),
    ("localhost:11434", "http://localhost:11434"),
    ("http://LocalHost:11434/", "http://localhost:11434"),
    ("http://localhost:11434/v1", "http://localhost:11434"),
    ("http://localhost:11434/v1/chat/completions", "http://localhost:11434"),
    ("http://localhost:11434/api/chat", "http://localhost:11434"),
    ("http://localhost:1234/api/v0", "http://localhost:1234"),
    ("HTTP://user:secret@Host.Example:80/v1?key=secret#x", "http://host.example"),
    ("https://api.example.com:443/v1/messages", "https://api.example.com"),
    ("https://proxy.example/models/llama/v1", "https://proxy.example/models/llama"),
    ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ("https://host.", "https://host"),
])
def test_spellings_of_one_address_are_one_key(given_one: str, key: str) -> None:
    assert endpoint_key(given_one) == key
    assert endpoint_key(key) == key


@pytest.mark.parametrize(("given_one", "why"), [
    ("ftp://user:secret@host/", "only http and https are spoken here"),
    ("http://user:secret@host:99999/", "its host or port cannot be read"),
    ("http://:secret@/v1", "it names no host"),
    ("http://ho st/secret", "it is too long, or has spaces or control characters"),
    ("http://" + "secret" * 1000, "it is too long, or has spaces or control characters"),
    (7, "it is no text"),
])
def test_an_address_that_cannot_be_used_is_refused_without_repeating_it(given_one: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        endpoint_key(given_one)
    assert str(caught.value) == f"The endpoint cannot be used: {why}."
    assert "secret" not in f"{caught.value.__dict__!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize(("text", "model", "endpoint"), [
    ("qwen3:8b", "qwen3:8b", ""),
    ("qwen3:8b@localhost:11434", "qwen3:8b", "http://localhost:11434"),
    ("qwen3:8b@localhost", "qwen3:8b", "http://localhost"),
    ("org/model@https://user:pw@host.example/v1", "org/model", "https://host.example"),
    ("claude-3@20240229", "claude-3@20240229", ""),
    ("claude-3@20240229@vertex.example", "claude-3@20240229", "http://vertex.example"),
])
def test_a_model_and_its_endpoint_are_told_apart(text: str, model: str, endpoint: str) -> None:
    assert model_at(text) == (model, endpoint)


def test_an_endpoint_without_a_model_is_refused() -> None:
    for text in ("@localhost:1", " @http://x", ""):
        with pytest.raises(InvalidInput) as caught:
            model_at(text)
        assert str(caught.value) == "The model is missing: MODEL@ENDPOINT, as in qwen3:8b@localhost:11434."


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_any_text_is_a_key_or_refused_and_a_key_stays_itself(text: str) -> None:
    try:
        key = endpoint_key(text)
    except InvalidInput:
        return
    assert endpoint_key(key) == key
    assert "@" not in key and "?" not in key and "#" not in key
