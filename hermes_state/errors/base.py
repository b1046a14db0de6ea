"""The root of the tree and the four errors that others are kinds of.

Invariant: see the package. Not for: errors with a cause of their own, which stand with what raises them.
"""

from __future__ import annotations

from typing import Any


class StateError(Exception):
    """Base of the tree. `message` is a whole sentence: what, to which file, who holds it."""

    code = "state_error"
    retryable = False
    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts
        # SQLite's primary and extended result codes, when SQLite started it.
        self.sqlite_code: int | None = facts.pop("sqlite_code", None)
        self.sqlite_extended: int | None = facts.pop("sqlite_extended", None)
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = dict(self.facts, sqlite_code=self.sqlite_code, sqlite_extended=self.sqlite_extended)
        return (_rebuild, (type(self), self.message, self.hint, facts))


def _rebuild(kind: type[StateError], message: str, hint: str, facts: dict[str, Any]) -> StateError:
    return kind(message, hint=hint, **facts)


class InvalidInput(StateError):
    """The caller's fault: an argument cannot be used. Nothing was changed."""

    code = "invalid_input"
    exit_code = 2


class NotFound(StateError):
    """Nothing of that name exists."""

    code = "not_found"


class Refused(StateError):
    """Understood and not done, because it would be unsafe or was not confirmed. Nothing was changed."""

    code = "refused"


class StorageError(StateError):
    """SQLite or the file system failed. `sqlite_code` and `sqlite_extended` say how."""

    code = "storage_error"
