"""What an import says of what it did: one line a file for people, one object a file for programs, problems by line.

Invariant: counts of messages add up to what the source has, and counts of lines to the lines of the file. Not for:
counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import click

from maintenance.intake.model import PROBLEMS_KEPT, Looked, Source, Tally
from maintenance.intake.underway import Merged
from maintenance.output.text import plural, safe_text

_COUNTS = tuple(item.name for item in fields(Merged) if item.type == "int")
_LINES = ("lines", "messages_from", "facts", "kept", "repeated", "blank", "unfinished", "refused")


def add_up(merged: Sequence[Merged]) -> Merged:
    """The counts of several files."""
    total = Merged()
    for one in merged:
        for name in _COUNTS:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.problems += one.problems
        total.renamed |= one.renamed
        total.titles_changed |= one.titles_changed
    return total


def lines_of(sources: Sequence[Source], looked: Sequence[Looked], merged: Sequence[Merged]) -> Iterator[str]:
    """For people: a line a file, and one for each thing that is worth knowing."""
    for source, one, done in zip(sources, looked, merged, strict=True):
        said = [f"{plural(done.messages_new, 'message')} new", f"{done.messages_known} there already"]
        said += [f"{done.messages_refused} refused"] * bool(done.messages_refused)
        yield f"{source.path} ({source.name}): {plural(len(one.sessions), 'session')}; {', '.join(said)}"
        yield from (f"    {note}" for note in _notes(one.tally, done))


def _notes(tally: Tally, done: Merged) -> Iterator[str]:
    if tally.kept:
        are = "is" if tally.kept == 1 else "are"
        it = "it" if tally.kept == 1 else "them"
        yield f"{plural(tally.kept, 'line')} that {are} no message {are} kept with the message after {it}"
    for kind, count in tally.left_out.most_common():
        yield f"{plural(count, 'line')} left out: {kind}"
    if tally.repeated:
        yield f"{plural(tally.repeated, 'line')} {'is' if tally.repeated == 1 else 'are'} in the file twice"
    if tally.unfinished:
        yield "the last line is not finished; import again when it is"
    if done.messages_diverged:
        one = done.messages_diverged == 1
        differ, whose = ("differs", "its") if one else ("differ", "their")
        yield f"{plural(done.messages_diverged, 'message')} {differ} from what is here under {whose} key; both are kept"
    for here, theirs in ((there, own) for own, there in done.renamed.items()):
        yield f"session {theirs} is called {here} here"
    for session, title in done.titles_changed.items():
        yield f"session {session} has the title {title!r} here"


def document(sources: Sequence[Source], looked: Sequence[Looked], merged: Sequence[Merged]) -> dict[str, Any]:
    """For programs."""
    total = add_up(merged)
    return {
        "already_done": not (total.messages_new or total.sessions_new),
        **{name: getattr(total, name) for name in _COUNTS},
        "files": [
            {
                "path": source.path,
                "from": source.name,
                "sessions": len(one.sessions),
                **{name: getattr(done, name) for name in _COUNTS},
                "lines": {
                    **{name: getattr(one.tally, name) for name in _LINES}, "left_out": dict(one.tally.left_out)
                },
                "renamed": done.renamed,
                "titles_changed": done.titles_changed,
                "problems": [
                    {"line": problem.line or None, "reason": problem.reason}
                    for problem in (*one.tally.problems, *done.problems)
                ],
            }
            for source, one, done in zip(sources, looked, merged, strict=True)
        ],
    }


def show_problems(
    looked: Sequence[Looked], merged: Sequence[Merged], sources: Sequence[Source], *, json: bool
) -> None:
    """On stderr, what could not be imported; with --json it is in the document."""
    if json:
        return
    for source, one, done in zip(sources, looked, merged, strict=True):
        for problem in (*one.tally.problems, *done.problems):
            where = f"{source.path}:{problem.line}" if problem.line else str(source.path)
            click.echo(safe_text(f"Not imported: {where} {problem.reason}"), err=True)
        more = one.tally.refused - len(one.tally.problems)
        if more > 0:
            click.echo(f"Not imported: {plural(more, 'further line')} ({PROBLEMS_KEPT} are named).", err=True)
