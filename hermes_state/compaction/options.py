"""What a caller asks of compaction, and whether that has a meaning.

Invariant: whatever cannot be used is an `InvalidInput` that names the option, before anything is read or written; what
comes out can be counted, stored and compared. Names are read once: a name of the caller's making may be code.

Not for: what depends on the session (see `looking`), such as a window that leaves no room. Checking where each option
is used was rejected: half of them were found out in the middle of a pass, as an error of another library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from hermes_state.compaction.guards import DEFAULTS, Limits
from hermes_state.compaction.outcomes import Trigger
from hermes_state.compaction.summary.requests import name_of
from hermes_state.compaction.tokens import TokenCounter, as_counter
from hermes_state.compaction.windows.records import LARGEST, Window
from hermes_state.errors import InvalidInput, StateError

if TYPE_CHECKING:
    from hermes_state.compaction.summary import Summarizer

EXTRACTIVE = "extractive"


class Options(TypedDict, total=False):
    """The options of `store.compaction`'s methods; `Asked` has their meanings and defaults."""

    window: int | Window | None
    model: str
    endpoint: str
    policy: str
    fixed_tokens: int
    reply_reserve: int | None
    summarizer: Summarizer | None
    summarizer_window: int | None
    counter: TokenCounter | Callable[[str], int] | None
    trigger: Trigger
    deadline: float
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a caller asked for."""

    session_id: str
    # tokens, a window that was resolved elsewhere, or None: what is known of the model at the endpoint
    window: int | Window | None = None
    # "": the session's own model
    model: str = ""
    endpoint: str = ""
    policy: str = "default"
    fixed_tokens: int = 0
    reply_reserve: int | None = None
    # None: extractive
    summarizer: Summarizer | None = None
    # None: the window of the session's model
    summarizer_window: int | None = None
    counter: TokenCounter | Callable[[str], int] | None = None
    trigger: Trigger = "size"
    # seconds for all of the summariser's work
    deadline: float = 300.0
    limits: Limits = DEFAULTS
    # of the summariser, as it is recorded
    summarizer_name: str = EXTRACTIVE


def asked_for(session_id: str, options: Mapping[str, Any]) -> Asked:
    """The options as a record that can be used. Raises `InvalidInput` for what has no meaning."""
    there = sorted(Options.__annotations__)
    for name in options:
        if name not in there:
            raise InvalidInput(
                f"There is no option {name!r}. There are {', '.join(there)}.", argument=name,
                hint="Look at docs/compaction.md for what each of them means.",
            )
    return valid(Asked(session_id=session_id, **options))


def valid(asked: Asked) -> Asked:
    """The same with its names settled, or `InvalidInput` for what has no meaning."""
    window = asked.window
    if isinstance(window, bool) or not (window is None or isinstance(window, (int, Window))):
        raise InvalidInput(f"window is a whole number of tokens or a Window, not {window!r:.80}.", argument="window")
    if not isinstance(asked.limits, Limits):
        raise InvalidInput(f"limits is a Limits, not {asked.limits!r:.80}.", argument="limits")
    if asked.trigger not in ("size", "overflow", "manual", "window"):
        raise InvalidInput(
            f"trigger is size, overflow, manual or window, not {asked.trigger!r}.", argument="trigger"
        )
    if type(asked.deadline) not in (int, float) or not 0 < asked.deadline < float("inf"):
        raise InvalidInput(f"deadline is a number of seconds above 0, not {asked.deadline!r}.", argument="deadline")
    own = asked.summarizer_window
    if own is not None and (type(own) is not int or not 0 < own <= LARGEST):
        raise InvalidInput(
            f"summarizer_window is a number of tokens from 1 to {LARGEST}, or None, not {own!r:.80}.",
            argument="summarizer_window",
        )
    if asked.summarizer is not None and not callable(asked.summarizer):
        raise InvalidInput(
            f"summarizer is a function of a SummaryRequest, or None, not {asked.summarizer!r:.80}.",
            argument="summarizer",
        )
    for name, text in (("model", asked.model), ("endpoint", asked.endpoint)):
        if not isinstance(text, str):
            raise InvalidInput(f"{name} is a text, not {text!r:.80}.", argument=name)
        _whole(name, text, name)
    counter = asked.counter
    if counter is not None:
        counted_by = counter
        _named("counter", lambda: as_counter(counted_by).name)
        counter = as_counter(counter)
    maker = asked.summarizer
    name = EXTRACTIVE if maker is None else _named("summariser", lambda: name_of(maker), argument="summarizer")
    return replace(asked, counter=counter, summarizer_name=name)


def _named(whose: str, read: Callable[[], str], *, argument: str | None = None) -> str:
    """A name of the caller's making, as plain text."""
    argument = argument or whose
    try:
        name = read()
    except StateError:
        raise  # says itself what is wrong
    except Exception as error:
        raise InvalidInput(f"The {whose}'s name cannot be read: {error!r:.200}.", argument=argument) from error
    return _whole(f"The {whose}'s name", str.__str__(name), argument)


def _whole(what: str, text: str, argument: str) -> str:
    """A text that can be stored: UTF-8 has no half characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what} is a text without half characters, not {text!r:.80}.", argument=argument
        ) from error
    return text
