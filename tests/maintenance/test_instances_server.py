"""What `hermes instances` says of the gateway server: true at each step of its life, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow

SERVER = """
import json, sys, gates
from hermes_state.gateway import Hello, VersionRange
from hermes_state.store import open_store

path, credential = sys.argv[1], sys.argv[2]
VERSIONS = VersionRange(2, 3)
with open_store(path=path) as store, store.gateway.serve(versions=VERSIONS) as server:
    server.accept(Hello(instance_id="laptop", credential=credential, boot_id="b", versions=VERSIONS,
        plugin_version="1", hermes_version="1"))
    server.tick()
    gates.reach("serving")
    ended = []
    while not ended:
        server.wait(None)
        ended = server.poll().ended
    gates.reach("ended", json.dumps([ended[0].connection.instance_id, ended[0].code]))
    gates.wait("quit")
"""


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(name="credential")
def enrolled(db: Path) -> str:
    with open_store(path=db) as store:
        minted = store.instances.enroll("laptop", nickname="My laptop", actor="operator")
        return store.instances.redeem(minted.token, actor="plugin").credential


def test_list_and_show_say_which_process_serves_and_never_who_is_connected(
    db: Path, credential: str, run_cli: RunCli, child: Children
) -> None:
    """Must show 4: no server, one that runs, one that revoked in another process, one that ended, one killed."""

    def said(*words: str) -> Any:
        ran = run_cli("instances", *words, "--db", db, "--json")
        assert ran.exit_code == 0, ran.stderr
        assert credential not in ran.stdout + ran.stderr
        assert "connected" not in ran.stdout
        return ran.json["server"]

    assert said("list") is None
    serving = child(SERVER, db, credential)
    serving.wait_for("serving")
    running = said("list")
    assert running == said("show", "laptop")
    assert (running["epoch"], running["standing"], running["pid"]) == (1, "running", serving.pid)
    assert running["since"] == "2027-01-15T08:00:00.000Z"
    listed = run_cli("instances", "list", "--db", db).stdout.splitlines()
    assert listed[0].endswith(" by plugin, last seen today 08:00")
    assert listed[-1].startswith(f"Gateway server: PID {serving.pid} on ")
    assert "since today 08:00, epoch 1; it runs (" in listed[-1]
    revoked = run_cli("instances", "revoke", "laptop", "--reason", "stolen", "--yes", "--db", db)
    assert revoked.exit_code == 0
    assert serving.wait_for("ended") == '["laptop", 4003]'
    serving.release("quit")
    serving.finish()
    assert said("list") == {
        "epoch": 1, "standing": "none", "host": None, "pid": None, "since": None, "because": "it let go",
    }
    with open_store(path=db) as store:
        minted = store.instances.enroll("laptop", actor="operator")
        again = store.instances.redeem(minted.token, actor="plugin").credential
    killed = child(SERVER, db, again)
    killed.wait_for("serving")
    killed.kill()
    dead = said("show", "laptop")
    assert (dead["epoch"], dead["standing"], dead["pid"]) == (2, "ended", killed.pid)
    told = run_cli("instances", "list", "--db", db).stdout.splitlines()[-1]
    assert "; it is gone (" in told
