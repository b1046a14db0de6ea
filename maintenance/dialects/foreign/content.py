"""The encoding of `messages.content`: plain text, or NUL `json:` and a JSON document.

Invariant: decoding never raises; a broken document is returned as its text. Sizes are bytes as stored: LIKE and
length() see nothing of a text that begins with NUL, which once hid 98 % of the images of a store from its owner.
Not for: encoding; nothing here is written back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import ContentSizes
from maintenance.dialects.cells import decode_cell

if TYPE_CHECKING:
    from hermes_state.engine import Reader

MARKER = "\x00json:"


def decode_content(kind: object, value: object) -> Any:
    """The content of a (type, value) pair: text, list, dict, number, Blob or None."""
    decoded = decode_cell(kind, value)
    if isinstance(decoded, str) and decoded.startswith(MARKER):
        try:
            return json.loads(decoded[len(MARKER) :])
        except (ValueError, RecursionError):
            return decoded
    return decoded


def content_sizes(reader: Reader) -> ContentSizes:
    """How much structured content there is, and how much of it is there more than once. Reads every message."""
    import hashlib

    seen: set[bytes] = set()
    messages = total = repeated = 0
    rows = reader.iterate(
        "SELECT CAST(content AS BLOB) FROM messages WHERE typeof(content) = 'text'"
        f" AND substr(CAST(content AS BLOB), 1, {len(MARKER)}) = X'{MARKER.encode().hex()}'",
        batch=8,
    )
    for (content,) in rows:
        digest = hashlib.blake2b(content, digest_size=16).digest()
        messages += 1
        total += len(content)
        repeated += len(content) if digest in seen else 0
        seen.add(digest)
    return ContentSizes(structured_messages=messages, structured_bytes=total, structured_repeated_bytes=repeated)
