"""The sockets of gateway.py: what is heard on each, and what goes out on it.

One thread reads a socket and one sends what is owed on it, because a sender waits for the answers that the reader
hears. Whatever has to survive this process is a row before anybody is told; the dictionary here is all that is lost.
"""

from __future__ import annotations

import contextlib
import threading
from socket import SHUT_RDWR
from typing import Any

from gateway_frames import receive, say, send, told
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from hermes_state.errors import (
    IdempotencyConflict,
    InstanceRevoked,
    InvalidInput,
    NotFound,
    Refused,
    ServerReplaced,
    StaleGeneration,
    StateError,
    Unanswered,
    VersionIncompatible,
)
from hermes_state.gateway import (
    CloseCode,
    Connection,
    Ended,
    Generation,
    Hello,
    Server,
    VersionRange,
    answer_of,
    refusal_of,
)
from hermes_state.instances.close_codes import closing
from hermes_state.instances.liveness import Due
from hermes_state.instances.protocol import refuse_other_version, rejection
from hermes_state.outbox import Claim, NotSent, Verdict
from hermes_state.store import Store
from hermes_state.turns import Frame
from hermes_state.turns.frames import kind_of
from hermes_state.turns.steer import Message, Steers

# The method, and with it the deadline, of what the outbox owes to a gateway.
METHODS = {"stop": "session.stop", "ensure": "session.ensure", "approval": "approval.respond"}


class RefusedByPlugin(Exception):
    """The plugin says that it will never do what it was asked."""


class Sockets:
    """The live sockets of one server, by generation. Safe for threads."""

    def __init__(self, store: Store, server: Server) -> None:
        self.store, self.server = store, server
        self.steers = Steers()
        self._lock = threading.Lock()
        self._live: dict[str, tuple[ServerConnection, threading.Event]] = {}

    # --- from its first frame to its end ---------------------------------------------------------------------

    def serve(self, socket: ServerConnection) -> None:
        """Everything on one socket."""
        try:
            first = receive(socket, 10)
            if first["type"] == "enroll":
                return self._enroll(socket, str(first.get("token")))
            hello = hello_of(first)
        except ConnectionClosed:
            return None
        except (TimeoutError, KeyError, TypeError, ValueError, InvalidInput):
            return close(socket, CloseCode.NO_HELLO)
        try:
            accepted = self.server.accept(hello)
        except VersionIncompatible as error:
            said = rejection(error)
            send(socket, said.pop("type"), **said)
            self.close(str(error.facts["displaced"]), CloseCode.UPGRADE)  # an earlier connection of it is over too
            return close(socket, CloseCode.UPGRADE)
        except StateError as error:  # by the close code the plugin knows whether to come again
            send(socket, "refused", **told(error))
            return close(socket, code_for(error))
        connection, plan, owed = accepted.connection, accepted.recovery_plan, threading.Event()
        key = str(connection.generation)
        with self._lock:
            self._live[key] = socket, owed
        say(
            "accepted", instance_id=connection.instance_id, generation=key, boot_id_changed=accepted.boot_id_changed,
            version=connection.protocol_version, stops=len(plan.stops), ensures=len(plan.ensures),
            settled=len(plan.settlements), cancelled=len(plan.cancellations),
        )
        sender = threading.Thread(target=self._deliver, args=(connection, owed), daemon=True)
        try:
            send(socket, "welcome", connection.protocol_version, generation=key)
            sender.start()
            if accepted.displaced is not None:
                self.close(accepted.displaced.generation, CloseCode.REPLACED)
            while True:
                self._take(connection, receive(socket))
        except (ConnectionClosed, StaleGeneration, ServerReplaced, InstanceRevoked):
            return None  # closed by either end, replaced or revoked: the next look closes it with the code for that
        except (InvalidInput, Refused, ValueError, KeyError, TypeError, NotFound, IdempotencyConflict) as error:
            say("odd frame", instance_id=connection.instance_id, **told(error))
            return close(socket, 1002)
        except StateError as error:  # such as a locked store: not the plugin's fault, it comes again
            say("not taken", instance_id=connection.instance_id, **told(error))
            return close(socket, 1013)
        finally:
            with self._lock:
                del self._live[key]
            self.server.disconnect(connection.instance_id, connection.generation)
            owed.set()
            if sender.ident is not None:  # it was started; what it waited for has failed
                sender.join()
            say("gone", instance_id=connection.instance_id, generation=key)

    def _enroll(self, socket: ServerConnection, token: str) -> None:
        try:
            self.store.instances.check_token(token)
            # What takes time, such as asking a person, belongs here: there is no transaction, and nobody waits.
            issued = self.store.instances.redeem(token, actor="plugin")
        except StateError as error:
            return send(socket, "refused", **told(error))
        return send(socket, "enrolled", instance_id=issued.instance.instance_id, credential=issued.credential)

    # --- hearing ---------------------------------------------------------------------------------------------

    def _take(self, connection: Connection, frame: dict[str, Any]) -> None:
        """One frame of a plugin."""
        refuse_other_version(frame, agreed=connection.protocol_version)
        who = connection.instance_id, connection.generation
        match frame["type"]:
            case "pong":
                self.server.pong(*who, frame["probe"])
            case "answer" if "refused" in frame:
                self.server.refuse(*who, frame["id"], RefusedByPlugin(str(frame["refused"])))
            case "answer":
                self.server.answer(*who, frame["id"], frame["result"])
            case "message":
                routed = self.steers.route(
                    Message(chat_id=frame["chat_id"], text=frame["text"], reply_to=frame.get("reply_to"))
                )
                if routed.message_id is not None:
                    self.server.answer(*who, routed.message_id, routed.verdict)
                if routed.output is not None:
                    say("message", thread_id=routed.output.chat_id, text=routed.output.text)
            case kind:
                self._about_thread(connection, kind, frame)

    def _about_thread(self, connection: Connection, kind: str, frame: dict[str, Any]) -> None:
        """A frame about a thread: the library says whether it counts, and only then it is shown."""
        fields = frame["fields"]
        heard = Frame(
            kind=kind_of(kind), instance_id=connection.instance_id, thread_id=frame["thread_id"],
            session_id=frame["session_id"], turn_id=frame["turn_id"], fields=fields,
        )
        did = self.server.receive(connection.instance_id, connection.generation, heard)
        facts: dict[str, Any] = {"thread_id": heard.thread_id, "admission": did.admission}
        if did.admission == "admitted" and did.interaction is not None:
            facts |= {"question": did.interaction.id, "args": did.interaction.args, "state": did.interaction.state}
        elif did.admission == "admitted" and did.turn is not None:
            facts |= {"turn_id": did.turn.turn_id, "state": did.turn.state}
            facts |= {"text": fields["text"]} if "text" in fields else {}
        say(kind, **facts)

    # --- sending ---------------------------------------------------------------------------------------------

    def wake(self, connection: Connection) -> None:
        """There may be something to send on a connection."""
        if (found := self._found(connection.generation)) is not None:
            found[1].set()

    def _deliver(self, connection: Connection, owed: threading.Event) -> None:
        """Send what is owed to one connection until it ends. The library puts a stop before all else of its thread."""

        def handler(claim: Claim) -> Verdict:
            one = claim.primary
            try:
                result = self.request(connection, one.kind, one.payload, METHODS[one.kind])
            except RefusedByPlugin as error:
                return refusal_of(error)
            return answer_of(claim, result)

        while True:
            owed.clear()
            try:
                sent = self.server.send(connection.instance_id, connection.generation, handler, most=1)
            except (StaleGeneration, ServerReplaced, InstanceRevoked):
                return  # the socket is gone, or another server sends
            except Unanswered as error:
                say("unanswered", instance_id=connection.instance_id, **told(error))  # it stays owed
                continue
            except StateError as error:  # such as a full disk: it stays owed, and is sent when this is woken again
                say("not sent", instance_id=connection.instance_id, **told(error))
                owed.wait()
                continue
            for claim, verdict in sent:  # what follows from it is in the store by now
                one = claim.primary
                say("sent", kind=one.kind, thread_id=one.target, verdict=type(verdict).__name__, again=one.recovered)
            if not sent:
                owed.wait()

    def request(
        self, connection: Connection, kind: str, body: dict[str, Any], method: str, *, thread_id: str | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Send a request and give its answer. Raises `NotSent`, `Unanswered`, `RefusedByPlugin`, `StaleGeneration`.

        With a `thread_id` it is refused while a stop of that thread is owed.
        """
        with self.server.request(
            connection.instance_id, connection.generation, method, thread_id=thread_id, request_id=request_id
        ) as request:
            self.tell(connection, kind, id=request.id, body=body)
            return request.answer.result()

    def tell(self, connection: Connection, kind: str, **fields: Any) -> None:
        """Send one frame. Raises `NotSent` when there is no socket any more."""
        found = self._found(connection.generation)
        if found is None:
            raise NotSent("it has no socket")
        # Closed meanwhile: nobody knows whether it arrived, and whoever waits for an answer hears that from the reader.
        with contextlib.suppress(ConnectionClosed):
            send(found[0], kind, connection.protocol_version, **fields)

    def probe(self, due: Due) -> None:
        """Ask a connection whether it is still there."""
        connection = self.server.link(due.instance_id).connection
        if connection is not None and connection.generation == due.generation:
            with contextlib.suppress(NotSent):  # whoever reads from its socket hears of its end
                self.tell(connection, "ping", probe=due.probe)

    def end(self, ended: Ended) -> None:
        """Close the socket of a connection that the library ended; 4003 stands for several reasons, so it is said."""
        found, name = self._found(ended.connection.generation), ended.connection.instance_id
        if found is not None and ended.code == CloseCode.REFUSED:
            try:
                state = str(self.store.instances.get(name).state)
            except NotFound:
                state = "removed"
            with contextlib.suppress(ConnectionClosed):  # it is gone already
                send(found[0], "refused", code=f"instance_{state}", message=f"{name!r} was {state}.")
        self.close(ended.connection.generation, ended.code)

    def close(self, generation: Generation | str, code: int) -> None:
        """Close the socket of a connection that is over, saying why."""
        if (found := self._found(generation)) is not None:
            say("closing", generation=str(generation), code=int(code))
            close(found[0], code)

    def cut(self, connection: Connection) -> bool:
        """End a socket without a word; False when there is none."""
        if (found := self._found(connection.generation)) is not None:
            found[0].socket.shutdown(SHUT_RDWR)
        return found is not None

    def _found(self, generation: Generation | str) -> tuple[ServerConnection, threading.Event] | None:
        with self._lock:
            return self._live.get(str(generation))


def code_for(error: StateError) -> int:
    """With what to close the socket of a plugin that was not let in."""
    if isinstance(error, InvalidInput):
        return CloseCode.NO_HELLO
    # What is no word about the plugin, such as a locked store, is no reason for it to stay away.
    return CloseCode.REFUSED if isinstance(error, Refused) else 1013


def close(socket: ServerConnection, code: int) -> None:
    """Close a socket with a code, and the reason that goes with it."""
    known = closing(code)
    socket.close(int(code), "" if known is None else known.reason)


def hello_of(frame: dict[str, Any]) -> Hello:
    """The hello that a first frame is. Raises `KeyError`, `TypeError`, `ValueError`, `InvalidInput` for another one."""
    if frame["type"] != "hello":
        raise ValueError("the first frame is a hello")
    versions = VersionRange(frame["versions"]["lowest"], frame["versions"]["highest"])
    names = ("instance_id", "credential", "boot_id", "plugin_version", "hermes_version")
    return Hello(versions=versions, **{name: frame[name] for name in names})
