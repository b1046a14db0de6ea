"""One process that forks a program again and again and kills it at its next statement each time. Imported by children.

Invariant: the process that forks has no store open. Each run counts the statements of its transactions, what comes
right before a COMMIT and right after it, and every `step()` that it makes itself, and is killed at the one that it was
told. After each kill another fork runs a check, as the next boot does.

Not for: kills from outside at a random time (see the tests of processes). A new interpreter for every statement was
rejected: 150 ms of imports before 20 ms of work.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

_count = 0
_dies_at = 0


def step() -> None:
    """One place where a run can be killed."""
    global _count
    _count += 1
    if _count == _dies_at:
        os.kill(os.getpid(), signal.SIGKILL)


def every_statement(
    run: Callable[[int], None], check: Callable[[int], None], *, first: int = 1, stride: int = 1
) -> int:
    """Kill `run(n)` at its n-th step, for n from `first` on, and `check(n)` each time; gives how many were killed.

    It ends with the first run that comes to its end. Both are called in processes of their own.
    """
    killed, number = 0, first
    while True:
        status = _forked(run, number, dies_at=number)
        died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not died and status != 0:
            raise AssertionError(f"run {number} ended with {status}")
        if _forked(check, number, dies_at=0) != 0:
            raise AssertionError(f"the check after run {number} failed")
        if not died:
            return killed
        killed, number = killed + 1, number + stride


def _forked(work: Callable[[int], None], number: int, *, dies_at: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if dies_at:
                _watch(dies_at)
            work(number)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def _watch(dies_at: int) -> None:
    """Count steps from now on, in this process."""
    global _count, _dies_at
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction

    _count, _dies_at = 0, dies_at

    def counting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            step()
            return plain(self, *given, **named)

        return call

    for name in ("execute", "executemany", "rows", "row"):
        setattr(Transaction, name, counting(getattr(Transaction, name)))
    plain_write = Core.write

    def write(self: Core, work: Callable[[Transaction], Any], **how: Any) -> Any:
        def worked(tx: Transaction) -> Any:
            result = work(tx)
            step()  # nothing of it is committed
            return result

        result = plain_write(self, worked, **how)
        step()  # all of it is
        return result

    Core.write = write  # type: ignore[method-assign]
