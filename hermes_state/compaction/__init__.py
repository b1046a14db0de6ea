"""Compaction: how a long conversation is shown to a model with a small window; nothing is deleted for it.

`plan` is loaded when it is first used, so that importing this package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.compaction.planning import Plan, plan

__all__ = ["Plan", "plan"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from hermes_state.compaction import planning

        return getattr(planning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
