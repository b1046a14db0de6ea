"""Taking over the file in which an older plugin kept what it still had to deliver home.

Invariant: missing and unreadable are two things. A queue that is not there is empty; one that is there and cannot be
read whole, to its last line, is left as it is, byte for byte, and named. Only when every entry is owed by the store is
the file put aside under another name; a crash before that finds the entries recorded, and records none twice.

Not for: queues that another process writes to: end it first. Taking what can be read and starting a new file was
rejected: that is how entries were lost.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.errors import IdempotencyConflict, InvalidInput, QueueUnreadable, TooOld
from hermes_state.turns.home import owe
from hermes_state.turns.records import told

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

# Far above the 300 entries that the old queue held.
MOST_BYTES = 64 * 1_048_576


@dataclass(frozen=True, kw_only=True)
class QueueTaken:
    """What `take_over` did."""

    path: Path  # the queue
    entries: int  # whole entries that it had; 0 when it is not there
    new: int  # of these, how many were not owed before
    put_aside: Path | None  # where the file is now; None when there was none


def take_over(core: Core, path: Path) -> QueueTaken:
    """Owe every entry of an old queue, in one transaction at `power`, then put the file aside.

    An entry is a line of JSON with `deliveryId` (or `delivery_id`); what else it has is its payload. Raises
    `QueueUnreadable` (the file is as it was, and nothing was recorded), and what a write raises.
    """
    try:
        data = _read(path)
    except FileNotFoundError:
        return QueueTaken(path=path, entries=0, new=0, put_aside=None)
    except OSError as error:
        raise _unreadable(path, 0, f"the system says {error.strerror}") from error
    entries = _entries(path, data)
    at = core.clock.now()

    def work(tx: Transaction) -> int:
        return sum(_owe(tx, path, *entry, at=at) for entry in entries)

    new = core.write(work, durability="power")
    aside = _free_name(path)
    os.rename(path, aside)
    return QueueTaken(path=path, entries=len(entries), new=new, put_aside=aside)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _unreadable(path, 0, f"it is larger than {MOST_BYTES:,} bytes")
    return data


def _owe(tx: Transaction, path: Path, number: int, delivery_id: str, payload: Any, *, at: float) -> bool:
    """Owe one entry, and give whether it is new; what keeps it from being recorded is said with its line."""
    try:
        return owe(tx, delivery_id, payload, at=at).new
    except (InvalidInput, IdempotencyConflict, TooOld) as error:
        raise _unreadable(path, number, f"it cannot be recorded: {error.message}") from error


def _entries(path: Path, data: bytes) -> list[tuple[int, str, Any]]:
    """Line, id and payload of every entry; raises for the first that is none."""
    found: dict[str, tuple[int, Any]] = {}
    lines = data.split(b"\n")
    if lines and lines[-1]:
        raise _unreadable(path, len(lines), "it was not written to its end")
    for number, line in enumerate(lines[:-1], 1):
        if not line.strip():
            continue
        try:
            entry = json_values.load(line.decode("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise _unreadable(path, number, "it is not JSON") from error
        except ValueError as error:
            raise _unreadable(path, number, f"it cannot be recorded: {told(error, 200)}") from error
        if not isinstance(entry, dict):
            raise _unreadable(path, number, "it is no object")
        delivery_id = entry.pop("deliveryId", None) or entry.pop("delivery_id", None)
        if not isinstance(delivery_id, str) or not delivery_id:
            raise _unreadable(path, number, "it has no delivery id")
        if found.setdefault(delivery_id, (number, entry))[1] != entry:
            raise _unreadable(path, number, f"delivery {delivery_id!r} is there twice, with other content")
    return [(number, delivery_id, payload) for delivery_id, (number, payload) in found.items()]


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.taken-over-{number}")).exists():
        number += 1
    return aside


def _unreadable(path: Path, line: int, why: str) -> QueueUnreadable:
    where = f"line {line} of the queue {path}" if line else f"the queue {path}"
    return QueueUnreadable(
        f"Nothing was taken from {where}: {why}.",
        hint=f"It is as it was. Repair or remove that line in a copy, put it at {path}, and try again.",
        path=path, line=line,
    )
