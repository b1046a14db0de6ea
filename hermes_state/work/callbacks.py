"""What callers give to be called: plain functions, whose answers are answers.

Invariant: a coroutine function is refused before anything is done, and an awaitable that a plain function gives is no
answer: it is closed and refused, so that nothing counts as done that nobody ever ran.

Not for: handlers of notices, which `store.aio` awaits. Awaiting here was rejected: a group does not know in whose loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hermes_state.errors import InvalidInput

_HINT = "Run what is asynchronous with asyncio.run_coroutine_threadsafe(...).result()."


def plain(argument: str, function: Callable[..., Any] | None) -> None:
    """Raise `InvalidInput` for a coroutine function, also as an object or a `partial` of one. None passes."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = vars(type(inner)).get("__call__")  # of an object that is called
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called):
        raise InvalidInput(f"{argument} is a plain function, not a coroutine function.", hint=_HINT, argument=argument)
    if function is not None and not callable(function):
        raise InvalidInput(f"{argument} is a function, not {type(function).__name__}.", argument=argument)


def run(argument: str, function: Callable[..., Any], *given: Any) -> Any:
    """What a function says, and raises. Raises `InvalidInput` for an awaitable, which is closed where it can be."""
    said = function(*given)
    if not inspect.isawaitable(said):
        return said
    if inspect.iscoroutine(said):
        said.close()
    raise InvalidInput(
        f"{argument} gave something to be awaited ({type(said).__name__}), and nothing of it was run.", hint=_HINT,
        argument=argument,
    )
