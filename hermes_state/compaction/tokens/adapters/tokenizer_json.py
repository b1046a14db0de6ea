"""Counting with a `tokenizer.json`, through the library tokenizers.

Invariant: no network: the file is the caller's. Text that looks like a special token is counted as the text it is in a
conversation, except by files that say otherwise. Nothing is truncated or padded.

Not for: the library transformers, which loads in seconds what this does in a tenth.
"""

from __future__ import annotations

import os
from pathlib import Path

from hermes_state.compaction.tokens.adapters.pieces import package, pieces, plain
from hermes_state.errors import InvalidInput, NotFound


class TokenizerJson:
    """A counter over a `tokenizer.json` file."""

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Load it, in some tenths of a second. Extra: `tokenizers`.

        `name`: how counts are recorded; by default the file's folder and name. Raises `Refused` without the library,
        `NotFound`, `InvalidInput` for a file that is no tokenizer.
        """
        library = package("tokenizers", "tokenizers", "A tokenizer.json")
        file = Path(path)
        if not file.is_file():
            raise NotFound(f"There is no file {file}.", path=str(file))
        try:
            self._tokenizer = library.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception for what it cannot read
            raise InvalidInput(f"{file} is no tokenizer.json.", argument="path", path=str(file)) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = name or f"tokenizers:{file.parent.name}/{file.name}"

    def count(self, text: str) -> int:
        """Tokens of a text, without those that begin or end a request."""
        return sum(
            len(self._tokenizer.encode(piece, add_special_tokens=False).ids) for piece in pieces(plain(text))
        )
