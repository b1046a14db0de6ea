"""How much a line deserves a place.

Invariant: a score is made of what the source itself shows: new words and values, a form unlike its neighbours, a place
in what people or the assistant said, a later mention; marks of an assignment, a sentence or an error add a little. No
single word decides.

Not for: length: that is weighed when lines compete for tokens (see `choose`).
"""

# ruff: noqa: RUF001  (the punctuation of Chinese and Japanese is meant)
from __future__ import annotations

import re
from collections import Counter

from hermes_state.compaction.summary.extractive.novelty import NEW_VALUE, NEW_WORD, Line, Source, form_of

_SHAPE = re.compile(r"[^\W\d_]+|\d+|\s+")
_ASSIGNED = re.compile(r"[\w\"'\])]\s{0,3}(?:=|:|->|=>|：|是|は)\s{0,3}[^\s=:]")
ERROR = re.compile(
    r"(?i)\b(?:error|exception|traceback|failed|failure|fatal|panic|refused|denied|timed out|timeout|not found"
    r"|abort(?:ed)?|segfault|unreachable|exit (?:code|status) [1-9])|错误|失败|异常|エラー|失敗|오류|실패"
)
_ANSWER = 0.3  # for the first and the last sentence of an answer, and for one that concludes
OPEN = re.compile(
    r"(?i)\b(?:todo|fixme|to do|next (?:step|up)|remaining|still (?:need|has|have|to|open|missing)|pending"
    r"|not yet|left to do|needs? to|must (?:still )?be|should (?:still|also)|unresolved|blocked|follow[- ]?up"
    r"|later we)|- \[ \]|待办|尚未|还需|未完|未対応|残り"
)
CONCLUDED = re.compile(
    r"(?i)\b(?:because|so (?:we|the|it|i)\b|therefore|root cause|turns? out|caused by|decid(?:ed|e|ing)"
    r"|conclu|fixed|works? now|resolved|chose|instead of|will use|use[sd]? .{1,30} not"
    r"|the (?:reason|cause|fix|problem) (?:is|was)|confirmed|verified|found (?:that|out|the)|done)"
    r"|决定|因为|所以|结论|原因|決定|原因は|結論|결정|원인"
)


def scored(source: Source, messages: int) -> None:
    """Give every line of `source` its score, 0 to about 2."""
    shapes: Counter[tuple[int, str]] = Counter()
    sizes: Counter[int] = Counter()
    mentioned: dict[str, int] = {}
    newest = max((line.unit.message for line in source.lines if line.unit.kind == "user"), default=-1)
    shape_of = [_shape(line.unit.text) for line in source.lines]
    for line, shape in zip(source.lines, shape_of, strict=True):
        shapes[line.unit.message, shape] += line.copies
        sizes[line.unit.message] += line.copies
        if line.unit.kind in ("user", "assistant"):
            for token in line.tokens:
                if token.value:
                    mentioned[token.key] = line.unit.message
    for line, shape in zip(source.lines, shape_of, strict=True):
        source.weigh(line)
        unit = line.unit
        size = sizes[unit.message]
        contrast = 1 - shapes[unit.message, shape] / size if size >= 6 else 0.3
        later = any(
            token.value and novelty > 0.2 and mentioned.get(token.key, -1) > unit.message
            for token, novelty in zip(line.tokens, line.novelty, strict=True)
        )
        score = _news(line) * (0.7 + 0.3 * source.rarity(line.copies))
        score *= 0.4 + 0.6 * source.rarity(source.forms[form_of(line)])
        score += 0.22 * contrast * min(1.0, score * 2)
        score += 0.15 * later + 0.06 * bool(_ASSIGNED.search(unit.text)) + 0.08 * _sentence(line)
        score += {"user": 0.25, "assistant": 0.15, "tool": 0.0, "call": -0.1, "previous": 0.2}[unit.kind]
        if line.plain and unit.kind == "assistant" and _brings(line):
            # As much as what was asked, and the sentence that answers before those around it.
            score += 0.1 + _ANSWER * (line.ends or bool(CONCLUDED.search(unit.text)))
        elif unit.kind in ("user", "assistant") and line.copies >= 3:
            score *= 0.7 if line.last else 0.35  # the same sentence with other numbers, again and again
        score += 0.2 * (unit.message == newest)
        score += 0.03 * (unit.message + 1) / max(1, messages)
        line.score = score


def _brings(line: Line) -> bool:
    """Whether a line has a value or a word that is news: an answer in words of which all were said tells nothing."""
    return any(
        novelty >= (NEW_VALUE if token.value else NEW_WORD)
        for token, novelty in zip(line.tokens, line.novelty, strict=True)
    )


def _news(line: Line) -> float:
    values = sorted((n for t, n in zip(line.tokens, line.novelty, strict=True) if t.value), reverse=True)
    words = sorted((n for t, n in zip(line.tokens, line.novelty, strict=True) if not t.value), reverse=True)
    text = line.unit.text
    later = zip(line.tokens[1:], line.novelty[1:], strict=True)
    named = max((novelty for token, novelty in later if token.word and text[token.start].isupper()), default=0.0)
    value = max(values[0] if values else 0.0, 0.85 * named)
    if not words:
        words = values[1:]  # key and value that both look like values: retry_limit: 40
    if not words:
        return 0.5 * value
    mean = sum(words[:3]) / min(3, len(words)) if len(words) >= 2 else 0.7 * words[0]
    return 0.55 * value + 0.55 * mean


def _sentence(line: Line) -> bool:
    """Words rather than columns: people write like that, programs seldom do."""
    words = sum(1 for token in line.tokens if token.word)
    return words >= 4 and words >= 0.6 * len(line.tokens) and not line.unit.text[:1].isdigit()


def _shape(text: str) -> str:
    """The first marks of a line with letters and digits told apart only."""
    return _SHAPE.sub(_class_of_run, text[:24])[:10]


def _class_of_run(match: re.Match[str]) -> str:
    first = match[0][0]
    return "a" if first.isalpha() else "0" if first.isdigit() else " "
