"""Generations of a native store while messages that they cover are replaced: their digests follow.

Invariant: a generation that stood for its messages before stands for them afterwards. Those that do are marked before
the first message changes and get a new digest after the last, so that a killed run is finished by the next; those that
did not match before keep their digest, and doctor goes on saying so. Summaries and clips are texts like any other and
are searched with the tables (`cells`).

Not for: finding secrets. A new digest with every portion was rejected: each reads the checks of all that is covered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from maintenance.dialects.native.compaction_source import source_of
from maintenance.dialects.native.compactions import SCRUBBING, has_compactions

if TYPE_CHECKING:
    from hermes_state.engine import Store

_MARK = json.dumps(
    {"code": SCRUBBING, "message": "Messages that it stands for are being scrubbed."}, separators=(",", ":")
)


def mark(store: Store) -> int:
    """Mark every finished generation whose messages are those it was made of; returns how many."""
    if not has_compactions(store):
        return 0
    with store.transaction(durability="power") as tx:
        good = [
            (int(number),) for number, digest in tx.rows(
                "SELECT id, source_digest FROM compactions WHERE state = 'done' AND error IS NULL"
            ) if (source := source_of(tx, int(number))) is not None and source.digest == digest
        ]
        tx.executemany(f"UPDATE compactions SET error = '{_MARK}' WHERE id = ?", good)
    return len(good)


def settle(store: Store) -> int:
    """Give the marked ones, of a run that was killed too, the digest of their messages as they are; how many."""
    if not has_compactions(store):
        return 0
    with store.transaction(durability="power") as tx:
        # Parents first: the digest of each covers that of its parent.
        marked = [int(number) for (number,) in tx.rows(
            "SELECT id FROM compactions WHERE state = 'done' AND error ->> '$.code' = ? ORDER BY id", (SCRUBBING,)
        )]
        for number in marked:
            source = source_of(tx, number)
            if source is not None:
                new = (source.digest, number)
                tx.execute("UPDATE compactions SET source_digest = ?, error = NULL WHERE id = ?", new)
    return len(marked)
