"""Which number counts: served, learned, declared, trained, each with its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens.factors import Factors, factors_of
from hermes_state.compaction.windows import Refusal, Truncation, Windows, rows
from hermes_state.errors import InvalidInput, NotFound
from hermes_state.store import Store
from hermes_state.testing import temporary_store

SERVER = "http://localhost:8080"
REFUSED = Refusal(
    server="llama-server", prompt_tokens=20480, window=16384, reply_tokens=None, status=400, evidence="type x"
)


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def put(store: Store, kind: rows.Kind, tokens: int, endpoint: str = SERVER) -> None:
    store.core.write(lambda tx: rows.put(
        tx, kind, "m", endpoint, tokens, at=store.core.clock.now(), evidence={"source": "test"}
    ))


def test_served_beats_learned_beats_declared_beats_trained(store: Store, fake_clock: FakeClock) -> None:
    windows = Windows(store.core)
    for kind, tokens in (("trained", 131072), ("declared", 32768), ("learned", 16384), ("served", 8192)):
        put(store, kind, tokens)  # type: ignore[arg-type]
        fake_clock.advance(1)
        found = windows.resolve("m", SERVER)
        assert (found.kind, found.tokens, found.observed_at) == (kind, tokens, fake_clock.now() - 1)
    assert [one.kind for one in windows.known("m", SERVER)] == ["served", "learned", "declared", "trained"]
    assert found.why == (
        "which the server says that it serves, after it had been learned to be 16384; 32768 was declared; the model"
        " was trained for 131072"
    )
    assert windows.known("m", SERVER)[1].why == "served counts before it"


def test_a_newer_refusal_beats_an_older_probe_until_the_next_probe(store: Store, fake_clock: FakeClock) -> None:
    windows = Windows(store.core)
    put(store, "served", 32768)
    fake_clock.advance(60)
    windows.learn("m", SERVER, REFUSED)
    found = windows.resolve("m", SERVER)
    assert (found.tokens, found.kind) == (16384, "learned")
    assert found.why == "learned from a refusal, newer than the 32768 that it said it serves"
    assert dict(found.evidence) == {
        "source": "refusal", "server": "llama-server", "status": 400, "evidence": "type x", "prompt_tokens": 20480,
    }
    fake_clock.advance(60)
    put(store, "served", 24576)
    assert windows.resolve("m", SERVER).tokens == 24576


def test_a_clock_that_was_set_back_does_not_make_new_knowledge_old(store: Store, fake_clock: FakeClock) -> None:
    put(store, "served", 32768)
    fake_clock.step_wall(-3600)
    Windows(store.core).learn("m", SERVER, REFUSED)
    assert Windows(store.core).resolve("m", SERVER).tokens == 16384
    put(store, "served", 24576)
    assert Windows(store.core).resolve("m", SERVER).tokens == 24576


def test_what_the_model_was_trained_for_counts_last_and_with_a_warning(store: Store) -> None:
    put(store, "trained", 131072)
    found = Windows(store.core).resolve("m", SERVER)
    assert (found.kind, found.why) == (
        "trained", "warning: what the model was trained for; a server may give much less, so probe or declare it"
    )


def test_another_endpoint_or_model_is_another_window(store: Store) -> None:
    windows = Windows(store.core)
    windows.declare("m", SERVER, 131072)
    windows.declare("m", "http://other:1/v1", 8192)
    windows.declare("m2", SERVER, 4096)
    asked = (("m", SERVER), ("m", "http://other:1"), ("m2", f"{SERVER}/v1"), ("m", SERVER))
    assert [windows.resolve(*one).tokens for one in asked] == [131072, 8192, 4096, 131072]


def test_what_was_declared_for_a_model_anywhere_stands_in_where_nothing_nearer_is_known(store: Store) -> None:
    windows = Windows(store.core)
    windows.declare("m", "", 65536)
    assert windows.resolve("m", SERVER).endpoint == ""
    windows.declare("m", SERVER, 16384)
    assert [(one.tokens, one.endpoint) for one in windows.known("m", SERVER)] == [(16384, SERVER), (65536, "")]
    put(store, "trained", 131072)
    assert windows.resolve("m", SERVER).tokens == 16384
    assert windows.resolve("m", "http://elsewhere:1").tokens == 65536
    for kind in ("served", "learned"):
        with pytest.raises(InvalidInput) as caught:
            put(store, kind, 4096, "")  # type: ignore[arg-type]
        assert str(caught.value) == f"A {kind} window belongs to an endpoint, and none was named."


def test_a_cut_and_a_filled_window_are_learned_and_a_refusal_without_numbers_is_not(store: Store) -> None:
    windows = Windows(store.core)
    cut = Truncation(counted=20000, reported=2048, fits=2048, why="x")
    learned = windows.learn("m", SERVER, cut)
    assert learned is not None and (learned.tokens, learned.evidence["source"]) == (2048, "truncation")
    learned = windows.learn("m", SERVER, 4096)
    assert learned is not None and (learned.tokens, learned.evidence["source"]) == (4096, "filled")
    silent = Refusal(server="ollama", prompt_tokens=None, window=None, reply_tokens=None, status=400, evidence="x")
    assert windows.learn("m", SERVER, silent) is None
    assert windows.resolve("m", SERVER).tokens == 4096


def test_one_kind_can_be_forgotten(store: Store) -> None:
    windows = Windows(store.core)
    windows.declare("m", SERVER, 8192)
    assert (windows.forget("m", SERVER, "declared"), windows.forget("m", SERVER, "declared")) == (True, False)
    with pytest.raises(InvalidInput) as caught:
        windows.forget("m", SERVER, "guessed")  # type: ignore[arg-type]
    assert str(caught.value) == "A window is served, learned, declared, trained, not 'guessed'."


def test_nothing_known_is_an_error_that_says_how_to_know(store: Store) -> None:
    with pytest.raises(NotFound) as caught:
        Windows(store.core).resolve("m", f"{SERVER}/v1")
    assert str(caught.value) == f"Nothing is known of the window of m at {SERVER}, in {store.path}."
    assert caught.value.hint == (
        f"`hermes sessions window --db {store.path} m@{SERVER} --probe` asks the server; `--declare TOKENS` says it."
    )
    with pytest.raises(NotFound) as caught:
        Windows(store.core).resolve("m")
    assert str(caught.value) == f"Nothing is known of the window of m, in {store.path}."
    assert caught.value.hint == f"`hermes sessions window --db {store.path} m --declare TOKENS` says it."


def test_a_store_of_an_older_version_knows_nothing_and_says_so(store: Store) -> None:
    store.core.write(lambda tx: [tx.execute(f"DROP TABLE {name}") for name in ("model_windows", "token_factors")])
    assert Windows(store.core).known("m", SERVER) == ()
    assert Factors(store.core).of("m", SERVER).factor == 1.0
    with store.core.reader() as reader:
        assert factors_of(reader, "m", SERVER) == ()


def test_a_number_that_is_no_window_is_refused(store: Store) -> None:
    for tokens in (0, -1, 127, 2**31, True, 4096.0, "4096", None):
        with pytest.raises(InvalidInput) as caught:
            Windows(store.core).declare("m", SERVER, tokens)  # type: ignore[arg-type]
        assert str(caught.value) == f"A window is a whole number of tokens from 128 to 2147483647, not {tokens!r}."
    assert Windows(store.core).known("m", SERVER) == ()


def test_a_model_needs_a_name(store: Store) -> None:
    for model in ("", "  ", "x\0y", "m" * 501, 7):
        with pytest.raises(InvalidInput) as caught:
            Windows(store.core).declare(model, SERVER, 8192)  # type: ignore[arg-type]
        assert str(caught.value) == "A model is named by a text of 1 to 500 characters."
