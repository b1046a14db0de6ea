"""The searchable text of a message, and how text becomes terms.

Invariant: index, scan, check and snippet see the same text of a row: its content (the text parts of structured content,
never base64), its tool name and its tool calls, each on a line of its own. Reasoning is not searched: it is the
model's draft, repeats what the answer says, and would crowd it out.

CJK has no spaces, so a run of n characters is written to the index as its n-1 overlapping pairs and then its last
character alone: any substring of two or more is a phrase of pairs, and a single character is the beginning of a pair
or that last one. Where CJK and other letters touch, a term ends.

Not for: tokenizing the rest, which SQLite's unicode61 does. `fold` asks it about every character, so whatever the index
finds, the check on the canonical text finds again, and nothing else. A tokenizer of our own inside SQLite was rejected:
no other program could read the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from hermes_state.engine.derived import unicode61

# Han, kana, hangul, bopomofo; only letters, since punctuation between them ends a term anyway.
_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U0003134f"
)
_MARKS = "\u0300-\u036f"  # accents of their own, which SQLite drops wherever they stand
CJK_RUN = re.compile(f"[{_CJK}](?:[{_MARKS}]*[{_CJK}])*")
_MARK = re.compile(f"[{_MARKS}]")
_PIECE = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
TOKENIZER = ("remove_diacritics", "2")
# Encoded bytes: nothing in them is a word, and each line of them would be a term of its own.
_ENCODED = re.compile(r"[A-Za-z0-9+/_=-]{1024,}")
_ENCODED_VALUE = re.compile(r"(?:data:[\w./+-]+;base64,)?[A-Za-z0-9+/_-]{256,}={0,2}\s*\Z")
# What a part of structured content says about itself rather than to somebody.
_NOT_SAID = {"type", "id", "mime_type", "media_type", "detail", "encoding"}
_DEEPEST = 12


def text_of(content_type: str | None, raw: Any, tool_name: str | None, tool_calls: str | None) -> str:
    """Everything of a message that a search can find."""
    parts = [content_text(content_type, raw)]
    if tool_name:
        parts.append(tool_name)
    if tool_calls:
        parts.append(_calls_text(tool_calls))
    text = "\n".join(part for part in parts if part) if len(parts) > 1 else parts[0]
    if len(text) >= 1024 and _may_hold_encoded(text):
        text = _ENCODED.sub(" ", text)
    return text.replace("\0", " ")


def _may_hold_encoded(text: str) -> bool:
    """A run of 1,024 covers a whole aligned block of 512: blocks without a space are rare and quickly found."""
    for at in range(0, len(text) - 511, 512):
        if text.find(" ", at, at + 512) < 0 and text.find("\n", at, at + 512) < 0:
            return True
    return False


def content_text(content_type: str | None, raw: Any) -> str:
    """The text of a body as it is stored (JSON as text); "" for bytes and for no content."""
    if content_type == "text" and isinstance(raw, str):
        return raw
    if content_type == "json" and isinstance(raw, str):
        try:
            return _clean(" \n".join(_strings(json.loads(raw), 0, keys=False)))
        except (ValueError, RecursionError):
            return raw  # a preview is cut off in the middle
    return str(raw) if content_type == "number" and raw is not None else ""


def _calls_text(tool_calls: str) -> str:
    if "\\" not in tool_calls:
        return tool_calls
    try:
        return _clean(" \n".join(_strings(json.loads(tool_calls), 0, keys=True)))
    except (ValueError, RecursionError):
        return tool_calls


def _strings(value: Any, depth: int, *, keys: bool) -> list[str]:
    """The strings of a JSON value in order; arguments of a call are JSON inside a string, and are read as such."""
    if isinstance(value, str):
        if keys and value[:1] in ("{", "[") and depth < _DEEPEST:
            try:
                return _strings(json.loads(value), depth + 1, keys=True)
            except ValueError:
                return [value]
        return [] if len(value) >= 256 and _ENCODED_VALUE.match(value) else [value]
    if isinstance(value, bool) or value is None or depth >= _DEEPEST:
        return []
    if isinstance(value, (int, float)):
        return [str(value)]
    found: list[str] = []
    if isinstance(value, list):
        for item in value:
            found += _strings(item, depth + 1, keys=keys)
    elif isinstance(value, dict):
        for name, item in value.items():
            if keys:
                found.append(name)
            elif name in _NOT_SAID:
                continue
            found += _strings(item, depth + 1, keys=keys)
    return found


def _clean(text: str) -> str:
    """Lone surrogates, which JSON can spell and UTF-8 cannot, become a replacement character."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if not text.isascii() else text


def segment(text: str) -> str:
    """`text` as it is written to the index."""
    return text if text.isascii() else CJK_RUN.sub(_spread, separated(text))


def separated(text: str) -> str:
    """`text` with a space in the place of every character that only SQLite takes for a letter."""
    return text if text.isascii() else text.translate(_GAPS)


def _spread(run: re.Match[str]) -> str:
    letters = bare(run[0])
    pairs = [letters[at : at + 2] for at in range(len(letters) - 1)]
    return f" {' '.join([*pairs, letters[-1]])} "


def bare(run: str) -> str:
    """A run of CJK without accents in it."""
    return _MARK.sub("", run)


def pieces(text: str) -> list[re.Match[str]]:
    """The runs of CJK and of other letters and digits in folded text."""
    return list(_PIECE.finditer(text))


def is_cjk(piece: str) -> bool:
    """Whether a piece is a run of CJK."""
    return CJK_RUN.match(piece) is not None


# --- folding -----------------------------------------------------------------------------------------------------


@cache
def _terms() -> Callable[[str], list[str]]:
    return unicode61(*TOKENIZER)


def _within_word(letter: str) -> str | None:
    """What SQLite makes of a character inside a word: "" for a lone accent, None when it ends the word."""
    found = _terms()(f"a{letter}a")
    return found[0][1:-1] if len(found) == 1 else None


class _Folds(dict[int, str]):
    """Each character as the index has it, asked for when it is first met."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        folded = _within_word(letter)
        if folded is None:
            folded = " " if letter.isalnum() else letter
        elif folded and not folded.isalnum():
            folded = letter  # see `_Gaps`
        self[code] = folded
        return folded


class _Gaps(dict[int, str]):
    """Spaces in the place of what SQLite takes for a letter and is none.

    Its tables are of an older Unicode: a newer emoji would become a part of the word that it follows, which would then
    not be found.
    """

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        folded = _within_word(letter)
        shown = letter if not folded or folded.isalnum() else " "
        self[code] = shown
        return shown


_FOLDS = _Folds()
_GAPS = _Gaps()


def fold(text: str) -> str:
    """`text` without case and accents, as the index has it; as long as `text` unless accents stand alone in it."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def fold_positions(text: str) -> list[int]:
    """For each position of `fold(text)`, and one past its end, the position in `text` that it comes from."""
    if text.isascii():
        return list(range(len(text) + 1))
    found: list[int] = []
    for at, letter in enumerate(text):
        found += [at] * len(_FOLDS[ord(letter)])
    return [*found, len(text)]
