"""The three standard streams, when one of them is closed or takes nothing.

Invariant: a closed stream changes what can be read, never what is done nor its exit status; the descriptors 0 to 2 are
taken before anything is opened, so that no file of a store is ever what a stray `print` writes into.

Not for: a reader that went away (see `entry.py`). Checks for None at each place that prints were rejected: one that is
forgotten makes a failure of work that was done.
"""

from __future__ import annotations

import io
import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Put the null device where a standard stream is closed (`>&-`), lowest descriptor first."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # Open until the process ends, like the stream that it stands for.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8", errors="replace"))  # noqa: SIM115


def stdout_is_closed() -> bool:
    """Whether standard output was closed when the program started, so that nobody gets what is written there."""
    return sys.stdout is None or getattr(sys.stdout, "name", None) == os.devnull


class Watched(io.TextIOWrapper):
    """Standard output that remembers why it took nothing: the error alone does not say which file it was."""

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.failure = error
            raise


def watch_stdout() -> None:
    """Put a `Watched` in the place of standard output, unless a program around this one has put its own there."""
    plain = sys.stdout
    if type(plain) is io.TextIOWrapper and not stdout_is_closed():
        sys.stdout = Watched(
            plain.buffer, encoding=plain.encoding, errors=plain.errors, line_buffering=plain.line_buffering
        )


def stdout_failure() -> OSError | None:
    """Why standard output took nothing, or None when it took all that was written."""
    return sys.stdout.failure if isinstance(sys.stdout, Watched) else None
