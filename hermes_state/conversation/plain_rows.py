"""The quick way from a plain message to its row: checked, encoded, measured and covered by its check in one step.

Invariant: `plain_row` gives what `append.tail_of` makes of `fields.encode`, or None for whatever is not plain, errors
included: then that way is taken, which says what is wrong. Plain is a text content, no key, no extra, texts that are
just `str`: nearly all of what a conversation consists of.

Not for: a second meaning of anything. One way for all was rejected: it took 206 microseconds of Python for fifty rows
of a conversation instead of 150, and nearly every message is plain.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hermes_state.conversation.bodies import OWN_BYTES, Frame
from hermes_state.conversation.fields import LATEST_TIME, ROLES
from hermes_state.conversation.row_check import (
    HASHED_BYTES,
    digest,
    hashed_check,
    head_of,
    named_texts,
    stamp,
    text_check,
)
from hermes_state.json_values import ENCODER
from hermes_state.json_values import check as check_json

Tail = tuple[Any, ...]  # the parameters of a row but id, session_no, seq and calls, in the order of `append.INSERT`
Plain = tuple[int, Tail, "Frame | None", None]
PLAIN_SIZE = 10  # parameters in the `Tail` of a plain row, which ends before what is the same in all of them
_HEADS = {role: head_of(role, "text", None) for role in ROLES}
_SHORT = HASHED_BYTES // 4  # so many characters are less than HASHED_BYTES whichever they are
_frame = tuple.__new__  # what a NamedTuple's own call ends in, a third faster


def _json_writer() -> Callable[[Any], str]:
    """`ENCODER.encode` with its C part, where there is one, made once and not for each call: 1.0 us instead of 1.8."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return ENCODER.encode
    # None: no memory of what it is inside of, so that threads can share it. A list that contains itself is too deep.
    pieces = make(
        None, ENCODER.default, json.encoder.encode_basestring, None, ENCODER.key_separator, ENCODER.item_separator,
        ENCODER.sort_keys, ENCODER.skipkeys, ENCODER.allow_nan,
    )
    return lambda value: "".join(pieces(value, 0))


_to_json = _json_writer()


def plain_row(
    session_no: int, now: float, stamped: bytes, role: Any, content: Any = None, tool_calls: Any = None,
    tool_call_id: Any = None, tool_name: Any = None, finish_reason: Any = None, token_count: Any = None,
    reasoning: Any = None, platform_message_id: Any = None, client_key: Any = None, at: Any = None, extra: Any = None,
) -> Plain | None:
    """Tool calls, row and frame of a plain message, None when it is not plain. `stamped`: the stamp of `now`."""
    if (
        type(content) is not str or type(role) is not str or role not in _HEADS or client_key is not None
        or platform_message_id is not None or extra is not None
    ):
        return None
    head = _HEADS[role]
    if at is None:
        at = now
    elif type(at) is float and 0.0 < at < LATEST_TIME:
        stamped = stamp(session_no, at)
    else:
        return None
    calls, calls_text, named = 0, None, ""
    if not (None is tool_calls is tool_name is tool_call_id is finish_reason is reasoning is token_count):
        if tool_calls is not None:
            if type(tool_calls) is not list or not tool_calls:
                return None
            try:
                check_json(tool_calls)
                calls, calls_text = len(tool_calls), _to_json(tool_calls)
            except (TypeError, ValueError, RecursionError):
                return None
        for text in (tool_name, tool_call_id, finish_reason, reasoning):
            if text is not None and type(text) is not str:
                return None
        if token_count is not None:
            if type(token_count) is not int or not -(2**63) <= token_count < 2**63:
                return None
            head = head_of(role, "text", token_count)
        named = named_texts(tool_name, tool_call_id, calls_text, finish_reason, reasoning, None, None, None)
    frame = None
    try:
        if len(content) < _SHORT or len(body := content.encode()) < HASHED_BYTES:
            check = text_check(stamped, head, named, content)
        else:
            size, hash_ = len(body), digest(body)
            check = hashed_check(stamped, head, named, size, hash_)
            frame = _frame(Frame, (hash_, body, None, content, "text", size >= OWN_BYTES))
    except UnicodeEncodeError:
        return None
    return calls, (
        role, content, at, check, tool_name, tool_call_id, calls_text, finish_reason, token_count, reasoning
    ), frame, None
