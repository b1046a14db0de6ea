"""Waiting until something is on the disk.

Invariant: when `sync_folder` returns, the names in the folder survive a power cut, where the system has a way to ask
for that; when `sync_file` returns, the content does.

Not for: a store's own files, which SQLite flushes.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder: a new or renamed file is not safely there before that."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders; NTFS logs names by itself
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(file: Path) -> None:
    """Flush the content of a file that no SQLite of this process has open."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
