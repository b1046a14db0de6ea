"""Descriptors that a forked child must not keep.

Invariant: whoever is in here is told in the child before anything of it runs, and no fork can come between the opening
of a descriptor and its being written down here (`guarded`).

Not for: children by exec, for whom close-on-exec does it. A check of the pid at each use was rejected: a child that
keeps a copy open keeps the lock for its dead parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Kept(Protocol):
    """Something with descriptors that belong to this process alone."""

    def forget(self) -> None:
        """Close them here, in the child, without a word to anybody."""


_LOCK = threading.RLock()
_KEPT: weakref.WeakSet[Kept] = weakref.WeakSet()


@contextmanager
def guarded() -> Iterator[weakref.WeakSet[Kept]]:
    """Within this block no fork happens; add to the set whatever was opened."""
    with _LOCK:
        yield _KEPT


def _in_child() -> None:
    for kept in tuple(_KEPT):
        kept.forget()
    _KEPT.clear()
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_in_child)
