"""Tool results beside the calls they answer.

Invariant: in what a model is sent, every tool result follows the assistant message with its call, and every call but
those of a message at the very end has its result. A result whose call is not there is left out; a call in the middle
without a result gets one that says so, because providers refuse the whole request otherwise. Rows keep their order;
only a result that came late moves up to its call.

Ids are compared without surrounding white space and up to the first `|`: one call is `call_x|fc_y` in one place of the
Responses API and `call_x` in another. Local models number their calls anew in every turn, so an id means the nearest
call before the result that has none yet, and so does the name in a result without an id. Matching by tool name alone
was rejected: one message may call a tool twice.

Not for: repairing what is stored. This is a pure function of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NOT_RECORDED = "[The result of this tool call was not recorded.]"


def normal_id(call_id: Any) -> str:
    """What of a tool call id tells calls apart; empty when there is none."""
    return "" if call_id is None else str(call_id).strip().partition("|")[0].strip()


def pair(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages in order, with each call answered right after it. The dicts are used, not copied.

    Takes and gives OpenAI shape: `tool_calls` of assistant messages, `tool_call_id` and `name` of tool messages.
    """
    out: list[dict[str, Any]] = []
    # The calls of a message of `out`, by its place there; none for a message whose one call was answered right away.
    calls_of: dict[int, list[_Slot]] = {}
    waiting: list[_Slot] = []  # slots without a result, newest message last
    following = iter(messages)
    message = next(following, None)
    while message is not None:
        after = next(following, None)
        if message["role"] == "tool":
            slot = _slot_for(message, waiting)
            if slot is not None:
                slot.result = message
                waiting.remove(slot)
        else:
            out.append(message)
            calls = message.get("tool_calls")
            if calls:
                if after is not None and _answers_alone(after, calls):
                    out.append(after)
                    after = next(following, None)
                else:
                    slots = calls_of[len(out)] = [_Slot(call, len(out)) for call in calls]
                    waiting.extend(slots)
        message = after
    if not calls_of:
        return out
    paired: list[dict[str, Any]] = []
    for number, message in enumerate(out, 1):
        paired.append(message)
        for slot in calls_of.get(number, ()):
            if slot.result is not None:
                paired.append(slot.answer(slot.result))
            elif number < len(out):
                paired.append(slot.answer({"role": "tool", "content": NOT_RECORDED}))
    return paired


class _Slot:
    """One call of an assistant message, and its result when it came."""

    __slots__ = ("call_id", "id", "message", "name", "result")

    def __init__(self, call: Any, message: int) -> None:
        self.message = message
        fields = call if isinstance(call, dict) else {}
        self.call_id = fields.get("id") or fields.get("call_id")
        self.id = normal_id(self.call_id)
        self.name = _name_of(fields)
        self.result: dict[str, Any] | None = None

    def answer(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result under the very id that the call has, so that a provider sees them as a pair."""
        if self.call_id is not None:
            result["tool_call_id"] = self.call_id
        if self.name is not None:
            result.setdefault("name", self.name)
        return result


def _answers_alone(result: dict[str, Any], calls: Any) -> bool:
    """True when the message after a single call is its result, under the very same id; it has the call's name then.

    Nearly every call is like that, and its slot would be filled with that result: this takes a third of the time.
    """
    if result["role"] != "tool" or len(calls) != 1 or type(calls) is not list or type(calls[0]) is not dict:
        return False
    call, call_id = calls[0], calls[0].get("id")
    if type(call_id) is not str or result.get("tool_call_id") != call_id or not call_id[:1].isalnum():
        return False
    if "name" not in result:
        name = _name_of(call)
        if name is not None:
            result["name"] = name
    return True


def _name_of(call: dict[str, Any]) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, dict) else call.get("name")


def _slot_for(result: dict[str, Any], waiting: list[_Slot]) -> _Slot | None:
    wanted = normal_id(result.get("tool_call_id"))
    if wanted:
        near = next((slot for slot in reversed(waiting) if slot.id == wanted), None)
        return near and next(slot for slot in waiting if slot.message == near.message and slot.id == wanted)
    name = result.get("name")
    fitting = [slot for slot in waiting if name is None or slot.name in (None, name)]
    return next((slot for slot in fitting if slot.message == fitting[-1].message), None)
