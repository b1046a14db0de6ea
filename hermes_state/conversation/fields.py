"""From what a caller gives to what a row holds: checked, encoded and measured before any lock is taken.

Invariant: whatever passes here can be stored, and reads back as it was given. Only the type column says what a content
is: a text that begins like some program's marker stays that text. Lone surrogates, which UTF-8 has no bytes for,
become U+FFFD. A time is finite and within the years 1970 to 9999.

Not for: what is already in the store. Encoding structured content into marked text, as hermes-agent does, was rejected:
a user can type the marker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes_state import json_values
from hermes_state.conversation.records import CARRIED_FROM
from hermes_state.conversation.row_check import Raw, named_texts, raw_bytes
from hermes_state.conversation.session_rows import scrub
from hermes_state.errors import InvalidInput

ROLES = frozenset({"user", "assistant", "tool", "system", "developer"})
LATEST_TIME = 253_402_300_800.0  # 10000-01-01T00:00:00Z
_new = tuple.__new__  # what a NamedTuple's own call ends in, a third faster
_INTEGERS = range(-(2**63), 2**63)  # what SQLite can hold


class Encoded(NamedTuple):
    """One message, ready to be stored. A tuple because one is made for every append: 0.3 us instead of 2.

    `content` is the body's bytes for the check and the hash, `raw` the value for the column; `named` is what
    `row_check.named_texts` makes of the texts; `calls` is the number of tool calls in it.
    """

    role: str
    content_type: str | None
    raw: Raw
    content: bytes
    calls: int
    tool_name: str | None
    tool_call_id: str | None
    tool_calls: str | None
    finish_reason: str | None
    token_count: int | None
    reasoning: str | None
    platform_message_id: str | None
    client_key: str | None
    at: float
    extra: str | None
    named: str


def encode(
    now: float, role: str, content: Any = None, tool_calls: list[Any] | str | None = None,
    tool_call_id: str | None = None, tool_name: str | None = None, finish_reason: str | None = None,
    token_count: int | None = None, reasoning: str | None = None, platform_message_id: str | int | None = None,
    client_key: str | None = None, at: float | None = None, extra: Mapping[str, Any] | None = None,
) -> Encoded:
    """Check and encode one message; `now` is its time when `at` is None. Raises `InvalidInput` naming the argument."""
    if type(role) is not str or role not in ROLES:
        raise _invalid("role", f"is one of {', '.join(sorted(ROLES))}, not {role!r}")
    content_type: str | None
    raw: Raw
    if type(content) is str:
        content_type, raw = "text", content
        try:
            body = content.encode()
        except UnicodeEncodeError:
            raw = scrubbed = scrub(content)
            body = scrubbed.encode()
    elif content is None:
        content_type, raw, body = None, None, b""
    else:
        content_type, raw = encode_content(content)
        body = raw_bytes(raw)
    at = now if at is None and 0.0 <= now < LATEST_TIME else time_of(now if at is None else at)
    if (
        None is tool_calls is tool_call_id is tool_name is finish_reason is reasoning is platform_message_id
        and client_key is None and extra is None and token_count is None
    ):
        return _new(
            Encoded, (role, content_type, raw, body, 0, None, None, None, None, None, None, None, None, at, None, "")
        )
    calls_text, calls = (None, 0) if tool_calls is None else encode_calls(tool_calls)
    if token_count is not None and (type(token_count) is not int or token_count not in _INTEGERS):
        raise _invalid("token_count", f"is a whole number, not {token_count!r}")
    # Most are None: a call for each would cost more than all the rest.
    tool_name = None if tool_name is None else text_of("tool_name", tool_name)
    tool_call_id = None if tool_call_id is None else text_of("tool_call_id", tool_call_id)
    finish_reason = None if finish_reason is None else text_of("finish_reason", finish_reason)
    reasoning = None if reasoning is None else text_of("reasoning", reasoning)
    platform_id = None if platform_message_id is None else key_of("platform_message_id", platform_message_id)
    client_key = None if client_key is None else key_of("client_key", client_key)
    extra_text = None if not extra else to_json("extra", dict(extra))
    named = named_texts(
        tool_name, tool_call_id, calls_text, finish_reason, reasoning, platform_id, client_key, extra_text
    )
    return _new(Encoded, (
        role, content_type, raw, body, calls, tool_name, tool_call_id, calls_text, finish_reason, token_count,
        reasoning, platform_id, client_key, at, extra_text, named,
    ))


def encode_content(content: Any) -> tuple[str | None, Raw]:
    """Type and raw value of a content: `(None, None)`, text, bytes, number, or JSON for lists, dicts and booleans."""
    if content is None:
        return None, None
    if isinstance(content, str):
        return "text", scrub(str.__str__(content))  # str() of a text enumeration would be its name
    if isinstance(content, (bytes, bytearray, memoryview)):
        return "bytes", bytes(content)
    if isinstance(content, bool) or (isinstance(content, int) and content not in _INTEGERS):
        return "json", to_json("content", content)
    if isinstance(content, (int, float)):
        if content != content:
            raise _invalid("content", "is not a number that can be stored: NaN")
        # SQLite keeps no negative zero: + 0.0 makes it the positive one.
        return "number", float(content) + 0.0 if isinstance(content, float) else int(content)
    if isinstance(content, (list, tuple, dict)):
        return "json", to_json("content", content)
    raise _invalid("content", f"is text, bytes, a number, a list, a dict or None, not {type(content).__name__}")


def encode_calls(tool_calls: Any) -> tuple[str | None, int]:
    """JSON text and number of tool calls, given as a list or as its JSON text; none at all is NULL and 0."""
    if tool_calls is None:
        return None, 0
    if isinstance(tool_calls, str):
        text = scrub(tool_calls)
        try:
            parsed = json_values.load(text)
        except ValueError as error:
            raise _invalid("tool_calls", f"is a list or the JSON of one; this is not JSON ({error})") from error
        if parsed is not None and not isinstance(parsed, list):
            raise _invalid("tool_calls", f"is a list or the JSON of one, not the JSON of a {type(parsed).__name__}")
        if "\\ud" in text.lower():  # an escaped surrogate; a lone one would come back with the parsed list
            text = to_json("tool_calls", parsed)
        return (text, len(parsed)) if parsed else (None, 0)
    if not isinstance(tool_calls, (list, tuple)):
        raise _invalid("tool_calls", f"is a list or the JSON of one, not {type(tool_calls).__name__}")
    return (to_json("tool_calls", tool_calls), len(tool_calls)) if tool_calls else (None, 0)


def to_json(name: str, value: Any) -> str:
    """Compact JSON of `value`, not escaped to ASCII. Raises `InvalidInput` for what JSON cannot say, NaN included."""
    try:
        text = json_values.dump(value)
    except ValueError as error:
        raise _invalid(name, f"cannot be written as JSON ({error})") from error
    return scrub(text)


def refuse_reserved(extra: object) -> None:
    """Raise `InvalidInput` for a field of `extra` that hides a message from people."""
    if isinstance(extra, Mapping) and CARRIED_FROM in extra:
        raise InvalidInput(
            f"extra has {CARRIED_FROM}, by which only a compression marks what it repeats.",
            hint="Nothing was stored.", argument="extra",
        )


def time_of(at: Any) -> float:
    """A message's time as epoch seconds UTC. Raises `InvalidInput` for what is no finite time from 1970 to 9999."""
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not math.isfinite(at) or not 0 <= at < LATEST_TIME:
        raise _invalid("at", f"is epoch seconds from 0 to {LATEST_TIME:.0f} (years 1970 to 9999), not {at!r}")
    return float(at) + 0.0  # SQLite keeps no negative zero


def text_of(name: str, value: Any) -> str | None:
    """A text argument with surrogates scrubbed."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid(name, f"is text, not {type(value).__name__}")
    return scrub(value)


def key_of(name: str, value: Any) -> str | None:
    """A key argument: text that is not empty. A whole number is taken as its digits, as chat platforms give them."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError as error:
            raise _invalid(name, "has too many digits") from error
    key = text_of(name, value)
    if key == "":
        raise _invalid(name, "is not empty")
    return key


def _invalid(name: str, what: str) -> InvalidInput:
    return InvalidInput(f"{name} {what}.", hint="Nothing was stored.", argument=name)
