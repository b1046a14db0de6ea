"""Writing sessions to new files.

Invariant: an export is written beside its target, read back, compared and only then put in place; the store is only
read. Not for: deleting what was exported.
"""
