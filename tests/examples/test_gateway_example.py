"""The example of a gateway, end to end: real sockets, real processes, kill -9 of either.

Each thing that has to survive is looked for where it must be found: at the server, at the plugin, or by
`hermes instances`, which is a third process that knows the store only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Failed
from hermes_state.store import open_store
from tests.examples.programs import CommandRefused, Program, Stage

Hermes = Callable[..., Any]


def states(hermes: Hermes, server: str = "running") -> dict[str, str]:
    """How every instance stands, by the command line, which also says how the server does."""
    said = hermes("list")
    assert said["server"]["standing"] == server
    return {one["instance_id"]: one["state"] for one in said["instances"]}


def enrolled(stage: Stage) -> tuple[Program, Program]:
    """A server and a plugin that is connected to it, which serves a thread."""
    gateway = stage.gateway()
    with open_store(stage.home) as store:
        token = store.instances.enroll("laptop", nickname="My laptop", actor="test").token
    plugin = stage.plugin("--token", token)
    connected(gateway, plugin)
    gateway.do("bind", "t1", "laptop")
    return gateway, plugin


def connected(gateway: Program, plugin: Program) -> dict[str, Any]:
    """Both say that they are; gives what the server found to recover."""
    generation = plugin.until("connected")["generation"]
    return gateway.until("accepted", generation=generation)


def came_back(gateway: Program, plugin: Program) -> dict[str, Any]:
    """The plugin is told to connect now, instead of when its next attempt is due."""
    plugin.do("online")
    return connected(gateway, plugin)


def thread(gateway: Program) -> tuple[str, str]:
    """The status of the thread, and the state of its last turn."""
    found = gateway.do("show")["threads"]["t1"]
    return found["status"], found["turn"]


@pytest.mark.slow
def test_a_turn_goes_on_or_ends_as_it_did_while_the_socket_was_down(stage: Stage) -> None:
    """Must show 4, T1.34, T1.35: a reconnect during a turn settles it, whichever way it went meanwhile."""
    gateway, plugin = enrolled(stage)
    gateway.do("start", "t1", "hello out there")
    assert gateway.until("turn.completed", thread_id="t1")["state"] == "completed"
    assert [said["text"] for said in gateway.said if said["event"] == "content.delta"] == [
        "You ", "said: ", "hello ", "out ", "there ",
    ]

    gateway.do("start", "t1", "wait")  # it goes on
    gateway.do("drop", "laptop")
    gateway.until("gone")
    plugin.until("disconnected", code="connection_lost")
    found = came_back(gateway, plugin)
    assert (found["ensures"], found["boot_id_changed"]) == (1, False)
    gateway.until("sent", kind="ensure", verdict="Accepted")
    assert thread(gateway) == ("running", "running")
    assert gateway.do("steer", "t1", "go on") == "queued"
    assert gateway.until("turn.completed")["state"] == "completed"

    gateway.do("start", "t1", "wait")  # it ends while nobody can hear it
    plugin.do("offline")
    gateway.until("gone")
    assert plugin.do("tell", "t1", "the end")
    came_back(gateway, plugin)
    assert gateway.until("turn.completed", admission="admitted")["state"] == "completed"
    gateway.until("sent", kind="ensure", verdict="Accepted")
    assert thread(gateway) == ("ready", "completed")

    turn_id = gateway.do("start", "t1", "wait")["turn_id"]  # its process ends
    plugin.kill()
    gateway.until("gone")
    assert connected(gateway, stage.plugin())["boot_id_changed"]
    gateway.until("sent", kind="ensure", verdict="Accepted")
    assert thread(gateway) == ("ready", "failed")
    with open_store(stage.home) as store:
        turn = store.turns.get(turn_id)
        assert turn is not None
        assert turn.error == "its gateway does not know it any more"


@pytest.mark.slow
def test_a_question_outlives_the_socket_and_the_server_but_not_the_process_that_asked(stage: Stage) -> None:
    """Must show 4, T1.30, T1.31, T1.33: answerable or cancelled, and nothing open for ever."""
    gateway, plugin = enrolled(stage)
    gateway.do("start", "t1", "ask make test")
    asked = gateway.until("approval.requested", state="open")
    assert asked["args"] == {"command": "make test"}
    gateway.do("drop", "laptop")
    gateway.until("gone")
    plugin.until("disconnected")
    came_back(gateway, plugin)
    assert gateway.do("show")["questions"] == [asked["question"]]

    gateway.kill()
    plugin.do("offline")
    gateway = stage.gateway()
    assert gateway.do("show")["questions"] == [asked["question"]]
    assert gateway.do("answer", asked["question"], "accept")["decision"] == "once"  # nobody is there to hear it
    came_back(gateway, plugin)
    assert gateway.until("turn.completed")["state"] == "completed"
    plugin.until("once", kind="approval.respond")
    said = "".join(one["text"] for one in gateway.said if one["event"] == "content.delta")
    assert said == "make test: once "

    gateway.do("start", "t1", "choose a colour")
    asked = gateway.until("user_input.requested", state="open")
    gateway.kill()
    plugin.kill()
    gateway = stage.gateway()
    assert gateway.do("show")["questions"] == [asked["question"]]  # nobody knows yet that its process is gone
    found = connected(gateway, stage.plugin())
    assert (found["cancelled"], found["boot_id_changed"]) == (1, True)
    gateway.until("sent", kind="ensure")
    assert gateway.do("show")["questions"] == []
    assert thread(gateway) == ("ready", "failed")
    with pytest.raises(CommandRefused, match="request_not_found"):
        gateway.do("answer", asked["question"], "blue")


@pytest.mark.slow
def test_a_stop_of_a_plugin_that_is_away_has_one_effect_before_anything_else_of_its_thread(stage: Stage) -> None:
    """T1.41, T1.43: also when the server that was asked for it is killed."""
    gateway, plugin = enrolled(stage)
    gateway.do("start", "t1", "wait")
    plugin.do("offline")
    gateway.until("gone")
    stop_id = gateway.do("stop", "t1")["stop_id"]
    assert gateway.do("stop", "t1")["stop_id"] == stop_id
    assert thread(gateway) == ("stop_pending", "stopping")
    with pytest.raises(CommandRefused, match="not_connected"):
        gateway.do("start", "t1", "hello")
    gateway.kill()
    gateway = stage.gateway()
    found = came_back(gateway, plugin)
    assert (found["stops"], found["ensures"]) == (1, 0)
    gateway.until("sent", kind="stop", verdict="Accepted")
    assert plugin.until("once", kind="session.stop")["operation"] == stop_id
    assert thread(gateway) == ("stopped", "stopped")
    assert not any(said["event"].startswith(("turn.", "content.")) for said in gateway.said)
    with pytest.raises(CommandRefused, match="thread_stopped"):
        gateway.do("start", "t1", "hello")
    gateway.do("ensure", "t1")
    gateway.until("sent", kind="ensure")
    gateway.do("start", "t1", "hello")
    assert gateway.until("turn.completed")["state"] == "completed"
    assert sum(said["event"] == "once" and said["kind"] == "session.stop" for said in plugin.said) == 1


@pytest.mark.slow
def test_what_a_session_says_between_a_reconnect_and_the_acknowledgement_of_its_stop_is_not_shown(
    stage: Stage, fake_clock: FakeClock
) -> None:
    """T1.42: the stop is held back by whoever claimed it, while the agent ends its turn in words."""
    gateway, plugin = enrolled(stage)
    turn_id = gateway.do("start", "t1", "wait")["turn_id"]
    plugin.do("offline")
    gateway.until("gone")
    gateway.do("stop", "t1")
    with open_store(stage.home) as store:
        (claim,) = store.turns.claim("laptop")
        assert came_back(gateway, plugin)["stops"] == 1
        assert plugin.do("tell", "t1", "the end")
        gateway.until("turn.completed", admission="admitted", state="stopped")
        assert [said for said in gateway.said if said["event"].startswith("content.")] == [
            {"event": "content.delta", "thread_id": "t1", "admission": "stopping"}
        ] * 3
        assert thread(gateway) == ("stop_pending", "stopped")
        store.turns.settle(claim, Failed(why="it was held back"))
    fake_clock.advance(60.0)
    gateway.do("look")
    gateway.until("sent", kind="stop", verdict="Accepted")
    assert plugin.until("once", kind="session.stop")["outcome"] == "nothing ran"
    assert thread(gateway) == ("stopped", "stopped")
    with open_store(stage.home) as store:
        turn = store.turns.get(turn_id)
        assert turn is not None
        assert store.turns.items(turn) == []


@pytest.mark.slow
def test_hermes_instances_says_how_it_stands_from_its_enrollment_to_its_tombstone(
    stage: Stage, hermes: Hermes
) -> None:
    """Must show 4, T1.15: another process revokes and removes it while it is connected."""
    gateway = stage.gateway()
    token = hermes("enroll", "laptop", "--nickname", "My laptop")["token"]
    assert states(hermes) == {"laptop": "configured"}
    plugin = stage.plugin("--token", token)
    connected(gateway, plugin)
    gateway.do("bind", "t1", "laptop")
    gateway.do("start", "t1", "ask make test")
    gateway.until("approval.requested")
    assert states(hermes) == {"laptop": "enrolled"}
    hermes("revoke", "laptop", "--yes", "--reason", "lost")
    assert gateway.until("closing")["code"] == 4003
    assert plugin.until("disconnected") == {
        "event": "disconnected", "code": "instance_revoked", "state": "needs_attention"
    }
    assert plugin.wait() == 1
    assert (states(hermes), gateway.do("show")["instances"]) == ({"laptop": "revoked"}, {"laptop": "revoked"})
    assert gateway.do("show")["questions"] == []
    assert thread(gateway)[1] == "failed"
    again = stage.plugin()  # a restart changes nothing: a person has to act
    assert again.until("needs attention")["code"] == "instance_revoked"
    assert again.wait() == 1
    hermes("remove", "laptop", "--yes", "--reason", "lost")
    gateway.kill()
    assert states(hermes, server="ended") == {}
    assert [(one["instance_id"], one["references"]) for one in hermes("tombstones")["tombstones"]] == [("laptop", 1)]


@pytest.mark.slow
def test_a_plugin_of_another_version_and_one_that_hangs_are_sent_away_by_name(
    stage: Stage, fake_clock: FakeClock
) -> None:
    """T1.22, T1.46: no version in common is 4004; three probes without an answer are 4008."""
    gateway, plugin = enrolled(stage)
    plugin.freeze()
    for _ in range(4):  # a probe, and three times nothing
        fake_clock.advance(10.0)
        gateway.do("look")
    assert gateway.until("closing")["code"] == 4008
    gateway.until("gone")
    plugin.thaw()
    assert plugin.until("disconnected")["code"] == "not_answering"
    came_back(gateway, plugin)
    newer = stage.plugin("--versions", "3-4")
    assert newer.until("disconnected")["code"] == "version_incompatible"
    assert plugin.until("disconnected")["code"] == "version_incompatible"  # it is over for the old one as well
    assert (newer.wait(), plugin.wait()) == (1, 1)
    assert gateway.do("show")["instances"] == {"laptop": "upgrade-required"}
