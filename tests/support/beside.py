"""Work beside conversations and jobs of cron in a store: some of everything that their tables hold."""

from __future__ import annotations

from cron_store import Cron
from cron_store.records import Succeeded
from cron_store.schedule import parse
from hermes_state.routing import Source
from hermes_state.store import Store
from hermes_state.work.background import Tell
from hermes_state.work.targets import SendFailure


def work_beside(store: Store) -> None:
    """A process and a delegation that ended, a reply that is owed, a message that waits, a dead chat, a sign-in."""
    home, work = store.routing.home, store.work
    tell = Tell(mode="turn", transport="telegram", target="chat 7")
    process = work.processes.register("proc", home, command="make", session_id="talk-2", tell=tell)
    work.processes.exited(work.processes.running(process, home, 4711, scope="sandbox"), home, exit_code=2, output="no")
    given = work.delegations.dispatch("deleg", home, task={"goal": "look"}, session_id="talk-2", tell=tell)
    work.delegations.completed(given, home, "nothing unusual")
    work.streams.begin("turn 1", home, transport="telegram", target="chat 7")
    work.streams.message("turn 1", home, "m1")
    work.streams.finish("turn 1", "The final.", home)
    work.lanes.add("agent:main:telegram:dm:1", "m2", "And then?", home)
    work.targets.failed("telegram", "9", home, SendFailure.FORBIDDEN, reason="blocked")
    attempt = work.logins.begin(Source(platform="telegram", chat_type="dm", chat_id="1", user_id="u"), home)
    work.logins.shutdown(home)
    assert work.logins.get(attempt.attempt_id).attempt_id == attempt.attempt_id
    work.models.declare("override", "local", "model-a", {"context_window": 8192}, home)
    work.models.register("local", "user", {"base_url": "http://localhost:1"}, home)
    store.routing.topics.set("telegram", "1", home, user_id="u", enabled=True)


def jobs(store: Store) -> None:
    """A job that was run by hand, one that is paused, one that was removed."""
    cron, now = Cron(store), int(store.core.clock.now())
    every = parse("every 30m", zone="UTC", now=now)
    for name in ("brief", "paused", "gone"):
        cron.add(name, every, name=name.title(), fields={"prompt": "Write it."})
    claim = cron.take_manual("brief", "by hand")
    cron.start(claim)
    cron.settle(claim, Succeeded(result={"words": 3}))
    cron.pause("paused", reason="holiday")
    cron.remove("gone", actor="test", reason="not wanted")
