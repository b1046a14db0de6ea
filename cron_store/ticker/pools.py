"""The threads of one home.

Invariant: at most `cap` threads run at a time; one that has nothing to do ends, so an idle home has none. What was
given and has not ended is known by its fence, with its thread.

Not for: claims (see `running`). One pool for all homes was rejected: four long jobs of one home kept every other home
from running. Threads that stay were rejected: two hundred homes had hundreds of them for nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Wedged:
    """A run that went on when a drain was over."""

    home: str
    job_id: str
    fence: int
    thread: str  # its name
    seconds: float  # since it was begun


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run that a pool was given."""

    fence: int
    job_id: str
    began: float  # monotonic seconds
    work: Callable[[], None]  # raises nothing


class HomePool:
    """The threads of one home. Safe for threads."""

    def __init__(self, name: str, cap: int) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._running: dict[int, tuple[Task, threading.Thread]] = {}
        self._threads = 0
        self._made = 0
        self.cap = cap

    @property
    def room(self) -> int:
        """How many more it may be given now."""
        with self._lock:
            return max(0, self.cap - len(self._waiting) - len(self._running))

    @property
    def threads(self) -> int:
        """How many threads it has now."""
        with self._lock:
            return self._threads

    def living(self) -> set[int]:
        """The fences of what it was given and has not ended."""
        with self._lock:
            return {task.fence for task in self._waiting} | set(self._running)

    def running(self) -> list[tuple[Task, str]]:
        """What runs, with the name of its thread."""
        with self._lock:
            return [(task, thread.name) for task, thread in self._running.values()]

    def give(self, task: Task) -> None:
        """Run it as soon as a thread is free. Raises `RuntimeError` when no thread can be started: it is not run."""
        with self._lock:
            self._waiting.append(task)
            if self._threads >= min(self.cap, len(self._waiting) + len(self._running)):
                return  # a thread will come for it
            self._made += 1
            thread = threading.Thread(target=self._work, name=f"cron {self._name} {self._made}", daemon=True)
            self._threads += 1
            try:
                thread.start()
            except BaseException:
                self._threads -= 1
                self._waiting.remove(task)
                raise

    def withdraw(self) -> list[Task]:
        """Take back what no thread has begun."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def wait_idle(self, seconds: float) -> bool:
        """Until no thread is left, or for `seconds` of the machine's time; whether none is."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._threads and not self._waiting, timeout=seconds)

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    self._lock.notify_all()
                    return
                task = self._waiting.popleft()
                self._running[task.fence] = task, thread
            try:
                task.work()
            except BaseException:
                with self._lock:
                    del self._running[task.fence]
                    self._threads -= 1
                    self._lock.notify_all()
                raise
            with self._lock:
                del self._running[task.fence]
