"""Interrupts at every point of a piece of work, one run for each.

Two ways, because no single one is the interpreter's own. `lines` raises before each line, more places than a signal can
come in at. `calls` raises where CPython looks for signals: as a function of Python begins, and when a call of C has
returned. Left out are what nothing can come before (a line of `try:`, the end of a `with` over a lock of C), and
finalizers, in which Python throws every exception away.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_LOCK_BLOCK = re.compile(r"with (?:self\._lock|self\.lock|REGISTRY\.lock):")


class Interrupt(KeyboardInterrupt):
    """What is raised."""


class _Points:
    """Counts points and raises at one of them."""

    def __init__(self, number: int, seen: Callable[[str], bool], outer: FrameType) -> None:
        self.left = number
        self.place = ""
        self._seen = seen
        self._outer = outer  # the work is called from there
        self._entered: set[tuple[FrameType, int]] = set()

    def of_lines(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not self._seen(frame.f_code.co_filename) or self._finalizes(frame):
            return None
        if event == "line" and not self._cannot_raise(frame):
            self._count(frame, event)
        return self.of_lines

    def of_calls(self, frame: FrameType, event: str, _argument: Any) -> None:
        # A generator that goes on is a call as well, one that would not even run its `finally` if it failed.
        begins = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if (begins or event == "c_return") and self._seen(frame.f_code.co_filename) and not self._finalizes(frame):
            self._count(frame, event)

    def _count(self, frame: FrameType, event: str) -> None:
        self.left -= 1
        if self.left == 0:
            sys.settrace(None)
            sys.setprofile(None)
            self._entered.clear()  # it keeps frames, and what they hold
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name} ({event})"
            raise Interrupt

    def _cannot_raise(self, frame: FrameType) -> bool:
        kind = _kind(frame.f_code.co_filename, frame.f_lineno)
        if kind != "lock":
            return kind == "try"
        here = (frame, frame.f_lineno)
        if here in self._entered:
            self._entered.discard(here)
            return True
        self._entered.add(here)
        return False


    def _finalizes(self, frame: FrameType | None) -> bool:
        while frame is not None and frame is not self._outer:
            if frame.f_code.co_name == "__del__":
                return True
            frame = frame.f_back
        return False


@functools.cache
def _kind(file: str, number: int) -> str:
    """What a line is, of those that nothing can come before."""
    line = linecache.getline(file, number).strip()
    return "try" if line == "try:" else "lock" if _LOCK_BLOCK.match(line) else ""


def _in_engine(file: str) -> bool:
    return ("/hermes_state/" in file and "/tests/" not in file) or file.endswith("contextlib.py")


def interrupted(
    work: Callable[[], object], way: str, *, seen: Callable[[str], bool] = _in_engine, expected: tuple[type, ...] = ()
) -> Iterator[str]:
    """Run `work` again and again, with an interrupt at the first point, the second, ...; yields where each one was.

    The run without one, which comes last, is not yielded. `expected`: what `work` itself may raise.
    """
    number, seen, outer = 0, functools.cache(seen), sys._getframe()
    while True:
        number += 1
        points = _Points(number, seen, outer)
        try:
            if way == "lines":
                sys.settrace(points.of_lines)
            else:
                sys.setprofile(points.of_calls)
            work()
        except (Interrupt, *expected):
            pass
        finally:
            sys.settrace(None)
            sys.setprofile(None)
        if not points.place:
            return
        yield points.place
