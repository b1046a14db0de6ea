"""How much a person is told of background work: the five words, and the texts.

Invariant: a table, pure and closed; a word that is not in it is an error. It decides what is shown to people. Whether a
turn begins is the mode of the work (see `states`), which no verbosity turns on or off.

Not for: sending. Cutting texts where they are shown was rejected: each platform cut differently, and some not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.work.background import BackgroundWork

# Of a batch: how many are shown, and how many characters of each (facts on gateways, 5).
MOST_SHOWN = 10
MOST_CHARACTERS = 800


class Verbosity(StrEnum):
    """`display.background_process_notifications` of hermes-agent."""

    CONCISE = "concise"  # one line; of a failure also the end of its output
    ALL = "all"  # while it runs, and the output at the end
    RESULT = "result"  # the output at the end
    ERROR = "error"  # the output at the end, of a failure only
    OFF = "off"  # nothing


class Moment(StrEnum):
    """When something could be told."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"  # with an exit code that is not 0, or nobody knows which


class Form(StrEnum):
    """What is told."""

    NOTHING = "nothing"
    LINE = "line"
    LINE_AND_TAIL = "line and tail"
    OUTPUT = "output"


DEFAULT = Verbosity.CONCISE

FORMS: Mapping[tuple[Verbosity, Moment], Form] = {
    (Verbosity.CONCISE, Moment.RUNNING): Form.NOTHING,
    (Verbosity.CONCISE, Moment.ENDED): Form.LINE,
    (Verbosity.CONCISE, Moment.FAILED): Form.LINE_AND_TAIL,
    (Verbosity.ALL, Moment.RUNNING): Form.OUTPUT,
    (Verbosity.ALL, Moment.ENDED): Form.OUTPUT,
    (Verbosity.ALL, Moment.FAILED): Form.OUTPUT,
    (Verbosity.RESULT, Moment.RUNNING): Form.NOTHING,
    (Verbosity.RESULT, Moment.ENDED): Form.OUTPUT,
    (Verbosity.RESULT, Moment.FAILED): Form.OUTPUT,
    (Verbosity.ERROR, Moment.RUNNING): Form.NOTHING,
    (Verbosity.ERROR, Moment.ENDED): Form.NOTHING,
    (Verbosity.ERROR, Moment.FAILED): Form.OUTPUT,
    (Verbosity.OFF, Moment.RUNNING): Form.NOTHING,
    (Verbosity.OFF, Moment.ENDED): Form.NOTHING,
    (Verbosity.OFF, Moment.FAILED): Form.NOTHING,
}


def known(value: Any) -> Verbosity:
    """One of the five words. Raises `InvalidInput`."""
    try:
        return Verbosity(value)
    except ValueError:
        raise InvalidInput(
            f"{value!r:.80} is no verbosity of background work.", hint=f"It is one of {', '.join(Verbosity)}.",
            argument="verbosity",
        ) from None


def form(verbosity: Verbosity, moment: Moment) -> Form:
    """What a person is told at a moment."""
    return FORMS[verbosity, moment]


def told(work: BackgroundWork, which: Form) -> str:
    """The text for a person; "" for nothing."""
    if which is Form.NOTHING:
        return ""
    if which is Form.OUTPUT:
        return "\n".join(part for part in (work.headline, cut(work.result_text)) if part)
    tail = _tail(work.result_text) if which is Form.LINE_AND_TAIL else ""
    return "\n".join(part for part in (work.headline, tail) if part)


def cut(text: str) -> str:
    """At most 800 characters: the beginning, and how many there are."""
    text = text.strip()
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters)"


def _tail(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_CHARACTERS else f"...{text[-MOST_CHARACTERS:]}"
