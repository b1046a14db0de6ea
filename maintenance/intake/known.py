"""Whether a message that comes in is one that the session has already.

Invariant: the same message is never there twice and another one under a used key is never lost: it gets the key with a
hash of itself behind it. What counts as the same: the same key and the same content, or, for a row that has no key of
this kind (it was written here, or came by adoption), the same content and time. Content is what was said; `extra` and
how JSON is spaced do not count.

Not for: writing. Comparing texts without times was rejected: people do say "yes" twice.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.conversation import bodies
from hermes_state.conversation.fields import Encoded, encode, to_json
from hermes_state.conversation.row_check import Raw, check_of, named_texts, raw_bytes
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.intake.model import IncomingMessage

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_ROWS = (
    "SELECT content_type, content, body_no, seq, role, tool_name, tool_call_id, tool_calls, finish_reason, token_count,"
    " reasoning, created_at, client_key FROM messages WHERE session_no = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """What a message is to the session."""

    key: str  # the key it has, or would get
    seq: int | None  # its number when it is there; None when it is new
    diverged: bool  # its own key says something else here


class Known:
    """The messages of one session, by key and by content."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._keys: dict[str, tuple[int, int]] = {}
        self._loose: defaultdict[int, deque[int]] = defaultdict(deque)
        self._aliases: dict[str, int] = {}  # key in the source -> number here, where the row here has another key
        self._taken: set[int] = set()

    @classmethod
    def read(cls, reader: Reader, session_no: int, namespace: str) -> Known:
        """The rows of a session; 8 bytes of each are kept, read page by page."""
        known = cls(namespace)
        after = 0
        while rows := reader.rows(_ROWS, (session_no, after, _AT_ONCE)):
            if int(rows[-1][3]) <= after:  # a damaged tree: to go on from here would be to go round for ever
                raise Corrupt(
                    f"The messages of {reader.path} are not in their order: the database file is damaged.",
                    hint="Run `hermes-state doctor --db "
                    f"{shell_word(reader.path)}`.", path=reader.path, search_index=False,
                )
            for row, raw in zip(rows, bodies.read_contents(reader, [row[:3] for row in rows]), strict=True):
                after = int(row[3])
                print_ = _stored_print(row, raw)
                key = row[12]
                if key is not None:
                    known._keys[key] = (print_, after)
                if key is None or not key.startswith(namespace):
                    known._loose[print_].append(after)
        return known

    def expect(self, planned: Iterable[tuple[str, int]]) -> None:
        """Messages that other files would bring before, by key and content hash."""
        for number, (key, print_) in enumerate(planned, 1):
            if key in self._keys:
                continue
            self._keys[key] = (print_, -number)
            if not key.startswith(self._namespace):
                self._loose[print_].append(-number)

    def match(self, message: Encoded, fingerprint: int) -> Match:
        """What this message is. One row here is the match of one message only."""
        key = str(message.client_key)
        found = self._keys.get(key)
        if found is not None and found[0] == fingerprint:
            return self._same(key, found[1], diverged=False)
        if found is not None:
            other = f"{key}#{fingerprint & 0xFFFFFFFFFFFFFFFF:016x}"
            known = self._keys.get(other)
            return Match(key=other, seq=None, diverged=True) if known is None else self._same(other, known[1], True)
        loose = self._loose.get(fingerprint)
        while loose:
            seq = loose.popleft()
            if seq not in self._taken:
                self._aliases[key] = seq
                return self._same(key, seq, diverged=False)
        return Match(key=key, seq=None, diverged=False)

    def add(self, key: str, fingerprint: int, seq: int) -> None:
        """A message that is there now."""
        self._keys[key] = (fingerprint, seq)
        self._taken.add(seq)

    def seq_of(self, key: str) -> int | None:
        """The number of the message with this key in the source."""
        found = self._keys.get(key)
        return found[1] if found is not None else self._aliases.get(key)

    def has_taken(self, seq: int) -> bool:
        """Whether the message of this number is one of the source."""
        return seq in self._taken

    def _same(self, key: str, seq: int, diverged: bool) -> Match:
        self._taken.add(seq)
        return Match(key=key, seq=seq, diverged=diverged)


def encoded(message: IncomingMessage, now: float) -> Encoded:
    """A message ready to be stored under its key. Raises `InvalidInput` for what a store cannot hold."""
    return encode(
        now, message.role, message.content, message.tool_calls, message.tool_call_id, message.tool_name,
        message.finish_reason, message.token_count, message.reasoning, message.platform_message_id, message.key,
        message.at, message.extra,
    )


def fingerprint_of(message: Encoded) -> int:
    """Eight bytes of what a message says, with its time, without its keys."""
    return _print(
        message.role, message.content_type, message.content, message.tool_name, message.tool_call_id,
        message.tool_calls, message.finish_reason, message.token_count, message.reasoning, message.at,
    )


def _stored_print(row: tuple[Any, ...], raw: Raw) -> int:
    kind, _, _, _, role, tool_name, call_id, calls, finish, tokens, reasoning, at, _ = row
    content = raw_bytes(_spaced(raw) if kind == "json" else raw)
    return _print(role, kind, content, tool_name, call_id, _spaced(calls), finish, tokens, reasoning, at)


def _print(
    role: str, kind: str | None, content: bytes, tool_name: str | None, call_id: str | None, calls: str | None,
    finish: str | None, tokens: int | None, reasoning: str | None, at: float,
) -> int:
    named = named_texts(tool_name, call_id, calls, finish, reasoning, None, None, None)
    return check_of(0, role, kind, content, named, tokens, at)


def _spaced(text: Any) -> Any:
    """JSON as this project writes it, whoever wrote it before."""
    if not isinstance(text, str):
        return text
    try:
        return to_json("content", json.loads(text))
    except (ValueError, RecursionError):
        return text
