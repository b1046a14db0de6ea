"""The pieces of messages that a summary may be made of: lines, sentences, pairs of a JSON body.

Invariant: a unit is a verbatim stretch of one text of its source, and no more than `MOST_CHARACTERS` of a source are
looked at: of more, each text gives its beginning, its end and stretches between, at places that only its length
decides.

Not for: choosing among them. Parsing JSON was rejected: a tool's body is often cut off or not quite JSON, and a value
decoded is no longer a stretch of what was stored.
"""

# ruff: noqa: RUF001  (the punctuation of Chinese and Japanese is meant)
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hermes_state.compaction.blobs import BYTES, text_in

Kind = Literal["user", "assistant", "tool", "call", "previous"]

MOST_CHARACTERS = 2_000_000  # of one source: at most some seconds of work; a view of 128K tokens has about 500,000
LONGEST_UNIT = 320           # characters; a longer line is split at white space, and one without any is encoded bytes
# Types of parts that have no text of their own: pictures, sounds, files, thoughts.
NO_TEXT = frozenset({
    "image", "image_url", "input_image", "input_audio", "audio", "file", "input_file", "document", "video", "video_url",
    "thinking", "redacted_thinking", "reasoning", "reasoning_content",
})
_STRETCHES = 16              # pieces that a text too long gives

_LINE = re.compile(r"[^\r\n]+")
_LINE_END = re.compile(r"\\[^nr\r\n]|(?:\\r)?\\n|\\r|[\r\n]+")  # in JSON, where an escaped backslash ends no line
_WRAPPER = re.compile(r"^[{\[\s]{0,20}\"[^\"\\]{1,40}\"\s{0,4}:\s{0,4}\"(?=.{60})")  # {"output": "a long text
_STAMP = re.compile(
    r"^\W{0,3}(?:[A-Z]\s?)?(?:\d{4}[-/]\d\d[-/]\d\d[T ]|[A-Z][a-z]{2}\s{1,2}\d{1,2}\s|\d\d/[A-Z][a-z]{2}/\d{4}:)?"
    r"(?:\d\d:\d\d:\d\d|\d{10})(?:[.,]\d{1,9})?(?:Z|\s?[+-]\d\d:?\d\d)?\]?\s+(?:\[?[A-Z]{4,8}\]?:?\s+)?(?=\S.{12})"
)  # the time and the level before a log line; they stay when little else follows
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[^\s])|(?<=[。！？；])")
_PAIR = re.compile(
    r"\"[^\"\\\r\n]{1,80}\"\s{0,4}:\s{0,4}(?:\"(?:[^\"\\\r\n]|\\.){0,300}\"|[^\s,{}\[\]\"]{1,200}|\[[^\[\]{}]{0,120}\])"
)
_PIECE = re.compile(rf"\S.{{0,{LONGEST_UNIT - 2}}}(?:(?=\s)|$)|\S{{1,{LONGEST_UNIT}}}\S*")
# Of text without spaces: up to its own punctuation, and never within a run of ASCII, which may be a value.
_UNSPACED = re.compile(r"[^，。；、！？\s]{1,120}[!-~]{0,240}[，。；、！？]?")


@dataclass(slots=True, frozen=True)
class Text:
    """One text of a source."""

    text: str
    kind: Kind
    message: int  # place of its message in the source


@dataclass(slots=True, frozen=True)
class Unit:
    """One stretch that may be kept."""

    text: str
    kind: Kind
    message: int
    order: int      # place among all units
    position: int   # place within its text, from 0
    json: bool      # a pair of a JSON body


def texts_of(messages: Sequence[dict[str, Any]]) -> list[Text]:
    """The texts of chat messages in OpenAI or Anthropic shape; what is not text (images, other types) is left out."""
    found: list[Text] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            continue
        kind: Kind = "user" if role == "user" else "assistant" if role == "assistant" else "tool"
        for text in _of_content(message.get("content"), kind):
            found.append(Text(text[0], text[1], number))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            found += [Text(text, "call", number) for text in _of_call(call)]
    return found


def plain_turns(messages: Sequence[dict[str, Any]]) -> frozenset[int]:
    """Places of the messages of turns without tools: what is answered there stands in the answer and nowhere else."""
    plain: list[int] = []
    turn: list[int] = []
    tools = False
    for number, message in enumerate([*messages, {"role": "user"}]):
        role, content = message.get("role"), message.get("content")
        parts = {part.get("type") for part in content if isinstance(part, dict) and isinstance(part.get("type"), str)} \
            if isinstance(content, list) else set()
        if role == "user" and "tool_result" not in parts:
            plain += [] if tools else turn
            turn, tools = [], False
        tools = tools or role not in ("user", "assistant", "system", "developer") or bool(message.get("tool_calls")) \
            or bool(parts & {"tool_use", "tool_result"})
        turn.append(number)
    return frozenset(plain)


def _of_content(content: Any, kind: Kind) -> Iterator[tuple[str, Kind]]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield part, kind
        elif isinstance(part, BYTES):
            text = text_in(part)
            if text is not None:
                yield text, kind
        elif isinstance(part, dict):
            sort = part.get("type") if isinstance(part.get("type"), str) else None
            if sort == "tool_result":
                yield from _of_content(part.get("content"), "tool")
            elif sort == "tool_use":
                yield from ((text, "call") for text in _of_call(part))
            elif isinstance(part.get("text"), str):
                yield part["text"], kind
            elif sort not in NO_TEXT:
                # Of a type that is not known here: a model is sent it as JSON.
                yield json.dumps(part, ensure_ascii=False, default=str), kind


def _of_call(call: Any) -> Iterator[str]:
    if not isinstance(call, dict):
        return
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else call.get("input", call.get("arguments"))
    if isinstance(arguments, str):
        yield arguments
    elif isinstance(arguments, dict):
        yield from (value for value in arguments.values() if isinstance(value, str))


def sampled(texts: Sequence[Text]) -> list[Text]:
    """The same texts when they are short enough together; else stretches of those that are longer than their share."""
    total = sum(len(text.text) for text in texts)
    if total <= MOST_CHARACTERS:
        return list(texts)
    share = MOST_CHARACTERS / total
    found = []
    for text in texts:
        wanted = max(2_000, int(len(text.text) * share))
        if len(text.text) <= wanted:
            found.append(text)
            continue
        size, step = wanted // _STRETCHES, (len(text.text) - wanted // _STRETCHES) // (_STRETCHES - 1)
        for number in range(_STRETCHES):
            found.append(Text(_whole_lines(text.text, number * step, size), text.kind, text.message))
    return found


def _whole_lines(text: str, start: int, size: int) -> str:
    """About `size` characters from `start`, without the halves of tokens at both ends."""
    end = min(len(text), start + size)
    while start > 0 and start < end and not text[start - 1].isspace():
        start += 1
    while end < len(text) and end > start and not text[end].isspace():
        end -= 1
    return text[start:end]


def units_of(texts: Sequence[Text]) -> Iterator[Unit]:
    """Every unit of the texts, in order."""
    order = 0
    for text in texts:
        head = text.text[:200].lstrip()
        structured = head[:1] in ("{", "[")
        prose = text.kind in ("user", "assistant")
        position = 0
        for line in _escaped_lines(text.text) if structured else (match[0] for match in _LINE.finditer(text.text)):
            for piece, pair in _pieces(line, structured, prose):
                yield Unit(piece, text.kind, text.message, order, position, pair)
                order += 1
                position += 1


def _escaped_lines(text: str) -> Iterator[str]:
    wrapper = _WRAPPER.match(text)
    start = wrapper.end() if wrapper is not None else 0
    for end in _LINE_END.finditer(text):
        if end[0][0] == "\\" and end[0][1] not in "nr":
            continue
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def _pieces(line: str, structured: bool, prose: bool) -> Iterator[tuple[str, bool]]:
    stripped = line.strip()
    if not stripped:
        return
    stamp = _STAMP.match(stripped)
    if stamp is not None:
        stripped = stripped[stamp.end() :]
    if stripped[0] in "{[" or structured or (len(stripped) > 80 and stripped.count('":') > 2):
        pairs = list(_PAIR.finditer(stripped))
        if pairs and (len(pairs) > 1 or len(pairs[0][0]) > len(stripped) - 12):
            yield from ((pair[0], True) for pair in pairs)
            return
    for sentence in _sentences(stripped) if prose or len(stripped) > 100 else (stripped,):
        if len(sentence) <= LONGEST_UNIT:
            yield sentence, False
        else:
            for piece in _PIECE.finditer(sentence):
                if len(piece[0]) <= LONGEST_UNIT:
                    yield piece[0], False
                elif not piece[0][:LONGEST_UNIT].isascii():
                    yield from ((part[0], False) for part in _UNSPACED.finditer(piece[0]))


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(line):
        piece = line[start : end.start()].strip()
        # "No. 4" and "e.g. this" are not ends of sentences; a sentence has three words, or is Chinese.
        if piece and (piece.count(" ") >= 2 or not piece.isascii()):
            yield piece
            start = end.end()
    if line[start:].strip():
        yield line[start:].strip()

