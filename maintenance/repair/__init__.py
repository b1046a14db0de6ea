"""Repair of what can be built again from the rows of a store: `repair`, `RepairReport`; no click, no printing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maintenance.repair.flow import repair as repair
    from maintenance.repair.report import RepairReport as RepairReport

_HOMES = {"repair": "maintenance.repair.flow", "RepairReport": "maintenance.repair.report"}
__all__ = ["RepairReport", "repair"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
