"""What a killed gateway knew of its chats is what the next one answers by. T4.2 and R88 with real processes.

The adapters are an agent's; here a connection is a name. The first process learns who received what and is killed; the
second one has only the rows, and says for every set of connected bots who would answer and who would take in.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.support.children import Children

pytestmark = pytest.mark.slow

# Four topologies of the matrix; chats are named after them.
GATEWAY = """
    import sys, gates
    from pathlib import Path
    from hermes_state.routing import ProfileRoute, Source, Transport, canonicalize, resolve, served_homes
    from hermes_state.store import open_store

    root = Path(sys.argv[1])
    stores = {"default": open_store(root), "work": open_store(root / "profiles" / "work")}
    homes = {profile: store.routing.home for profile, store in stores.items()}
    bots = {profile: Transport(platform="telegram", profile=profile, home=home) for profile, home in homes.items()}
    as_default = Transport(platform="telegram", profile="work", home=homes["work"], runs_as="default")
    routes = [ProfileRoute(profile="work", platform="telegram", chat_id="shared")]
    for chat, receiver in (
        ("own of default", bots["default"]), ("own of work", bots["work"]), ("shared", bots["default"]),
        ("secondary's", as_default),
    ):
        source = Source(platform="telegram", chat_type="group", chat_id=chat)
        event = canonicalize(source, lambda given: resolve(
            given, receiver=receiver, live=[receiver], served=served_homes(homes.values()), routes=routes,
            multiplexed=True,
        ))
        store = stores[event.identity.runtime_profile]
        route = store.routing.bind(event, store.sessions.create(source="telegram").id)
        store.routing.resume_later(route, event.identity.runtime_home, reason="restart")
    gates.reach("bound")
    gates.wait("never", 600)
"""

NEXT = """
    import itertools, json, sys
    from pathlib import Path
    from hermes_state.routing import State, Transport, delivery, intake, restore, served_homes
    from hermes_state.store import open_store

    root = Path(sys.argv[1])
    stores = [open_store(root), open_store(root / "profiles" / "work")]
    homes = {store.routing.home.profile: store.routing.home for store in stores}
    said = {}
    for store in stores:
        for route in store.routing.page(states=[State.RESUMING]):
            event = restore(route, served_homes(homes.values()), multiplexed=True)
            for up in ((), ("default",), ("work",), ("default", "work")):
                live = [Transport(platform="telegram", profile=one, home=homes[one]) for one in up]
                answers, takes = delivery(event, live).transport, intake(event, live).transport
                assert delivery(route, live).transport is answers
                said[f"{route.key.chat_id}|{' '.join(up)}"] = [
                    route.runtime_profile, answers and answers.profile, takes and takes.profile
                ]
    print(json.dumps(said))
"""

# chat: where it runs, whose bot received it
RIGHT = {
    "own of default": ("default", "default"), "own of work": ("work", "work"), "shared": ("work", "default"),
    "secondary's": ("default", "work"),
}


def test_t4_2_the_next_process_answers_by_the_bot_that_received_or_not_at_all(child: Children, tmp_path: Path) -> None:
    gateway = child(GATEWAY, tmp_path / "hermes")
    gateway.wait_for("bound")
    gateway.kill()
    said = json.loads(child(NEXT, tmp_path / "hermes").finish())
    assert len(said) == 16
    for (chat, (runtime, bot)), up in itertools.product(
        RIGHT.items(), ("", "default", "work", "default work")
    ):
        assert said[f"{chat}|{up}"] == [runtime, bot if bot in up.split() else None, None], (chat, up)
