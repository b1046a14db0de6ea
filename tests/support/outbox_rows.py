"""What the outbox of a closed or crashed store holds, without the owners of claims, which differ from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_state.engine import open_read


def outbox_rows(path: Path) -> list[tuple[Any, ...]]:
    """Every row and the horizon."""
    with open_read(path) as reader:
        return [
            *reader.rows(
                "SELECT dedupe_id, state, attempts, refunds, recoveries, fence, payload IS NULL, settled_at FROM outbox"
                " ORDER BY id"
            ),
            *reader.rows("SELECT forgotten_to FROM outbox_horizon"),
        ]
