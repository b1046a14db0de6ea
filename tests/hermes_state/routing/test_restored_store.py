"""A store whose content was replaced by older content: no generation falls, and nothing decided before counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import RouteMoved
from hermes_state.routing import Inbound, Transport, resolve
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import source


def event(store: Store) -> Inbound:
    home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=home)
    identity = resolve(source(), receiver=bot, live=[bot], served={"default": home}, multiplexed=False)
    return Inbound(source=source(), identity=identity)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_restored_conversation_is_of_a_higher_generation_than_any_before(tmp_path: Path, run_cli: Any) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        home, given = store.routing.home, event(store)
        route = store.routing.bind(given, store.sessions.create(source="telegram").id)
    ran = run_cli("sessions", "backup", "--db", db, "--json")
    assert ran.exit_code == 0, ran.stderr
    (backup,) = (path for path in (db.parent / "backups").iterdir() if re.fullmatch(r"state-.*\.db", path.name))
    with open_store(path=db) as store:
        for _ in range(3):
            route = store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="new")
    assert route.generation == 4
    ran = run_cli("sessions", "restore", backup, "--db", db, "--yes", "--json")
    assert ran.exit_code == 0, ran.stderr
    with open_store(path=db) as store:
        now = store.routing.get(route.session_key)
        assert now is not None
        assert now.generation > route.generation
        assert now.incarnation != route.incarnation
        with pytest.raises(RouteMoved):
            store.routing.suspend(route, home, reason="decided over the old content")
        store.routing.forget(now, home, actor="test", reason="test")
        again = store.routing.bind(event(store), store.sessions.create(source="telegram").id)
        assert again.generation == now.generation + 1
