"""Counting with a file of ranks (`*.tiktoken`, Llama 3's `tokenizer.model`), through the library tiktoken.

Invariant: no network: tiktoken's own encodings are fetched from a blob store, so none of them is used; the ranks come
from a file of the caller's. Text that looks like a special token is counted as text.

Not for: SentencePiece models, which are also called `tokenizer.model`; their first line is no rank, and they are
refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path

from hermes_state.compaction.tokens.adapters.pieces import package, pieces, plain
from hermes_state.errors import InvalidInput, NotFound

# How text is split before the ranks are asked, as the makers of the files publish it. Qwen has one digit a token, Llama
# 3 up to three; everything else is equal.
_SPLIT = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
    r"""|\s+(?!\S)|\s+"""
)
QWEN = _SPLIT.replace("DIGITS", r"\p{N}")
LLAMA3 = _SPLIT.replace("DIGITS", r"\p{N}{1,3}")
_LARGEST_FILE = 64 * 2**20


class Ranks:
    """A counter over a file of ranks."""

    def __init__(self, path: str | os.PathLike[str], *, pattern: str = QWEN, name: str | None = None) -> None:
        """Load it, in about half a second. Extra: `tiktoken`.

        `pattern`: how text is split first; `QWEN` or `LLAMA3` here, or the maker's. `name`: how counts are recorded; by
        default the file's name and the beginning of its SHA-256. Raises `Refused` without the library, `NotFound`,
        `InvalidInput` for a file that has no ranks.
        """
        library = package("tiktoken", "tiktoken", "A file of ranks")
        file = Path(path)
        if not file.is_file():
            raise NotFound(f"There is no file {file}.", path=str(file))
        if file.stat().st_size > _LARGEST_FILE:
            raise _no_ranks(file)
        content = file.read_bytes()
        try:
            ranks = {
                base64.b64decode(token, validate=True): int(rank)
                for token, rank in (line.split() for line in content.splitlines() if line.strip())
            }
        except (ValueError, binascii.Error) as error:
            raise _no_ranks(file) from error
        if len(ranks) < 256 or any(bytes([byte]) not in ranks for byte in range(256)):
            raise _no_ranks(file)  # every byte has a rank, or some text could not be counted
        self.name = name or f"ranks:{file.name}:{hashlib.sha256(content + pattern.encode()).hexdigest()[:8]}"
        self._encoding = library.Encoding(self.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces(plain(text)))


def _no_ranks(file: Path) -> InvalidInput:
    return InvalidInput(
        f"{file} is no file of ranks: lines of a token in base64 and a number, every byte among them.",
        argument="path", path=str(file),
    )
