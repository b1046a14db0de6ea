"""Nicknames of instances, how they are compared, and the other words that people give.

Invariant: two nicknames are the same when their keys are: trimmed, NFKC, casefolded, without what is not seen (such as
a zero-width joiner). A key is its own key. What turns the direction of text is in no name: it would show another one.

Not for: whether one is taken, which the unique index decides (see `registry`). Comparing as people see them (look-alike
letters) was rejected: it would refuse names that are different.
"""

from __future__ import annotations

import unicodedata
from typing import Any
from urllib.parse import urlsplit

from hermes_state.errors import InvalidConnectorUrl, InvalidInput

# The two bounds of the contracts that these instances come from.
LONGEST_NICKNAME = 64
LONGEST_URL = 2048
LONGEST_ID = 256
SCHEMES = ("http", "https", "ws", "wss")
# Not seen, as Unicode's own folding for identifiers (NFKC_Casefold) leaves them out: format characters (Cf) and these.
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
# Marks, embeddings, overrides and isolates of direction.
# Shown as nothing, and no space to Unicode: the empty Braille pattern.
_BLANK = frozenset("\u2800")
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def nickname_key(nickname: str) -> str:
    """How a nickname is compared."""
    text = nickname
    # Each step may leave what an earlier one writes otherwise. The third round changes no character of Unicode 14.
    for _round in range(3):
        folded = _seen(unicodedata.normalize("NFKC", text)).casefold()
        text = unicodedata.normalize("NFKC", folded).strip()
    return text


def _seen(text: str) -> str:
    return text if text.isascii() else "".join(
        one for one in text if one not in _UNSEEN and unicodedata.category(one) != "Cf"
    )


def nickname(value: Any) -> tuple[str, str]:
    """A nickname as shown and its key. Raises `InvalidInput` unless it has 1 to 64 printable characters, trimmed."""
    shown = value.strip() if isinstance(value, str) else ""
    key = nickname_key(shown) if _printable(shown) else ""
    if not key or len(shown) > LONGEST_NICKNAME:
        raise InvalidInput(
            f"A nickname has 1 to {LONGEST_NICKNAME} printable characters; {value!r:.80} cannot be one.",
            argument="nickname",
        )
    return shown, key


def instance_id(value: Any) -> str:
    """A new instance's id as a caller gives it. Raises `InvalidInput`."""
    if not isinstance(value, str) or not value or value != value.strip() or len(value) > LONGEST_ID \
            or not _printable(value) or _seen(value) != value or unicodedata.normalize("NFC", value) != value:
        raise InvalidInput(
            f"The id of an instance has 1 to {LONGEST_ID} characters that are seen, composed (NFC), and no space around"
            f" it; {value!r:.80} cannot be one.",
            argument="instance_id",
        )
    return value


def connector_url(value: Any) -> str:
    """A connector's URL. Raises `InvalidConnectorUrl`; one with a password is not stored, and not shown either."""
    try:
        parts = urlsplit(value) if isinstance(value, str) and _printable(value) and " " not in value else None
        good = parts is not None and parts.scheme in SCHEMES and bool(parts.hostname) and len(value) <= LONGEST_URL
        secret = parts is not None and (parts.username is not None or parts.password is not None)
        more = parts is not None and ("?" in value or "#" in value)
    except ValueError:
        good, secret, more = False, False, False
    if not good or secret or more:
        told = "it has a user or a password in it" if secret else "it has a query or a fragment, where secrets travel"
        why = told if good else "it is no such address"
        raise InvalidConnectorUrl(
            f"A connector's URL is an {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]} address of at most {LONGEST_URL}"
            f" characters: {why}.",
            hint="What opens the connector is its enrollment token; the URL only says where it is.",
            argument="connector_url",
        )
    assert isinstance(value, str)
    return value


def words(name: str, value: Any) -> str:
    """Who does something, or why. Raises `InvalidInput`."""
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > 1000 or "\0" in text or not _encodes(text):
        raise InvalidInput(f"{name} is a text of 1 to 1000 characters, not {value!r:.80}.", argument=name)
    return text


def _printable(text: str) -> bool:
    return _encodes(text) and not any(
        unicodedata.category(one) in ("Cc", "Zl", "Zp") or one in _TURNING or one in _BLANK for one in text
    )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
