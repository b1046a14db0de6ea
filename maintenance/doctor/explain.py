"""A lost WAL generation in two layers: a sentence for a chat, then what an operator needs.

Invariant: the wording is the engine's; here it is only laid out, so that a chat bubble, a log and the command line say
the same. Not for: finding out what was lost (`hermes_state.engine.generation`).
"""

from __future__ import annotations

from hermes_state.errors import GenerationLost


def chat_text(problem: GenerationLost) -> str:
    """What a person in a chat should read; no path, no PID, no command line."""
    return str(problem.facts.get("user_sentence") or problem.message)


def operator_lines(problem: GenerationLost) -> list[str]:
    """The same for the operator: which files, what was kept, who to stop."""
    lost = problem.facts.get("lost") or ()
    capture = problem.facts.get("capture")
    lines = [str(problem.facts.get("operator_detail") or problem.message)]
    if lost:
        lines.append(f"Replaced or unlinked: {', '.join(map(str, lost))}.")
    if capture is not None:
        lines.append(f"Kept in: {capture}")
    if problem.hint:
        lines.append(problem.hint)
    return lines
