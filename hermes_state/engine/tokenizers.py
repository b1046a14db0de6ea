"""Full-text tokenizers that make this SQLite read and write an index the way the program that built it did.

Invariant: what `register` puts on a connection only decides how text becomes tokens; it changes nothing in the file.
Under `NulRule.CUT` the tokenizer called `trigram` gives exactly the builtin's tokens for the text before the first NUL
byte, with the same options; under `NulRule.NATIVE` the builtin is left alone. `cjk_unicode61` is always there, because
a file may hold an index that names it and could otherwise not even be checked.

Not for: search of our own store, which writes its own bigrams and needs no tokenizer in Python.

Why two rules: SQLite 3.40 stops a trigram index at the first NUL, SQLite 3.54 reads past it, and hermes-agent marks
structured content with a leading NUL. The rule belongs to the index, not to the file or to us. Changing the rows so
that both agree was rejected: it damages the index for whoever built it. Rebuilding under our own rule, likewise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import chain, pairwise
from typing import cast

import apsw

Token = str | tuple[str, ...] | tuple[int, int, *tuple[str, ...]]
Tokenize = Callable[[bytes, int, str | None], Iterable[Token]]

# Pieces keep the token list of one very long cell small; two plain ASCII bytes are a place where cutting is exact.
PIECE_BYTES = 1 << 20
_SEAM = re.compile(rb"[\x01-\x7f]{2}")

# Hangul, kana and Han blocks that the cjk_unicode61 index format splits into bigrams.
_CJK_RANGES = (
    (0x1100, 0x11FF),
    (0x3040, 0x30FF),
    (0x3130, 0x318F),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7A3),
    (0xD7B0, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2FA1F),
)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Runs of CJK or of anything else, and one CJK character. Compiled at first use: most opens never tokenize."""
    ranges = "".join(f"{chr(low)}-{chr(high)}" for low, high in _CJK_RANGES)
    return re.compile(f"[{ranges}]+|[^{ranges}]+"), re.compile(f"[{ranges}]")


class NulRule(Enum):
    """Where a trigram index stops reading a text."""

    NATIVE = "native"  # as this SQLite's own tokenizer does: at the end of the text
    CUT = "cut"  # at the first NUL, as SQLite 3.40 and its neighbours do


def register(connection: apsw.Connection, rule: NulRule) -> None:
    """Put the tokenizers on a fresh connection, before its first statement touches a full-text table.

    Set the busy handler first: it reads the schema. The connection must be closed explicitly, since the tokenizers and
    it refer to each other. Raises what SQLite says about a file whose schema cannot be read.
    """
    try:
        connection.register_fts5_tokenizer("cjk_unicode61", _cjk_factory)
    except apsw.NoFTS5Error:
        # APSW asks SQLite for the full-text interface with a SELECT and hides why that failed. When the reason has gone
        # meanwhile, as a lock of another opener has, the schema is read by now and the interface can be had.
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 0").fetchall()
        connection.register_fts5_tokenizer("cjk_unicode61", _cjk_factory)
    if rule is NulRule.CUT:
        connection.register_fts5_tokenizer("trigram", _cutting_trigram_factory(connection))


def _cutting_trigram_factory(connection: apsw.Connection) -> apsw.FTS5TokenizerFactory:
    """A factory for `trigram` that ends every text at its first NUL.

    The builtin can only be reached by its name, and only until that name is ours, so each set of options it knows is
    taken now. `remove_diacritics` 1 and 2 mean the same to it.
    """
    builtins = {
        (sensitive, diacritics): connection.fts5_tokenizer("trigram", arguments)
        for (sensitive, diacritics), arguments in {
            (False, False): [],
            (True, False): ["case_sensitive", "1"],
            (False, True): ["remove_diacritics", "1"],
        }.items()
    }

    def factory(_connection: apsw.Connection, arguments: list[str]) -> Tokenize:
        builtin = builtins.get(_trigram_options(arguments))
        if builtin is None:
            raise ValueError("a trigram index cannot be case sensitive and remove diacritics at once")

        def tokenize(text: bytes, flags: int, locale: str | None) -> Iterable[Token]:
            nul = text.find(b"\0")
            if nul >= 0:
                text = text[:nul]
            if flags & apsw.FTS5_TOKENIZE_AUX:
                # highlight() and snippet() are the only users of offsets; without them indexing is 2.6 times faster.
                return builtin(text, flags, locale)
            if len(text) <= PIECE_BYTES:
                return builtin(text, flags, locale, include_offsets=False, include_colocated=False)
            return chain.from_iterable(
                builtin(piece, flags, locale, include_offsets=False, include_colocated=False) for piece in _pieces(text)
            )

        return tokenize

    return factory


def _trigram_options(arguments: list[str]) -> tuple[bool, bool]:
    if len(arguments) % 2:
        raise ValueError(f"the trigram option {arguments[-1]!r} has no value")
    sensitive = diacritics = False
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        match name.lower(), value:
            case "case_sensitive", "0" | "1":
                sensitive = value == "1"
            case "remove_diacritics", "0" | "1" | "2":
                diacritics = value != "0"
            case _:
                raise ValueError(f"the trigram tokenizer has no option {name!r} with the value {value!r}")
    return sensitive, diacritics


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut a long text so that the trigrams of the pieces, in order, are the trigrams of the whole.

    Neighbours share two ASCII characters: a trigram that starts at the first of them lies in the right piece only, one
    that starts before it in the left piece only. ASCII is never dropped by the tokenizer, so the count of two holds
    whatever it does with combining marks. Text without such a pair stays whole.
    """
    start = 0
    while len(text) - start > PIECE_BYTES:
        seam = _SEAM.search(text, start + PIECE_BYTES)
        if seam is None:
            break
        yield text[start : seam.end()]
        start = seam.start()
    yield text[start:]


def _cjk_factory(connection: apsw.Connection, arguments: list[str]) -> Tokenize:
    """`cjk_unicode61`: the tokens of unicode61, with every run of CJK characters as overlapping pairs.

    A lone CJK character stands for itself. Options go to unicode61. It follows the description of the index format; no
    index written by the loadable library that hermes-agent uses was at hand to compare with.
    """
    unicode61 = connection.fts5_tokenizer("unicode61", arguments)

    def tokenize(text: bytes, flags: int, locale: str | None) -> Iterator[tuple[int, int, str]]:
        found = cast("Iterable[tuple[int, int, str]]", unicode61(text, flags, locale, include_colocated=False))
        for start, end, token in found:
            if _patterns()[1].search(token) is None:
                yield start, end, token
            else:
                yield from _split(token, start, end)

    return tokenize


def _split(token: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The pieces of one unicode61 token; byte offsets are exact unless folding changed a letter's length."""
    at = start
    runs, cjk = _patterns()
    for run in runs.findall(token):
        if len(run) == 1 or cjk.match(run) is None:
            after = at + len(run.encode())
            yield min(at, end), min(after, end), run
            at = after
            continue
        middle = at + len(run[0].encode())
        for left, right in pairwise(run):
            after = middle + len(right.encode())
            yield min(at, end), min(after, end), left + right
            at, middle = middle, after
        at = middle
