"""What could not be written to a store yet: a folder beside it, flushed to the disk, and given back once, in order."""

from hermes_state.spool.folder import Quarantined, Spool, spool_folder
from hermes_state.spool.lines import Item

__all__ = ["Item", "Quarantined", "Spool", "spool_folder"]
