"""Letting the progress bar draw while one regular expression works on one text.

Invariant: the module `re` keeps the interpreter for as long as one search lasts, but runs signal handlers on the way;
so an alarm goes off a few times a second and gives the thread of the bar a moment. Without a terminal, outside of the
main thread, or where something else uses the alarm, nothing is done.

Not for: stopping a slow pattern. Searching in another process was rejected: the texts would be copied there.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_SECONDS = 0.25
# Long enough for rich to be imported within some alarms, short beside the time between two.
PAUSE_SECONDS = 0.04


@contextmanager
def breathing() -> Iterator[None]:
    """Inside of it a search that lasts does not keep other threads from running."""
    ours = (
        sys.stderr is not None and sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    )
    if not ours:
        yield
        return
    signal.signal(signal.SIGALRM, lambda _number, _frame: time.sleep(PAUSE_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS, EVERY_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
