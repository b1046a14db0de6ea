"""What lies beside a store: what each file is, what it could bring back, and whether it may go.

    from maintenance.leftovers import inventory, prune
    for one in inventory(Path("state.db"), deep=True):
        print(one.kind, one.path, one.bytes, one.safe, one.why)
"""

from __future__ import annotations

from maintenance.leftovers.inventory import inventory
from maintenance.leftovers.prune import prune
from maintenance.leftovers.records import Holds, Leftover, Pruned

__all__ = ["Holds", "Leftover", "Pruned", "inventory", "prune"]
