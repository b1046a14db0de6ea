"""Stores with gateway instances, for tests of what becomes of them when content moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_state import open_store
from hermes_state.errors import StateError
from hermes_state.instances.states import State
from hermes_state.store import Store
from tests.maintenance.backups.making import tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.gateways import CREDENTIAL, enrolled, serve


def serving_store(folder: Path, *names: str) -> Path:
    """A native store with enrolled instances of these names, or with everything there is; nobody has it open."""
    path = new_store(folder)
    add_session(path, "talk")
    with open_store(path=path) as store:
        for name in names:
            enrolled(store, name)
        if not names:
            serve(store)
    return tidy(path)


def stands(path: Path) -> dict[str, str]:
    """The state of each instance."""
    with open_store(path=path, read_only=True) as store:
        return {one.instance_id: str(one.state) for one in store.instances.page(states=State)}


def opens(store: Store, instance_id: str, credential: str = CREDENTIAL) -> str:
    """Whether a credential lets somebody in: "yes", or the code of the error."""
    try:
        store.instances.authenticate(instance_id, credential)
    except StateError as error:
        return error.code
    return "yes"


def let_in(path: Path, instance_id: str, credential: str = CREDENTIAL) -> str:
    """The same of a store that nobody has open."""
    with open_store(path=path, read_only=True) as store:
        return opens(store, instance_id, credential)


def turns(path: Path) -> dict[str, tuple[Any, ...]]:
    """State and error of each turn."""
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        return {str(name): tuple(rest) for name, *rest in reader.rows(
            "SELECT turn_id, state, error FROM turns ORDER BY no"
        )}


def statuses(path: Path) -> dict[str, str]:
    """The status of each thread."""
    with open_store(path=path, read_only=True) as store, store.core.reader() as reader:
        return {str(name): str(status) for name, status in reader.rows("SELECT thread_id, status FROM thread_states")}


def epoch(path: Path) -> int:
    """The epoch of the server that was started last."""
    with open_store(path=path, read_only=True) as store:
        holder = store.gateway.holder()
        return 0 if holder is None else holder.epoch
