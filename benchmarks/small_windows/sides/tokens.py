"""Counts with a real tokenizer: `tokens.py qwen|llama3|gguf FILE`, then {"texts": [...]} gives {"counts": [...]}.

Invariant: special tokens in a text are ordinary text, as servers read what users wrote. Not for: whole requests (see
`wire.py`). Loading tokenizers in the benchmark's process was rejected: they live in an environment of their own.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lines import serve

# The patterns that the makers publish with the ranks: Qwen 1.x/2.x and Llama 3 differ in how many digits go together.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS = {"qwen": "", "llama3": "{1,3}"}


def ranks(kind: str, file: Path) -> Callable[[str], int]:
    """A byte-pair encoding from a file of ranks (base64, rank)."""
    import tiktoken

    table = {
        base64.b64decode(word): int(rank) for word, rank in (line.split() for line in file.read_bytes().splitlines())
    }
    encoding = tiktoken.Encoding(kind, pat_str=_WORDS % _DIGITS[kind], mergeable_ranks=table, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def gguf(file: Path) -> Callable[[str], int]:
    """The tokenizer inside a GGUF file, without its weights."""
    import llama_cpp

    model = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    return lambda text: len(model.tokenize(text.encode(), add_bos=False, special=False))


def main() -> None:
    kind, file = sys.argv[1], Path(sys.argv[2])
    count = gguf(file) if kind == "gguf" else ranks(kind, file)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return {"counts": [count(text) for text in request["texts"]]}

    serve(answer)


if __name__ == "__main__":
    main()
