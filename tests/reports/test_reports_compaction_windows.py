"""Reports 190, 191, 192, 194, 197, 206, and what was reproduced of windows and counts: what a server really gives.

The numbers of reproductions are those of the facts about compaction, one line each in docs/windows.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens import Estimator, Factors, message_tokens, request_tokens
from hermes_state.compaction.windows import Windows, refusal_of, stopped_at_window, truncated
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from tests.support.model_server import ModelServer

SERVER = "http://localhost:11434"


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


# --- 190, reproductions 18 and 19: a local server stays at its 4,096 and cuts in silence ---------------------------


def test_a_server_that_stays_at_its_default_is_found_out_by_asking_it(store: Store) -> None:
    """Report 190: 131,072 were configured, the server's option was ignored."""
    windows = Windows(store.core)
    with ModelServer({
        "GET /api/ps": (200, {"models": [{"name": "qwen:latest", "context_length": 4096}]}),
        "POST /api/show": (200, {"model_info": {"qwen.context_length": 131072}}),
    }) as server:
        windows.declare("qwen", server.endpoint, 131072)
        windows.probe("qwen", f"{server.endpoint}/v1")
        found = windows.resolve("qwen", server.endpoint)
    assert (found.tokens, found.kind) == (4096, "served")
    assert "131072 was declared" in found.why


def test_a_reply_that_was_cut_at_the_window_tells_the_window(store: Store) -> None:
    """Report 190: `length` at 4,096 is no reason to ask for the rest; it is the window."""
    usage = {"prompt_tokens": 3_900, "completion_tokens": 196, "total_tokens": 4_096}
    window = stopped_at_window(usage, "length", max_tokens=8_192)
    assert window == 4_096
    Windows(store.core).learn("qwen", SERVER, window)
    assert Windows(store.core).resolve("qwen", SERVER).tokens == 4_096


@pytest.mark.parametrize(("sent", "window"), [(20_000, 4_096), (45_000, 32_768)])
def test_a_front_cut_in_silence_is_seen_by_the_servers_own_count_and_learned(
    store: Store, fake_clock: FakeClock, sent: int, window: int
) -> None:
    """Reproductions 18 and 19: HTTP 200, about half of the window kept, system prompt and user row gone."""
    kept = window // 2 + 2
    windows, factors = Windows(store.core), Factors(store.core)
    windows.declare("qwen", SERVER, 131_072)
    fake_clock.advance(1)
    lesson = factors.learn("qwen", SERVER, Estimator(), sent, {"prompt_eval_count": kept, "eval_count": 30})
    assert lesson.verdict == "truncated" and lesson.truncation is not None
    windows.learn("qwen", SERVER, lesson.truncation)
    found = windows.resolve("qwen", SERVER)
    # What was read surely fits: a plan for it is not cut again.
    assert (found.tokens, found.kind, found.why) == (kept, "learned", "learned from a request that was cut")
    assert truncated(kept, kept, window=found.tokens) is None
    assert factors.of("qwen", SERVER).factor == 1.0, "a cut request teaches nothing about tokens"


# --- 191: the limit stands in the error and is not read --------------------------------------------------------------


def test_the_servers_limit_is_read_from_its_field_and_from_the_number_in_parentheses(store: Store) -> None:
    """Report 191: "Cannot compress further" at 20K tokens, with the limit in the error."""
    said = "request (20480 tokens) exceeds the available context size (16384 tokens), try increasing it"
    # The field is believed, whatever the words say.
    fields = {"type": "exceed_context_size_error", "n_prompt_tokens": 20481, "n_ctx": 16640, "message": said}
    structured = refusal_of(400, json.dumps({"error": fields}))
    assert structured is not None and (structured.prompt_tokens, structured.window) == (20481, 16640)
    worded = refusal_of(400, json.dumps({"error": {"message": said, "code": 400}}))
    assert worded is not None and (worded.prompt_tokens, worded.window) == (20480, 16384)
    Windows(store.core).learn("m", SERVER, structured)
    assert Windows(store.core).resolve("m", SERVER).tokens == 16640


# --- 192, 206: what is no overflow is not compacted for -----------------------------------------------------------


def test_a_local_model_that_crashes_is_no_overflow() -> None:
    """Report 192: an HTTP 500 with other words started a loop that took the conversation away."""
    for message in ("CUDA error: out of memory", "failed to process context", "slot unavailable: context shift"):
        assert refusal_of(500, {"error": {"code": 500, "type": "server_error", "message": message}}) is None


def test_bad_tool_arguments_are_no_overflow_however_often_they_come() -> None:
    """Report 206: HTTP 400 three times was answered with three compactions."""
    body = {"error": {"message": "invalid tool call arguments: expected ',' at column 4096", "code": 400}}
    assert [refusal_of(400, body) for _ in range(3)] == [None, None, None]


# --- 194, reproductions 15, 21, 23: counts that are not the server's -----------------------------------------------


def test_a_count_that_is_30_percent_too_low_is_corrected_by_what_the_server_says(store: Store) -> None:
    """Report 194: windows from 32K to 256K were overrun on an estimate."""
    factors, estimate = Factors(store.core), Estimator()
    text = "The quick brown fox jumps over the lazy dog. " * 200
    counted = message_tokens({"role": "user", "content": text}, estimate)
    for _ in range(8):
        factors.learn("m", SERVER, estimate, counted, {"prompt_tokens": counted * 13 // 10})
    corrected = message_tokens({"role": "user", "content": text}, factors.counter(estimate, "m", SERVER))
    assert corrected == pytest.approx(counted * 1.3, rel=0.03)


def test_a_server_that_reports_zero_leaves_the_estimate_as_it_is(store: Store) -> None:
    """Reproduction 15: a local server returned 0, and nothing ever reached the trigger."""
    factors = Factors(store.core)
    lesson = factors.learn("m", SERVER, Estimator(), 30_000, {"prompt_tokens": 0, "total_tokens": 0})
    assert (lesson.verdict, lesson.factor.factor) == ("not_reported", 1.0)
    assert truncated(30_000, 0) is None, "nor is it a request that was cut"
    assert factors.counter(Estimator(), "m", SERVER).count("word " * 1000) > 900


def test_json_chinese_and_hex_are_not_counted_as_a_quarter_of_their_characters() -> None:
    """Reproduction 23: a budget of 20,000 kept 65,000 to 90,000 real tokens of Chinese."""
    counter = Estimator()
    row = {"id": "call_0f9a3b7c21de44", "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c", "size": 10441}
    for text, least in (
        ("服务器把每条消息保存为一行" * 100, 0.6), (json.dumps([row] * 50), 0.45), ("9f86d0818b" * 500, 0.7),
    ):
        assert counter.count(text) >= least * len(text)


def test_a_summarisers_own_window_can_be_asked_for_before_it_is_given_a_history(store: Store) -> None:
    """Reproduction 21, the part of it that is about windows: each model at each server has its own."""
    windows = Windows(store.core)
    windows.declare("large", SERVER, 131_072)
    windows.declare("small", SERVER, 8_192)
    assert (windows.resolve("large", SERVER).tokens, windows.resolve("small", SERVER).tokens) == (131_072, 8_192)


# --- 197, reproduction 9: what is measured decides ------------------------------------------------------------------


def test_tokens_of_the_reply_are_never_taken_for_tokens_of_the_prompt(store: Store) -> None:
    """Reproduction 9: a trigger on `total_tokens` compacted for what the model had written."""
    factors = Factors(store.core)
    for _ in range(8):
        lesson = factors.learn(
            "m", SERVER, Estimator(), 10_000,
            {"prompt_tokens": 10_000, "completion_tokens": 9_000, "total_tokens": 19_000},
        )
    assert lesson.factor.factor == 1.0
    assert factors.learn("m", SERVER, Estimator(), 10_000, {"total_tokens": 19_000}).verdict == "not_reported"


def test_fifty_tool_schemas_are_not_counted_twice_as_large_as_they_are() -> None:
    """Report 197: 113K were estimated where the server said 58K, and every turn was compacted."""
    schemas = [
        {"type": "function", "function": {
            "name": f"tool_{number}", "description": "Read a file and return its text, with line numbers.",
            "parameters": {"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string", "description": "Where the file is"},
                "limit": {"type": "integer", "description": "How many lines at most"}}}}}
        for number in range(50)
    ]
    counted = request_tokens([{"role": "system", "content": json.dumps(schemas)}], Estimator())
    # Qwen's tokenizer counts 4,541, the four others 4,501 to 4,595.
    assert 0.9 <= counted / 4_541 <= 1.15


# --- reproductions 16, 17: the wrong window --------------------------------------------------------------------------


def test_the_served_window_counts_and_not_the_one_the_model_was_trained_for(store: Store) -> None:
    """Reproduction 16: compaction never started, because 262,144 were taken for what is served."""
    with ModelServer({"GET /api/v0/models": (200, {"data": [
        {"id": "m", "state": "loaded", "max_context_length": 262144, "loaded_context_length": 8192}]})}) as server:
        Windows(store.core).probe("m", server.endpoint)
        found = Windows(store.core).resolve("m", server.endpoint)
    assert (found.tokens, found.kind) == (8192, "served")


def test_no_window_is_ever_guessed_from_a_name(store: Store) -> None:
    """Reproduction 17: a table of names said 32K for a model of 262K, which compacted far too early."""
    windows = Windows(store.core)
    assert windows.known("qwen3-30b-a3b-instruct-2507-32k", SERVER) == ()
    with ModelServer({"GET /v1/models": (200, {"data": [{"id": "qwen3-32k", "max_model_len": 262144}]})}) as server:
        windows.probe("qwen3-32k", server.endpoint)
        assert windows.resolve("qwen3-32k", server.endpoint).tokens == 262144


def test_a_switch_of_the_model_in_the_middle_of_a_session_is_another_window(store: Store) -> None:
    windows = Windows(store.core)
    windows.declare("cloud", "https://api.example.com/v1", 131_072)
    windows.declare("local", SERVER, 8_192)
    order = [("cloud", "https://api.example.com"), ("local", f"{SERVER}/v1"), ("cloud", "https://api.example.com/v1/")]
    assert [windows.resolve(*one).tokens for one in order] == [131_072, 8_192, 131_072]
