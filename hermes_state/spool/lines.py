"""One item of the spool as one line of a file, and back.

Invariant: a line is whole or it is not an item: it carries a check over everything else in it, so that a line torn by a
full disk or a power cut is told from one that was acknowledged. An item reads back as it was given.

Not for: what the payload means; whoever replays it knows. A length before each item was rejected: people open this file
with an editor when everything else has failed, and lines of JSON they can read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

FORMAT = 1
_CHECK_DIGITS = 16  # 8 bytes of SHA-256, as many as a message row carries


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that waits to be written."""

    # random, for this item alone; whatever is made of it is keyed by it, so that a second replay finds it done
    id: str
    # what the payload is, for whoever replays it
    kind: str
    # epoch seconds UTC at which it was given
    at: float
    # the identity of the store that it is for, None when that could not be read
    store_id: str | None
    # code of the error that kept it out of the store
    cause: str
    # anything JSON can say
    payload: dict[str, Any]


def line_of(item: Item) -> bytes:
    """The line of an item, with its end. Raises `ValueError` or `TypeError` for a payload that JSON cannot say."""
    text = json.dumps(
        {
            "format": FORMAT, "id": item.id, "kind": item.kind, "at": item.at, "store_id": item.store_id,
            "cause": item.cause, "payload": item.payload,
        },
        ensure_ascii=True, separators=(",", ":"), allow_nan=False,
    )
    # The check comes last, so that it can be cut off and what is before it hashed as it is.
    return f'{text[:-1]},"check":"{_check(text)}"}}\n'.encode("ascii")


def item_of(line: bytes) -> Item:
    """The item of a line. Raises `ValueError` with the reason when it is not one, whole and unaltered."""
    if not line.endswith(b"\n"):
        raise ValueError("it was not written to its end")
    try:
        text = line.decode("ascii").rstrip("\n")
        body, mark, check = text.rpartition(',"check":"')
        if not mark or check != f'{_check(body + "}")}"}}':
            raise ValueError("its check does not fit")
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError("it is not JSON") from error
    if found["format"] != FORMAT:
        raise ValueError(f"it is of format {found['format']!r}; this version reads format {FORMAT}")
    return Item(
        id=found["id"], kind=found["kind"], at=found["at"], store_id=found["store_id"], cause=found["cause"],
        payload=found["payload"],
    )


def _check(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_CHECK_DIGITS]
