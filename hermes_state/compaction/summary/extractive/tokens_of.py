"""The words and values of one line, with their places.

Invariant: a token is never a part of a value: numbers keep their points, colons and units, paths their slashes, hashes
all of their digits. Every pattern is a single pass (character classes without nesting), so the time is linear in the
text whatever it holds.

Not for: counting what a model counts (see `compaction.tokens`). A parser for each kind of value was rejected: what
tells a value from a word is its characters, and a form nobody thought of has them too.
"""

# ruff: noqa: RUF001  (the punctuation of Chinese and Japanese is meant)
from __future__ import annotations

import re
from typing import NamedTuple

# Kana, ideographs and Hangul, which are written without spaces.
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(rf"[{CJK}]{{1,40}}|[^\s{CJK}\"'`,;()\[\]{{}}<>|=，。；：！？、“”「」『』（）【】·…→]+")
_KEY = re.compile(r"([A-Za-z_][\w.\-]{0,60}):(?!//|\\)(?=.)")
_IS_CJK = re.compile(f"[{CJK}]")


class Token(NamedTuple):
    """One word or value of a line."""

    start: int
    end: int
    key: str       # lower case, digits kept; what counts as the same token
    value: bool    # holds something that has to be exact: digits, a path, an address, an identifier
    word: bool     # letters only


def tokens_of(text: str) -> list[Token]:
    """The tokens of `text`, in order."""
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        raw, start = match[0], match.start()
        if raw.isalnum() and raw.isascii():
            found.append(_token(raw, start))
            continue
        if _IS_CJK.match(raw):
            found.append(Token(start, start + len(raw), raw, False, True))
            continue
        stripped = raw.rstrip(".:!?*\\/-") if len(raw) > 1 else raw
        if raw.endswith("/") and len(stripped) > 1 and "/" in stripped:
            stripped = raw  # a folder
        bare = stripped.lstrip("*\\:-#" if not stripped.startswith(("--", "#")) else "*")
        start += len(stripped) - len(bare)
        if not bare or not any(map(str.isalnum, bare)):
            continue
        key = _KEY.match(bare) if ":" in bare else None
        if key is not None and not (bare.count(":") > 1 and bare[key.end() - 1 :].replace(":", "").isalnum()):
            found.append(_token(key[1], start))
            start, bare = start + key.end(), bare[key.end() :]
        found.append(_token(bare, start))
    return found


def _token(raw: str, start: int) -> Token:
    end = start + len(raw)
    if raw.isalpha():
        inner = raw[1:]
        camel = inner != inner.lower() and inner != inner.upper()
        return Token(start, end, raw.lower(), camel, not camel)
    digits = any(map(str.isdigit, raw))
    marks = not digits and any(mark in raw for mark in "/\\@_.:$€£¥%#~")
    plain = not digits and not marks
    return Token(start, end, raw.lower(), digits or marks, plain)
