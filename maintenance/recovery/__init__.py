"""Recovery for scripts: `inspect`, `recover`, `merge_wal`, `backup`, `restore`; nothing prints or imports click."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maintenance.recovery.inspecting import inspect as inspect
    from maintenance.recovery.records import Findings as Findings
    from maintenance.recovery.records import Report as Report
    from maintenance.recovery.records import Step as Step
    from maintenance.recovery.run import recover as recover

# Each name and the module that has it, so that one costs nothing but itself.
_HOMES = {
    "inspect": "maintenance.recovery.inspecting", "recover": "maintenance.recovery.run",
    "Findings": "maintenance.recovery.records", "Report": "maintenance.recovery.records",
    "Step": "maintenance.recovery.records", "merge_wal": "maintenance.recovery.captures",
    "backup": "maintenance.backups", "restore": "maintenance.backups",
}
__all__ = ["Findings", "Report", "Step", "backup", "inspect", "merge_wal", "recover", "restore"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
