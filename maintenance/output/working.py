"""A progress bar for work that says what it does and how far it is.

Not for: work whose length is known from the start; that makes its bar itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from maintenance.output.progress import progress


@contextmanager
def working() -> Iterator[Callable[[str, int, int | None], None]]:
    """A function that takes (what, done, total or None) and draws it on stderr."""
    with progress(None, "starting") as bar:
        now, reached = "", 0

        def say(what: str, done: int, total: int | None) -> None:
            nonlocal now, reached
            if what != now:
                now, reached = what, 0
                bar.restart(total, what)
            bar.advance(done - reached)
            reached = done

        yield say
