"""Counting with a tekken file of Mistral, through the library mistral-common.

Invariant: no network: the file is the caller's, or one that comes inside the library. What begins or ends a request is
not counted.

Not for: rendering Mistral's chat requests, which the library can do and the learned factor covers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hermes_state.compaction.tokens.adapters.pieces import package, pieces, plain
from hermes_state.errors import InvalidInput, NotFound


class Tekken:
    """A counter over a tekken file."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, name: str | None = None) -> None:
        """Load it, in about a second. Extra: `mistral`.

        `path`: a `tekken*.json`; None: the newest one inside the library. `name`: how counts are recorded; by default
        the file's name. Raises `Refused` without the library, `NotFound`, `InvalidInput` for a file that is none.
        """
        library = package("mistral_common.tokens.tokenizers.tekken", "mistral", "A tekken file")
        file = _inside() if path is None else Path(path)
        if not file.is_file():
            raise NotFound(f"There is no file {file}.", path=str(file))
        try:
            self._tokenizer: Any = library.Tekkenizer.from_file(file)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise InvalidInput(f"{file} is no tekken file.", argument="path", path=str(file)) from error
        self.name = name or f"tekken:{file.name}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return sum(len(self._tokenizer.encode(piece, bos=False, eos=False)) for piece in pieces(plain(text)))


def _inside() -> Path:
    folder = Path(str(package("mistral_common", "mistral", "A tekken file").__file__)).parent / "data"
    found = sorted(folder.glob("tekken*.json"))
    if not found:
        raise NotFound(f"There is no tekken file in {folder}.", path=str(folder))
    return found[-1]
