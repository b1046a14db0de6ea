"""Backups that were compared with the store they were made from, and their way back: `backup`, `restore`, `drill`."""

from __future__ import annotations

from maintenance.backups.drilling import Drilled, drill
from maintenance.backups.making import Backup, backup
from maintenance.backups.manifest import Manifest, read_manifest
from maintenance.backups.restoring import Restored, RestorePlan, restore

__all__ = [
    "Backup", "Drilled", "Manifest", "RestorePlan", "Restored", "backup", "drill", "read_manifest", "restore",
]
