"""Whether an error of a model server means "too long for my window", and which numbers it names.

Invariant: only a server that says so refuses for length. Fields are read first; a sentence counts only when it begins
the error's message, is one that a named server is known to send, and the status is one of a bad request. Everything
else is no refusal: a crash (HTTP 500), bad tool arguments, a missing key, a rate limit, whatever words they use.

Not for: answers that came (see `shortfall`). Searching the body for "context" was rejected: it took a crash of a local
model, and a 400 about tool arguments that quoted the conversation, for an overflow, and compacted until nothing was
left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hermes_state.compaction.windows.records import LARGEST, SMALLEST, Refusal

# Never about length, whatever the body says: no key, no right, no such model, too many requests.
_OTHER_CAUSES = frozenset({401, 402, 403, 404, 405, 407, 408, 409, 429})
# A sentence alone is believed with these; servers that answer 5xx for it name a type or code.
_BAD_REQUEST = frozenset({400, 413, 422})
# Of a body; error objects are short, and a page of a proxy is no error object.
_LONGEST_BODY = 65_536
_LONGEST_MESSAGE = 2_000
# Servers and gateways put one error into the text of another.
_DEEPEST = 4

_LLAMA_TYPE = "exceed_context_size_error"
_CODES = frozenset({"context_length_exceeded", "model_context_window_exceeded", "context_window_exceeded"})


class _Sentence(NamedTuple):
    """One sentence of one server. Groups: `prompt`, `window`, `reply`, `total`, each where it is named."""

    server: str
    pattern: re.Pattern[str]


def _sentence(server: str, pattern: str) -> _Sentence:
    for group in ("prompt", "window", "reply", "total"):
        pattern = pattern.replace(f"<{group}>", rf"(?P<{group}>\d[\d,]{{0,14}})")
    return _Sentence(server, re.compile(pattern, re.IGNORECASE))


# Each is matched at the beginning of a message only, and has no part that could match in two ways.
_SENTENCES = (
    # llama.cpp server, tools/server: also where a proxy kept the message only
    _sentence(
        "llama-server", r"(?:the )?request \(<prompt> tokens\) exceeds the available context size \(<window> tokens\)"
    ),
    # vLLM, renderers and serving_engine, oldest form last
    _sentence(
        "vllm",
        r"You passed <prompt> input tokens and requested <reply> output tokens\. However, the model's context length"
        r" is only <window> tokens",
    ),
    _sentence(
        "vllm",
        r"This model's maximum context length is <window> tokens\. However, you requested <reply> output tokens and"
        r" your prompt contains at least <prompt> input tokens",
    ),
    _sentence(
        "vllm",
        r"'max_tokens' or 'max_completion_tokens' is too large: <reply>\. This model's maximum context length is"
        r" <window> tokens and your request has <prompt> input tokens",
    ),
    _sentence(
        "vllm",
        r"This model's maximum context length is <window> tokens\. However, your request has <prompt> input tokens",
    ),
    _sentence(
        "vllm", r"The (?:decoder )?prompt \(length <prompt>\) is longer than the maximum model length of <window>"
    ),
    # OpenAI, vLLM up to 0.8, OpenRouter
    _sentence(
        "openai",
        r"This (?:model|endpoint)'s maximum context length is <window> tokens[.,] However,? you requested (?:about )?"
        r"<total> tokens \(<prompt> (?:in|of) (?:the messages|your prompt|text input)"
        r"(?:, <reply> in the (?:completion|output))?",
    ),
    _sentence(
        "openai",
        r"This (?:model|endpoint)'s maximum context length is <window> tokens[.,] However,? (?:you requested"
        r" (?:about )?|your messages resulted in )<prompt> tokens",
    ),
    # LM Studio
    _sentence(
        "lm-studio",
        r"Trying to keep the first <prompt> tokens when (?:the )?context (?:the )?overflows\. However, the model is"
        r" loaded with context length of only <window> tokens",
    ),
    # Anthropic
    _sentence("anthropic", r"prompt is too long: <prompt> tokens > <window> maximum"),
    _sentence(
        "anthropic", r"input length and `max_tokens` exceed context limit: <prompt> \+ <reply> > <window>\b"
    ),
    # Ollama: names neither the prompt nor the window, only the difference
    _sentence("ollama", r"prompt too long; exceeded max context length by \d{1,12} tokens"),
    # Text Generation Inference
    _sentence(
        "tgi", r"`inputs` tokens \+ `max_new_tokens` must be <= <window>\. Given: <prompt> `inputs` tokens and <reply>"
    ),
    # Gemini
    _sentence(
        "gemini", r"The input token count \(?<prompt>\)? exceeds the maximum number of tokens allowed \(?<window>\b"
    ),
)


def refusal_of(status: int, body: str | bytes | Mapping[str, Any] | None) -> Refusal | None:
    """The refusal that an HTTP error is, or None when it has another cause or says none.

    `body`: as it came, or already parsed. Never raises for what a server may send; at most 64 KB are looked at.
    """
    if status in _OTHER_CAUSES:
        return None
    for error in _errors(body, 0):
        found = _by_fields(error, status) or _by_sentence(error, status)
        if found is not None:
            return found
    return None


def _by_fields(error: Mapping[str, Any], status: int) -> Refusal | None:
    if error.get("type") == _LLAMA_TYPE:
        return Refusal(
            server="llama-server", prompt_tokens=_count(error.get("n_prompt_tokens")),
            window=_window(error.get("n_ctx")), reply_tokens=None, status=status, evidence=f"type {_LLAMA_TYPE}",
        )
    for field in ("code", "type"):
        code = error.get(field)
        if isinstance(code, str) and code in _CODES:
            said = _numbers(error)
            return Refusal(
                server=said[0] if said else "openai", prompt_tokens=said[1] if said else None,
                window=said[2] if said else None, reply_tokens=said[3] if said else None, status=status,
                evidence=f"{field} {code}",
            )
    return None


def _by_sentence(error: Mapping[str, Any], status: int) -> Refusal | None:
    if status not in _BAD_REQUEST:
        return None
    said = _numbers(error)
    if said is None:
        return None
    server, prompt, window, reply, sentence = said
    return Refusal(
        server=server, prompt_tokens=prompt, window=window, reply_tokens=reply, status=status, evidence=sentence
    )


def _numbers(error: Mapping[str, Any]) -> tuple[str, int | None, int | None, int | None, str] | None:
    """Server, prompt, window, reply and the sentence, when the message begins with one that is known."""
    message = error.get("message")
    if not isinstance(message, str):
        return None
    text = message.strip()[:_LONGEST_MESSAGE]
    for server, pattern in _SENTENCES:
        match = pattern.match(text)
        if match is not None:
            groups = match.groupdict()
            prompt, window, reply = (_number(groups.get(name)) for name in ("prompt", "window", "reply"))
            return server, _count(prompt), _window(window), _count(reply), match.group(0)
    return None


def _errors(body: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The error objects in a body, innermost first: `error` may be an object, a text, or a text that is JSON again."""
    if depth > _DEEPEST:
        return
    if isinstance(body, (bytes, bytearray)):
        body = bytes(body[:_LONGEST_BODY]).decode("utf-8", "replace")
    if isinstance(body, str):
        text = body[:_LONGEST_BODY].strip()
        if text.startswith("data:"):  # one event of a stream
            text = text[5:].partition("\n")[0].strip()
        if not text.startswith(("{", "[")):
            if depth:
                yield {"message": text}
            return
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return
    if isinstance(body, (list, tuple)):
        for one in body[:4]:
            yield from _errors(one, depth + 1)
        return
    if not isinstance(body, Mapping):
        return
    if "error" in body:
        yield from _errors(body["error"], depth + 1)
    if depth or isinstance(body.get("message"), str):
        yield body
    message, metadata = body.get("message"), body.get("metadata")
    if isinstance(message, str) and message.lstrip().startswith("{"):
        yield from _errors(message, depth + 1)
    if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), (str, Mapping)):  # OpenRouter
        yield from _errors(metadata["raw"], depth + 1)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text.replace(",", ""))


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= LARGEST else None


def _window(value: Any) -> int | None:
    return value if type(value) is int and SMALLEST <= value <= LARGEST else None
