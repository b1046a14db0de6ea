"""A summary that favours nobody: lines taken at even distances from the text, up to a size.

Invariant: it depends on the text and the size alone. Not for: a good summary. A model was rejected for the
deterministic metrics: what it writes differs from run to run, and they compare where policies cut and what they keep.
"""

from __future__ import annotations


def sampled(text: str, characters: int) -> str:
    """Lines of `text` at even distances, at most `characters` long together; each line at most 240 characters."""
    lines = [line.strip()[:240] for line in text.splitlines() if line.strip()]
    total = sum(len(line) + 1 for line in lines)
    if total <= characters:
        return "\n".join(lines)
    wanted = max(1, len(lines) * characters // max(1, total))
    chosen, used = [], 0
    for number in range(wanted):
        line = lines[number * len(lines) // wanted]
        if used + len(line) + 1 > characters:
            break
        chosen.append(line)
        used += len(line) + 1
    return "\n".join(chosen) or lines[0][: max(1, characters)]


def misbehaved(how: str, text: str, characters: int) -> str:
    """What a summariser that misbehaves gives: empty, error (raises), twice (the size asked), echo, thinking."""
    if how == "error":
        raise RuntimeError("the summariser failed")
    if how == "empty":
        return "  \n"
    if how == "twice":
        return ("word " * (characters // 2))[: characters * 2]
    if how == "echo":
        return text
    return f"<think>{sampled(text, characters)}</think>"
