"""The plugin of gateway.py: `python examples/gateway_plugin.py --store DIR --server ws://127.0.0.1:PORT --token TOKEN`.

The token is what `hermes instances enroll` printed; it is needed once, then the credential is in DIR. Type `offline`,
`online`, `tell THREAD TEXT` (to the agent, on its own machine) or `quit`; what happens is told in lines of JSON. What
the agent does is in gateway_agent.py.

What a plugin has to do, and where it is here: one boot id for each start of the process (`Plugin`); a stop, a decision
and a turn once, however often they arrive (`_once`, a row of its own store); when it is asked for a session, say again
what may have been lost with a socket, and only then answer (`_ensure`); and not try for ever what never helps (`run`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway_agent import Agent, Turn
from gateway_frames import Socket, obey, receive, say, send
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from hermes_state.errors import FrameRefused
from hermes_state.instances import failures
from hermes_state.instances.failures import Attempts, State, code_of_close
from hermes_state.instances.protocol import refuse_other_version
from hermes_state.store import Store, open_store
from hermes_state.turns import operations

TICK_SECONDS = 0.1


class Plugin:
    """One process of a plugin."""

    def __init__(self, store: Store, folder: Path, url: str, versions: tuple[int, int]) -> None:
        self.store, self.url, self.versions = store, url, versions
        self.boot_id = secrets.token_hex(8)
        self.agent = Agent(store, self.emit)
        self.attempts = Attempts()
        self.commands: dict[str, Callable[..., object]] = {
            "offline": self.offline, "online": self.online, "tell": self.tell, "quit": self.quit
        }
        self._file = folder / "credential.json"
        self._socket: ClientConnection | None = None
        self._version = 0
        self._wanted, self._quitting = True, threading.Event()

    # --- enrolling -------------------------------------------------------------------------------------------

    def enroll(self, token: str) -> None:
        """Spend a token, and keep the credential where only this user can read it."""
        with connect(self.url, proxy=None) as socket:
            send(socket, "enroll", token=token)
            frame = receive(socket, 60)
        if frame["type"] != "enrolled":
            raise SystemExit(f"It was not enrolled: {frame.get('message')} {frame.get('hint', '')}".strip())
        staged = self._file.with_suffix(".new")
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            json.dump({name: frame[name] for name in ("instance_id", "credential")}, out)
        staged.replace(self._file)
        self.store.core.write(lambda tx: failures.attended(tx, frame["instance_id"]))
        say("enrolled", instance_id=frame["instance_id"])

    # --- being connected -------------------------------------------------------------------------------------

    def run(self) -> int:
        """Connect, and connect again, until it is ended or a person has to act."""
        if not self._file.exists():
            raise SystemExit("It was never enrolled: give it a --token.")
        who = json.loads(self._file.read_text(encoding="utf-8"))
        name, clock = who["instance_id"], self.store.core.clock
        with self.store.core.reader() as reader:
            stopped = failures.attention(reader, name)
        if stopped is not None:
            say("needs attention", code=stopped.code, since=stopped.since)
            return 1
        while not self._quitting.is_set():
            if self._wanted and self.attempts.state is State.CONNECTING:
                code = self._connection(who)
                self.attempts = self.attempts.failed(code, clock.monotonic())
                say("disconnected", code=code, state=self.attempts.state)
            if self.attempts.state is State.NEEDS_ATTENTION:
                return self._give_up(name, self.attempts.code or "")
            self._quitting.wait(TICK_SECONDS)
            self.attempts = self.attempts.tick(clock.monotonic())
        return 0

    def _give_up(self, name: str, why: str) -> int:
        """A person has to act; a restart must not begin anew what a revoked credential never gets."""
        at = self.store.core.clock.now()
        self.store.core.write(lambda tx: failures.need_attention(tx, name, why, at=at))
        return 1

    def _connection(self, who: dict[str, str]) -> str:
        """One connection from its hello to its end; gives the code of the failure that ended it."""
        try:
            with connect(self.url, proxy=None, ping_interval=None) as socket:
                lowest, highest = self.versions
                send(
                    socket, "hello", instance_id=who["instance_id"], credential=who["credential"],
                    boot_id=self.boot_id, versions={"lowest": lowest, "highest": highest}, plugin_version="example",
                    hermes_version="none",
                )
                welcome = receive(socket, 30)
                if welcome["type"] != "welcome":
                    return str(welcome["code"])
                self._version = welcome["version"]
                self.attempts = self.attempts.accepted()
                self._socket = socket
                say("connected", version=self._version, generation=welcome["generation"])
                while True:
                    frame = receive(socket)
                    if frame["type"] == "refused":  # said before its socket is closed: more than the close code can
                        return str(frame["code"])
                    refuse_other_version(frame, agreed=self._version)
                    self._take(socket, frame)
        except ConnectionClosed as closed:
            return code_of_close(closed.rcvd.code if closed.rcvd is not None else 1006)
        except (OSError, ValueError, WebSocketException, FrameRefused):
            return "connection_lost"
        finally:
            self._socket = None

    def offline(self) -> None:
        """Drop the socket and stay away."""
        self._wanted = False
        if (socket := self._socket) is not None:
            socket.close()

    def online(self) -> None:
        """Connect now."""
        self._wanted = True
        self.attempts = self.attempts.attended()

    def tell(self, thread_id: str, text: str) -> bool:
        """A word to the agent that no server sent."""
        return self.agent.tell(thread_id, "steer", text)

    def quit(self) -> None:
        """End the process."""
        self._quitting.set()
        self.offline()

    # --- saying ----------------------------------------------------------------------------------------------

    def emit(self, kind: str, turn: Turn | None, **fields: Any) -> None:
        """Send a frame about a turn, if there is somebody to hear it; what counts is said again when asked."""
        socket = self._socket
        if turn is not None:
            about = {"thread_id": turn.thread_id, "session_id": turn.session_id, "turn_id": turn.turn_id}
            fields = about | {"fields": fields}
        if socket is not None:
            with contextlib.suppress(ConnectionClosed):  # whoever reads from it sees it as well, and connects again
                send(socket, kind, self._version, **fields)

    # --- hearing ---------------------------------------------------------------------------------------------

    def _take(self, socket: Socket, frame: dict[str, Any]) -> None:
        if frame["type"] == "ping":
            send(socket, "pong", self._version, probe=frame["probe"])
            return
        if frame["type"] == "turn.steer":  # acknowledged by what the agent says on its chat, as chat programs do
            self.agent.steer(**frame["body"])
            return
        doing = {
            "stop": self._stop, "ensure": self._ensure, "approval": self._decided, "turn.start": self._start,
        }.get(frame["type"])
        answer: dict[str, Any] = (
            {"refused": "unsupported-message"} if doing is None else {"result": doing(frame["body"])}
        )
        send(socket, "answer", self._version, id=frame["id"], **answer)

    def _once(
        self, operation: str, kind: str, body: dict[str, Any], outcome: dict[str, Any], do: Callable[[], object]
    ) -> dict[str, Any]:
        """Do something for the first request of an id; the answer to a repeat is what the first one got.

        The record is there before it is done. A kill in between ends what was to be done too: turns are of this
        process.
        """

        def work(tx: Any) -> operations.Admitted:
            at = self.store.core.clock.now()
            admitted = operations.admit(
                tx, operation, kind, instance_id="server", thread_id=body["thread_id"], request=body, epoch=1, at=at
            )
            if admitted.new:
                operations.complete(tx, operation, outcome, at=at)
            return admitted

        admitted = self.store.core.write(work, durability="power")
        if not admitted.new:
            return dict(admitted.operation.outcome)
        do()
        say("once", kind=kind, operation=operation, **outcome)
        return outcome

    def _stop(self, body: dict[str, Any]) -> dict[str, Any]:
        ran = self.agent.find(body["thread_id"]) is not None
        outcome = {"outcome": "stopped" if ran else "nothing ran"}
        return self._once(body["stop_id"], "session.stop", body, outcome, lambda: self.agent.stop(body["thread_id"]))

    def _ensure(self, body: dict[str, Any]) -> dict[str, Any]:
        session, thread = self.store.sessions.ensure(body["session_id"], "gateway"), body["thread_id"]
        # The end of the turn, or the question in it, may have gone with a socket. It goes out before the answer does.
        self.agent.say_again(thread, body["turn_id"])
        turn = self.agent.find(thread)
        return {
            "session_id": session.id, "active_turn_id": None if turn is None else turn.turn_id,
            "boot_id": self.boot_id, "history_rows": self.store.messages.count(session.id),
        }

    def _decided(self, body: dict[str, Any]) -> dict[str, Any]:
        said = body["decision"] if body["kind"] == "approval" else body["answers"]
        return self._once(
            f"approval/{body['interaction']}", "approval.respond", body, {"taken": True},
            lambda: self.agent.tell(body["thread_id"], body["request_id"], said),
        )

    def _start(self, body: dict[str, Any]) -> dict[str, Any]:
        turn = Turn(body["thread_id"], body["session_id"], body["turn_id"], body["text"])
        return self._once(turn.turn_id, "turn.start", body, {"started": True}, lambda: self.agent.begin(turn))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="the plugin's own folder")
    parser.add_argument("--server", required=True, help="ws://HOST:PORT")
    parser.add_argument("--token", help="to enroll first")
    parser.add_argument("--versions", default="1-2", help="of the protocol, such as 1-2")
    asked = parser.parse_args()
    lowest, _, highest = asked.versions.partition("-")
    asked.store.mkdir(parents=True, exist_ok=True)
    with open_store(asked.store) as store:
        plugin = Plugin(store, asked.store, asked.server, (int(lowest), int(highest or lowest)))
        if asked.token:
            plugin.enroll(asked.token)
        threading.Thread(target=obey, args=(plugin.commands,), daemon=True).start()
        return plugin.run()


if __name__ == "__main__":
    raise SystemExit(main())
