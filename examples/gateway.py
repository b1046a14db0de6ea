"""A small gateway over a WebSocket: `python examples/gateway.py --store DIR --port 0` says its port and serves.

Plugins (gateway_plugin.py) enroll and connect to it. People type, a line each:

    bind THREAD INSTANCE   a thread is served by that instance from now on
    start THREAD TEXT      a turn
    steer THREAD TEXT      a word to the turn that runs
    answer NUMBER TEXT     a question: accept, acceptForSession, decline; any text where a text was asked for
    stop THREAD            end its session, also while its plugin is away
    ensure THREAD          ask for its session anew, after a stop
    show                   threads, open questions, who is connected
    drop INSTANCE          cut its socket without a word, as a bad network would
    look                   do what is due now, instead of within a second
    quit

Instances are added, renamed, revoked and removed by `hermes instances`, in a process of its own, while this one runs.
What happens is told in lines of JSON. While it runs, another one on its store is refused (exit code 75), unless that is
told to --take-over; then this one says so and ends with 75. Sockets are in gateway_sockets.py, frames in
gateway_frames.py.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from socket import create_server
from typing import Any

from gateway_frames import obey, say, told
from gateway_sockets import Sockets
from websockets.sync.server import serve

from hermes_state.errors import StateError
from hermes_state.gateway import Connection, Server, VersionRange
from hermes_state.outbox import NotSent
from hermes_state.store import Store, open_store
from hermes_state.turns import Turn


class People:
    """What people can have done. What a method gives is shown to them."""

    def __init__(self, store: Store, server: Server, sockets: Sockets) -> None:
        self._store, self._server, self._sockets = store, server, sockets
        self.quitting = threading.Event()

    def commands(self) -> dict[str, Callable[..., object]]:
        names = ("bind", "start", "steer", "answer", "stop", "ensure", "show", "drop", "look", "quit")
        return {name: getattr(self, name) for name in names}

    def bind(self, thread_id: str, instance_id: str) -> object:
        bound = self._store.instances.bind(thread_id, instance_id, f"session-{thread_id}")
        self._store.turns.open_thread(thread_id)
        return {"session_id": bound.session_id}

    def start(self, thread_id: str, text: str) -> object:
        def announce(turn: Turn, connection: Connection) -> None:
            body = {"thread_id": thread_id, "session_id": turn.session_id, "turn_id": turn.turn_id, "text": text}
            self._sockets.request(connection, "turn.start", body, "turn.start", thread_id=thread_id)

        turn = self._server.start(thread_id, announce)
        return {"turn_id": turn.turn_id, "state": turn.state}

    def steer(self, thread_id: str, text: str) -> object:
        bound = self._store.instances.binding(thread_id)
        connection = None if bound is None else self._server.link(bound.instance_id).connection
        if connection is None:
            raise NotSent("nobody who serves that thread is connected")
        message_id = secrets.token_hex(8)
        # Known before it is sent: the acknowledgement is a message like any other, and may be here at once.
        self._sockets.steers.expect(message_id)
        try:
            return self._sockets.request(
                connection, "turn.steer", {"thread_id": thread_id, "message_id": message_id, "text": text},
                "turn.steer", thread_id=thread_id, request_id=message_id,
            )
        finally:
            self._sockets.steers.leave(message_id)

    def answer(self, number: str, text: str) -> object:
        turns, question = self._store.turns, self._store.turns.question(int(number))
        if question.kind == "approval":
            answered = turns.answer(question.id, text)
        else:
            answered = turns.answer(question.id, answers={str(one["id"]): text for one in question.questions})
        return {"state": answered.state, "decision": answered.decision, "answers": answered.answers}

    def stop(self, thread_id: str) -> object:
        stop = self._store.turns.stop(thread_id)
        return None if stop is None else {"stop_id": stop.stop_id, "state": stop.state}

    def ensure(self, thread_id: str) -> object:
        return {"outstanding": self._store.turns.ensure(thread_id).outstanding}

    def show(self) -> object:
        """From the store where it is there; only who is connected is known to nobody else."""
        turns, instances = self._store.turns, self._store.instances
        threads: dict[str, Any] = {}
        for instance in instances.page():
            for bound in instances.bound(instance.instance_id):
                last = next(iter(turns.history(bound.thread_id)), None)
                threads[bound.thread_id] = {
                    "status": turns.thread(bound.thread_id).status, "turn": None if last is None else last.state,
                    "error": None if last is None else last.error,
                }
        return {
            "connected": {one.instance_id: str(one.generation) for one in self._server.connected()},
            "instances": {one.instance_id: self._server.status(one.instance_id) for one in instances.page()},
            "threads": threads, "questions": [one.id for one in turns.questions()],
        }

    def drop(self, instance_id: str) -> object:
        connection = self._server.link(instance_id).connection
        return connection is not None and self._sockets.cut(connection)

    def look(self) -> None:
        look(self._server, self._sockets)

    def quit(self) -> None:
        self.quitting.set()


def look(server: Server, sockets: Sockets) -> None:
    """Do what is due now."""
    try:
        ticked = server.tick()
    except StateError as error:  # such as a full disk, or a lock that is held: the next look tells what this one found
        say("not written", **told(error))
        return
    for ended in ticked.ended:  # revoked or removed by anybody, silent, or another server took over
        sockets.end(ended)
    for connection in ticked.owed:
        sockets.wake(connection)
    for due in ticked.probes:
        sockets.probe(due)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="folder of the store")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free")
    parser.add_argument("--versions", default="1-2", help="of the protocol, such as 1-2")
    parser.add_argument("--take-over", action="store_true", help="from a server that runs, instead of being refused")
    asked = parser.parse_args()
    lowest, _, highest = asked.versions.partition("-")
    versions = VersionRange(int(lowest), int(highest or lowest))
    try:
        return run(asked.store, asked.port, versions, take_over=asked.take_over)
    except (StateError, OSError) as error:  # a server runs on the store already, or the port is taken
        say("not serving", **told(error))
        return error.exit_code if isinstance(error, StateError) else 1


def run(folder: Path, port: int, versions: VersionRange, *, take_over: bool) -> int:
    """Serve until it is ended. The port first: who cannot listen takes no store over from who can."""
    with (
        create_server(("127.0.0.1", port)) as bound, open_store(folder) as store,
        store.gateway.serve(versions=versions, take_over=take_over) as server,
    ):
        sockets = Sockets(store, server)
        people = People(store, server, sockets)
        # Probes of our own, which also say whether the plugin's program answers, take the place of the transport's. A
        # plugin that does not answer must not keep us from the others while its socket is closed.
        with serve(sockets.serve, sock=bound, ping_interval=None, close_timeout=1.0) as listening:
            threading.Thread(target=listening.serve_forever, daemon=True).start()
            say("serving", port=listening.socket.getsockname()[1], epoch=server.epoch)
            threading.Thread(target=obey, args=(people.commands(),), daemon=True).start()
            try:
                while not people.quitting.is_set() and not server.replaced:
                    look(server, sockets)
                    server.wait(1.0)  # or until the store changes, whichever process changed it
            except KeyboardInterrupt:
                say("interrupted")
            # Here the sockets are closed, with 1001: plugins connect again, to the next server. Nothing is stopped.
        if server.replaced:
            say("replaced", epoch=server.epoch, message="another server took the store over")
            return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
