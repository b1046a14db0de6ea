"""Which errors of model servers mean "too long", with bodies as the servers send them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.windows import refusal_of

LLAMA = {
    "error": {
        "code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 20480, "n_ctx": 16384,
        "message": "request (20480 tokens) exceeds the available context size (16384 tokens), try increasing it",
    }
}
VLLM_OLD = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, "
    "1000 in the completion). Please reduce the length of the messages or completion."
)
VLLM_NEW = (
    "You passed 98305 input tokens and requested 32768 output tokens. However, the model's context length is only "
    "131072 tokens, resulting in a maximum input length of 98304 tokens. Please reduce the length of the input prompt."
    " (parameter=input_tokens, value=98305)"
)
LM_STUDIO = (
    "Trying to keep the first 6269 tokens when context the overflows. However, the model is loaded with context length"
    " of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a"
    " shorter input"
)
ANTHROPIC = {"type": "error", "error": {
    "type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}}


def openai(message: str, code: Any = "context_length_exceeded") -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}}


# Body, server, prompt, window, reply.
REFUSALS: dict[str, tuple[Any, str, int | None, int | None, int | None]] = {
    "llama-server": (LLAMA, "llama-server", 20480, 16384, None),
    "llama-server through ollama": ({"error": json.dumps(LLAMA)}, "llama-server", 20480, 16384, None),
    "llama-server in a stream": (f"data: {json.dumps(LLAMA)}\n\n", "llama-server", 20480, 16384, None),
    "its message behind a proxy": (
        {"error": {"message": LLAMA["error"]["message"], "type": "invalid_request_error"}}, "llama-server", 20480,
        16384, None),
    "openai": (openai(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130,500 tokens."),
        "openai", 130500, 128000, None),
    "openai without numbers": (openai("Your input exceeds the context window."), "openai", None, None, None),
    "vllm up to 0.8": (
        {"object": "error", "message": VLLM_OLD, "type": "BadRequestError", "param": None, "code": 400}, "openai",
        4000, 4096, 1000),
    "vllm since 0.11": (
        {"error": {"message": VLLM_NEW, "type": "BadRequestError", "param": "input_tokens", "code": 400}}, "vllm",
        98305, 131072, 32768),
    "vllm through a gateway": (
        {"error": {"message": json.dumps({"error": {"message": VLLM_NEW}}), "code": "400"}}, "vllm", 98305, 131072,
        32768),
    "vllm, the reply alone is too long": (
        {"message": "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length"
         " is 8192 tokens and your request has 5000 input tokens (4096 > 8192 - 5000)."}, "vllm", 5000, 8192, 4096),
    "vllm, the prompt alone": (
        {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure"},
        "vllm", 5000, 4096, None),
    "lm studio": ({"error": LM_STUDIO}, "lm-studio", 6269, 4096, None),
    "anthropic": (ANTHROPIC, "anthropic", 213462, 200000, None),
    "anthropic, with the reply": (
        {"error": {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease"}},
        "anthropic", 190000, 200000, 20000),
    "ollama": (
        {"error": "prompt too long; exceeded max context length by 17 tokens (ref: 1)"}, "ollama", None, None, None),
    "openrouter": (
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps(ANTHROPIC)}}},
        "anthropic", 213462, 200000, None),
    "tgi": (
        {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20"
         " `max_new_tokens`", "error_type": "validation"}, "tgi", 5000, 4096, 20),
    "gemini": (
        [{"error": {"code": 400, "status": "INVALID_ARGUMENT",
                    "message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."
                    }}], "gemini", 1196265, 1048575, None),
}
UNRELATED: dict[str, tuple[int, Any]] = {
    "a crash that speaks of context": (500, {"error": {"message": "context shift failed: exceeds the context size"}}),
    "a crash in the words of an overflow": (500, {"error": LM_STUDIO}),
    "ollama loads no model": (500, {"error": "llama runner process has terminated: exit status 2 (context 4096)"}),
    "bad tool arguments": (400, openai("invalid tool call arguments: unexpected end of JSON", None)),
    "bad tool arguments that quote the conversation": (400, openai(
        'invalid tool call arguments: {"text": "prompt is too long: 9 tokens > 4 maximum"}', None)),
    "a key that is wrong": (401, LLAMA),
    "no such model": (404, openai("The model `x` with maximum context length 4096 tokens does not exist")),
    "a rate limit that counts tokens": (429, openai(
        "Rate limit reached: Limit 30000, Requested 35000. This model's maximum context length is 8192 tokens.")),
    "too many bytes": (413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    "a page of a proxy": (502, "<html>prompt is too long: 9 tokens > 4 maximum</html>"),
    "text that is no JSON": (400, "prompt is too long: 9000 tokens > 4096 maximum"),
    "nothing": (400, None),
    "an empty body": (400, b""),
    "a reply limit": (400, openai("max_tokens is too large: 100000. This model supports at most 16384", None)),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("form", ["parsed", "text", "bytes"])
def test_a_server_that_says_too_long_is_understood(name: str, form: str) -> None:
    body, server, prompt, window, reply = REFUSALS[name]
    if form != "parsed" and not isinstance(body, str):
        body = json.dumps(body) if form == "text" else json.dumps(body).encode()
    found = refusal_of(400, body)
    assert found is not None
    assert (found.server, found.prompt_tokens, found.window, found.reply_tokens) == (server, prompt, window, reply)
    assert found.status == 400 and found.evidence


@pytest.mark.parametrize("name", UNRELATED)
def test_an_error_with_another_cause_is_no_refusal(name: str) -> None:
    """Reports 192 and 206: a crash and bad tool arguments were compacted until nothing was left."""
    assert refusal_of(*UNRELATED[name]) is None


def test_a_type_that_says_it_is_believed_with_a_crash_status_too() -> None:
    found = refusal_of(500, LLAMA)
    assert found is not None and found.window == 16384


def test_numbers_that_cannot_be_are_left_out() -> None:
    odd = {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": -3, "n_ctx": 10**12}}
    found = refusal_of(400, odd)
    assert found is not None and (found.prompt_tokens, found.window) == (None, None)
    for value in (True, "16384", None, 4.5, 0):
        found = refusal_of(400, {"error": {"type": "exceed_context_size_error", "n_ctx": value}})
        assert found is not None and found.window is None


def test_evidence_has_no_word_of_the_user() -> None:
    body = openai("prompt is too long: 213462 tokens > 200000 maximum. Prompt was: my password is hunter2", None)
    found = refusal_of(400, body)
    assert found is not None and found.evidence == "prompt is too long: 213462 tokens > 200000 maximum"


@pytest.mark.parametrize("body", [
    "[" * 50_000, '{"error":' * 50_000, "{" + '"a":1,' * 100_000, json.dumps({"error": "9" * 60_000}),
    json.dumps({"error": "This model's maximum context length is " + "1," * 30_000}),
    json.dumps({"error": {"message": "prompt is too long: " + "1" * 10_000 + " tokens > 5 maximum"}}),
    b"\xff\xfe" * 1000, json.dumps({"error": {"error": {"error": {"error": {"error": {"error": LLAMA}}}}}}),
])
def test_a_hostile_body_is_no_refusal_and_takes_no_time(body: Any) -> None:
    began = time.process_time()
    assert refusal_of(400, body) is None
    assert time.process_time() - began < 0.25


@settings(max_examples=100)
@given(st.integers(100, 599), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["error", "message", "type", "code", "metadata", "raw", "n_ctx"]), inner, max_size=3)),
    max_leaves=10,
))
def test_no_body_raises(status: int, body: Any) -> None:
    for form in (body, json.dumps(body), json.dumps(body).encode()):
        found = refusal_of(status, form)
        assert found is None or found.status == status
