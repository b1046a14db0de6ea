"""What a command is about to change, and the question before it.

Invariant: a command that deletes or replaces shows a `Plan` before it changes anything, and goes on only after a typed
yes or `--yes`. Without a terminal there is nobody to ask, so it refuses; the end of input is a no.

Not for: `optimize` and its kind, which lose nothing and do not ask. A default answer was rejected: Enter must not
delete.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from hermes_state.errors import Refused
from maintenance.output.text import safe_text


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be done."""

    title: str  # one line: what, to which store
    lines: tuple[str, ...] = ()  # for people: how much, which, what stays, how long the lock is held
    facts: Mapping[str, Any] = field(default_factory=dict)  # the same for programs, as `--json` prints it

    def show(self, out: TextIO | None = None) -> None:
        """Print the plan; to stdout unless told otherwise, because under --dry-run it is the result."""
        stream = out or sys.stdout
        stream.write(safe_text(self.title) + "\n")
        for line in self.lines:
            stream.write(f"  {safe_text(line)}\n" if line else "\n")

    def answer(self, *, as_json: bool) -> None:
        """Print the plan as the whole result, for --dry-run."""
        if as_json:
            from maintenance.output.documents import print_json

            print_json({"dry_run": True} | dict(self.facts))
        else:
            self.show()


def confirm(plan: Plan, *, yes: bool, question: str, quiet: bool = False) -> bool:
    """Show the plan on stderr and ask. True when the work may go on.

    `quiet` (for --json) shows it only to somebody who answers: otherwise stderr is the one object of the refusal.
    """
    if not quiet or (not yes and sys.stdin.isatty()):
        plan.show(sys.stderr)
    return yes or ask(question)


def ask(question: str, *, answer: str | None = None) -> bool:
    """Ask on stderr. Only `y` or `yes` agrees, or exactly `answer` when given: for what must be typed by name."""
    if not sys.stdin.isatty():
        raise Refused(
            "This needs an answer, and there is no terminal to ask on.", hint="Add --yes, or look first with --dry-run."
        )
    wanted = "[y/N]" if answer is None else f"Type {answer} to go on:"
    sys.stderr.write(f"{question} {wanted} ")
    sys.stderr.flush()
    try:
        said = sys.stdin.readline().strip()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise
    return said.lower() in ("y", "yes") if answer is None else said == answer
