"""What a summariser is asked.

Invariant: a request fits the summariser's own window with its reply, by the counter. When it can, it is the live
request up to the cut with the instruction last, so that a server has all but the instruction in its cache; what is sent
has no tool row without its call and no call without its result. Else it is text in parts, each with the summary of the
parts before it.

Not for: sending (see `callers`) or judging the answer (see `checked`). Sending only the newest tokens that fit was
rejected: what was said first never reaches the prompt then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.compaction.late import as_sent
from hermes_state.compaction.summary.checked import cut_at_line
from hermes_state.compaction.summary.chunks import parts_of
from hermes_state.compaction.summary.prompts import CHUNK, CHUNK_SYSTEM, INSTRUCTION, PREVIOUS
from hermes_state.compaction.tokens import TokenCounter, as_counter, request_tokens
from hermes_state.conversation.pairing import pair
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS_A_TOKEN = 0.6   # models count words better than tokens; English has about 0.75, values in a summary make it less
_LEAST_ROOM = 256      # tokens of text in one part: below it a summary costs more requests than it is worth
_MARGIN = 16           # tokens that a chat template puts around a request


@dataclass(frozen=True, kw_only=True)
class SummaryRequest:
    """One request to a summariser: send `messages` as they are, with `max_tokens` as the limit of the reply."""

    kind: Literal["extension", "chunk"]   # extension: the live request, instruction last; chunk: flattened text
    messages: Sequence[dict[str, Any]]    # OpenAI chat shape, complete
    max_tokens: int                       # hard limit of the summary, by the counter
    window: int                           # the summariser's own window, tokens
    previous: str | None                  # the summary so far, which `messages` has already; None: none
    part: int                             # 1, 2, ... parts
    parts: int                            # requests that make this summary together, in order
    _text: str = field(default="", repr=False)
    _count: Callable[[str], int] = field(default=len, repr=False, compare=False)

    def continued(self, summary: str) -> SummaryRequest:
        """This part with `summary`, the answer to the part before it, as the summary so far; the rest is as it was.

        A `summary` above `max_tokens` is cut at a line. An extension has one part only and gives itself.
        """
        if self.kind == "extension":
            return self
        so_far = cut_at_line(summary, self.max_tokens, self._count)
        messages = _chunk_messages(self._text, so_far, self.part, self.parts, self.max_tokens)
        return replace(self, messages=messages, previous=so_far or None)

    def prompt_digest(self) -> str:
        """SHA-256 of what is sent, in hex: the column `prompt_digest`."""
        return hashlib.sha256(repr([sorted(message.items(), key=str) for message in self.messages]).encode(
            "utf-8", "surrogatepass")).hexdigest()


# A function with an attribute `name` is recorded under it in the column `summarizer`, else under its `__name__`.
Summarizer = Callable[[SummaryRequest], "str | Awaitable[str]"]


def name_of(summarizer: Summarizer) -> str:
    """What the column `summarizer` holds for a function."""
    given = getattr(summarizer, "name", None) or getattr(summarizer, "__name__", None)
    return str(given or type(summarizer).__qualname__)


def requests_for(
    view_messages: Sequence[dict[str, Any]], start: int, end: int, *, budget: int, own_window: int,
    counter: TokenCounter | Callable[[str], int] | None = None, previous: str | None = None,
    system: Mapping[str, Any] | None = None, fixed_tokens: int = 0,
) -> Sequence[SummaryRequest]:
    """The requests, in order, that summarise `view_messages[start:end]` in at most `budget` tokens.

    One of kind 'extension' when the live request up to `end`, the instruction and the reply fit `own_window`.
    `fixed_tokens` is what the caller sends besides (system prompt and tool schemas); `system`, when given, is put
    first. Else chunks: answer them in order, each after the first as `request.continued(answer before it)`; the last
    answer is the summary. `previous` is the summary that stands at the head of the view; an extension has it in its
    messages already. Empty when `start == end`. `InvalidInput` when `own_window` has no room for any part.
    """
    if start >= end:
        return ()
    counting = as_counter(counter)
    extension = _extension(view_messages, end, budget, previous, system)
    if fixed_tokens + request_tokens(extension, counting) + budget + _MARGIN <= own_window:
        return (SummaryRequest(
            kind="extension", messages=extension, max_tokens=budget, window=own_window, previous=previous,
            part=1, parts=1,
        ),)
    frame = request_tokens(_chunk_messages("", "x", 10, 10, budget), counting)
    room = own_window - 2 * budget - frame - _MARGIN
    if room < _LEAST_ROOM:
        raise InvalidInput(
            f"A summariser with a window of {own_window} tokens has no room for a conversation beside a summary of"
            f" {budget} tokens and the instruction ({frame}).",
            hint="Use a summariser with a larger window, or the extractive one, which needs none.",
            window=own_window, needed=2 * budget + frame + _MARGIN + _LEAST_ROOM,
        )
    texts = parts_of(view_messages[start:end], room, counting.count)
    return tuple(
        SummaryRequest(
            kind="chunk", max_tokens=budget, window=own_window, previous=None, part=number, parts=len(texts),
            messages=_chunk_messages(text, "", number, len(texts), budget), _text=text, _count=counting.count,
        ).continued(previous or "" if number == 1 else "")
        for number, text in enumerate(texts, 1)
    )


def _extension(
    view: Sequence[dict[str, Any]], end: int, budget: int, previous: str | None,
    system: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The view up to `end`, as it is sent live, and the instruction as or in the last user message."""
    copies = [dict(message) for message in view[:end]]
    paired = pair(copies)
    if len(paired) == len(copies) and all(one is two for one, two in zip(paired, copies, strict=True)):
        # Nothing to mend: sent as the view has it, byte for byte, or the server's cache is of no use.
        paired = list(view[:end])
    paired = as_sent(paired, previous)
    while paired and paired[-1].get("tool_calls"):
        # A call without its result at the very end: an open group, which the cut never falls into; refused by servers.
        paired.pop()
    if system is not None:
        paired.insert(0, dict(system))
    instruction = INSTRUCTION.format(words=int(budget * _WORDS_A_TOKEN), tokens=budget)
    last = paired[-1] if paired else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        paired[-1] = {**last, "content": last["content"] + "\n\n" + instruction}
    elif last.get("role") == "user" and isinstance(last.get("content"), list):
        paired[-1] = {**last, "content": [*last["content"], {"type": "text", "text": instruction}]}
    else:
        paired.append({"role": "user", "content": instruction})
    return paired


def _chunk_messages(text: str, previous: str, part: int, parts: int, budget: int) -> list[dict[str, Any]]:
    # The mark depends on the text, so that no text can hold its own end and go on as if it were the instruction.
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return [
        {"role": "system", "content": CHUNK_SYSTEM},
        {"role": "user", "content": CHUNK.format(
            part=part, parts=parts, mark=mark, text=text, words=int(budget * _WORDS_A_TOKEN), tokens=budget,
            previous=PREVIOUS.format(mark=mark, text=previous) if previous else "",
            previous_words="what the summary so far says, unless this part changed it, and " if previous else "",
        )},
    ]
