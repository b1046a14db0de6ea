"""Scheduled jobs of a home: every due slot accounted for exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cron_store.cron import Cron as Cron


def __getattr__(name: str) -> Any:
    # Loaded when it is first asked for: importing the package opens nothing and loads nothing heavy.
    if name == "Cron":
        from cron_store.cron import Cron

        return Cron
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
