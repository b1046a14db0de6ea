"""Two servers that want one store, and what a plugin may send before it is known."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from hermes_state.errors import DiskFull
from hermes_state.gateway import Hello, Standing, VersionRange
from hermes_state.store import open_store
from hermes_state.testing import temporary_store
from tests.examples.programs import Program, Stage


def another(stage: Stage, *words: object) -> Program:
    """A second server on the same store."""
    return stage._start("gateway.py", "--store", stage.home, *words, dies_at=0)


@pytest.mark.slow
def test_a_second_server_takes_nothing_over_unless_told_and_an_odd_first_frame_ends_none(stage: Stage) -> None:
    """B16: supervised ones took turns; one that could not listen took the store and failed after that."""
    first = stage.gateway()
    second = another(stage, "--port", 0)
    refused = second.until("not serving")
    assert (refused["code"], second.wait()) == ("gateway_running", 75)
    assert refused["hint"].startswith("End that one first")
    busy = another(stage, "--port", stage._port, "--take-over")
    assert (busy.until("not serving")["code"], busy.wait()) == ("OSError", 1)
    with open_store(stage.home) as store:
        holder = store.gateway.holder()
    assert holder is not None and (holder.epoch, holder.standing) == (1, Standing.RUNNING)
    # What no first frame is, such as deep JSON, was a traceback and 1011, before anybody was authenticated (B11).
    for frame in ("[" * 50_000 + "]" * 50_000, '{"type":' + "[" * 900 + "]" * 900 + "}", "no JSON", "{}"):
        with connect(f"ws://127.0.0.1:{stage._port}", proxy=None) as plugin:
            plugin.send(frame)
            with pytest.raises(ConnectionClosed) as closed:
                plugin.recv(20)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4002
    third = another(stage, "--port", 0, "--take-over")
    assert third.until("serving")["epoch"] == 2
    assert first.until("replaced")["epoch"] == 1
    assert first.wait() == 75


def test_a_look_that_cannot_write_ends_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A5: one lock that somebody held for 20 s ended it. What it says has the hint."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    look = importlib.import_module("gateway").look
    sockets = importlib.import_module("gateway_sockets").Sockets

    def full(*_given: object, **_options: object) -> None:
        raise DiskFull("The disk is full.", hint="Make room.")

    with temporary_store(tmp_path) as store, store.gateway.serve(versions=VersionRange(1, 2)) as server:
        token = store.instances.enroll("mac", nickname="Mac", actor="test").token
        credential = store.instances.redeem(token, actor="plugin").credential
        server.accept(Hello(
            instance_id="mac", credential=credential, boot_id="b", versions=VersionRange(1, 2), plugin_version="1",
            hermes_version="1",
        ))
        with monkeypatch.context() as patch:
            patch.setattr(store.core, "write", full)
            look(server, sockets(store, server))
    assert json.loads(capsys.readouterr().out) == {
        "event": "not written", "code": "disk_full", "message": "The disk is full.", "hint": "Make room.",
    }
