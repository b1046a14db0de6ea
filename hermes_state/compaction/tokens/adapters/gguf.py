"""Counting with the vocabulary of a GGUF file, through llama-cpp-python.

Invariant: only the vocabulary is loaded (some tens of megabytes and a third of a second), never the weights. One count
at a time: the library's object is not safe for threads.

Not for: running the model.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from hermes_state.compaction.tokens.adapters.pieces import UNBROKEN, package, pieces, plain
from hermes_state.errors import InvalidInput, NotFound


class GgufVocabulary:
    """A counter over the vocabulary of a GGUF file."""

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Load it. Extra: `local-models`.

        `name`: how counts are recorded; by default the file's name. Raises `Refused` without the library, `NotFound`,
        `InvalidInput` for a file that is no GGUF.
        """
        library = package("llama_cpp", "local-models", "A GGUF file")
        file = Path(path)
        if not file.is_file():
            raise NotFound(f"There is no file {file}.", path=str(file))
        try:
            self._model: Any = library.Llama(model_path=str(file), vocab_only=True, verbose=False)
        except (ValueError, RuntimeError) as error:
            raise InvalidInput(f"{file} is no GGUF file with a vocabulary.", argument="path", path=str(file)) from error
        self._lock = threading.Lock()
        self.name = name or f"gguf:{file.name}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        total = 0
        with self._lock:
            # Small pieces: SentencePiece vocabularies took 7 s for 1 MB in one piece.
            for piece in pieces(plain(text), UNBROKEN * 2):
                total += len(self._model.tokenize(piece.encode("utf-8"), add_bos=False, special=False))
        return total

    def close(self) -> None:
        """Give the memory back."""
        self._model.close()
