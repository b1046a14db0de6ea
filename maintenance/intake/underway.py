"""What is counted and remembered while one source is merged.

Invariant: the counts of `Merged` add up to the sessions and messages that came. Not for: reading or writing a store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hermes_state.conversation import bodies
from hermes_state.conversation.fields import Encoded
from maintenance.intake.known import Known
from maintenance.intake.model import PROBLEMS_KEPT, Hide, IncomingSession, Problem
from maintenance.intake.passes import Coming
from maintenance.intake.target import Hidden, Target


@dataclass(kw_only=True)
class Merged:
    """What one source brought. In a plan: what it would bring."""

    sessions_new: int = 0  # sessions made
    sessions_known: int = 0  # sessions that were here
    sessions_refused: int = 0  # sessions that could not be made
    messages_new: int = 0  # messages appended
    messages_known: int = 0  # messages that were here
    messages_diverged: int = 0  # of the new ones: the key was used here for something else
    messages_refused: int = 0  # messages that could not be appended
    renamed: dict[str, str] = field(default_factory=dict)  # id in the source -> id here, where they differ
    titles_changed: dict[str, str] = field(default_factory=dict)  # id here -> the title it got instead of its own
    problems: list[Problem] = field(default_factory=list)  # the first of what was refused, and why

    def refuse(self, line: int, reason: str) -> None:
        """Note what was refused."""
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(Problem(line=line, reason=reason))


# What a plan would bring so far, by id and start of the session: key and content hash of each new message.
Planned = dict[tuple[str, float], list[tuple[str, int]]]


@dataclass(kw_only=True)
class Row:
    """A message that waits for its transaction."""

    message: Encoded
    frame: bodies.Frame | None
    fingerprint: int
    line: int


@dataclass(kw_only=True)
class Underway:
    """One session while its messages come."""

    incoming: IncomingSession
    target: Target
    known: Known | None = None  # its messages; None while they are not needed
    rows: list[Row] = field(default_factory=list)
    waiting_bytes: int = 0
    hides: list[Hide] = field(default_factory=list)
    coming: Coming = field(default_factory=Coming)  # its compactions
    seen: int = 0  # messages that came
    refused: bool = False  # nothing more is appended to it
    finished: bool = False  # its last transaction was made
    applied: list[Hidden] = field(default_factory=list)  # what hides its messages

    def tell(self, facts: IncomingSession) -> None:
        """Take over all facts of the session; what it is to others is known better."""
        before = self.incoming
        replaced = bool(before.columns.get("replaced"))
        self.incoming = replace(
            facts, relation=before.relation, messages=before.messages, columns={**facts.columns, "replaced": replaced}
        )


def share_of(session: IncomingSession) -> int:
    """The number of the parent's newest message that a branch shares; 0 when it shares none."""
    share = session.columns.get("branched_at_seq")
    return share if isinstance(share, int) else 0


def hidden_by(hide: Hide, known: Known) -> Hidden | None:
    """An edit by the numbers of the session here, as far as its messages are here."""
    first, last = known.seq_of(hide.first_key), known.seq_of(hide.last_key)
    if hide.first_position < 1:
        first, last = hide.first_position, hide.last_position if last is None else last
    if first is None or last is None or first > last:
        return None
    return Hidden(action=hide.kind, first=first, last=last, at=hide.at, number=hide.number)
