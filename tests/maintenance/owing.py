"""Stores that owe, for tests of what becomes of obligations when content moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_state import open_store
from hermes_state.outbox import Accepted
from hermes_state.store import Store
from tests.maintenance.backups.making import tidy
from tests.maintenance.native_stores import add_session, new_store

ONCE, LEAST = "at_most_once", "at_least_once"


def owe(store: Store, dedupe_id: str, policy: str = ONCE, **more: Any) -> None:
    """One obligation that is due."""
    store.outbox.append(
        dedupe_id=dedupe_id, kind="final", transport=more.pop("transport", dedupe_id), payload={"text": dedupe_id},
        policy=policy, **more,  # type: ignore[arg-type]
    )


def send(store: Store, dedupe_id: str, verdict: Any = None) -> None:
    """Claim it and settle it, accepted unless said otherwise."""
    (claim,) = store.outbox.claim([dedupe_id])
    store.outbox.settle(claim, verdict or Accepted(result={"id": dedupe_id}))


def owing_store(folder: Path, *names: str, policy: str = ONCE) -> Path:
    """A native store with a session, that owes what is named; nobody has it open."""
    path = new_store(folder)
    add_session(path, "talk")
    with open_store(path=path) as store:
        for name in names:
            owe(store, name, policy)
    return tidy(path)


def states(path: Path) -> dict[str, tuple[Any, ...]]:
    """Of each obligation: state, attempts, recoveries, and what its verdict says."""
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        return {
            str(name): tuple(rest) for name, *rest in reader.rows(
                "SELECT dedupe_id, state, attempts, recoveries, coalesce(verdict ->> '$.why', verdict ->> '$.verdict')"
                " FROM outbox ORDER BY id"
            )
        }


def horizon(path: Path) -> float:
    """How far back ids are forgotten; 0 when none is."""
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        return float(reader.rows("SELECT coalesce(max(forgotten_to), 0) FROM outbox_horizon")[0][0])


def sent(path: Path, *names: str) -> list[str]:
    """What a sender that is up for these transports is given to send now."""
    with open_store(path=path) as store:
        return [one.dedupe_id for claim in store.outbox.claim(names, limit=100) for one in claim]
