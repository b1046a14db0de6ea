"""Replacing everything that is in a store, and keeping what was there: shared by restore, install and repair."""

from __future__ import annotations

from maintenance.replacement.marker import Unfinished, unfinished
from maintenance.replacement.replace import Replaced, replace_content

__all__ = ["Replaced", "Unfinished", "replace_content", "unfinished"]
