"""A store that is not there yet, for the plan of an import that would make it.

Invariant: it holds nothing and takes nothing, so that the plan is what an import into a new store does and no file is
made before somebody agreed. Not for: writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, TypeVar

from hermes_state.errors import NotFound

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Transaction

Result = TypeVar("Result")


class Nothing:
    """A reader of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, _sql: str, _params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """No row."""
        return []

    def row(self, _sql: str, _params: Sequence[Any] = ()) -> None:
        """No row."""

    def iterate(self, _sql: str, _params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """No row."""
        return iter(())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state, the empty one."""
        yield


class AbsentStore:
    """What a `Core` is to a plan."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock

    @contextmanager
    def reader(self) -> Iterator[Nothing]:
        """A reader that finds nothing."""
        yield Nothing(self.path)

    def write(self, work: Callable[[Transaction], Result], *, durability: str = "process") -> Never:
        """Nothing can be written to it."""
        raise NotFound(f"There is no store at {self.path}.", hint="Make it with --new.", path=self.path)
