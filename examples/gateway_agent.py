"""The scripted agent of gateway_plugin.py: what runs in a turn, and what is still known of it when somebody asks.

It repeats what it is told, word by word, unless that begins with

    ask COMMAND    it asks a person whether it may run a command, and says what the person decided; it runs nothing
    choose WORDS   it asks a person a question, and says the answer
    wait           it says nothing until it is steered

A turn is in memory: it ends with its process. Its transcript is a session of the plugin's store, one message a turn, so
that both ends can compare how long the history is.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hermes_state.store import Store


@dataclass(eq=False)
class Turn:
    """One turn."""

    thread_id: str
    session_id: str
    turn_id: str  # minted by the server
    text: str  # what the person said
    inbox: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    question: tuple[str, dict[str, Any]] | None = None  # the frame of what it waits for a person to say
    kept: bool = False  # whether it is in the transcript


class Agent:
    """The turns of one process. `emit(type, turn, **fields)` sends a frame, or drops it when nobody is there."""

    def __init__(self, store: Store, emit: Callable[..., None]) -> None:
        self._store, self._emit = store, emit
        self._lock = threading.Lock()
        self._active: dict[str, Turn] = {}  # by thread
        self._ended: dict[str, Turn] = {}  # the last one of each thread

    def find(self, thread_id: str) -> Turn | None:
        """The turn that a thread has now."""
        with self._lock:
            return self._active.get(thread_id)

    def begin(self, turn: Turn) -> None:
        """Run a turn in a thread of its own."""
        with self._lock:
            self._active[turn.thread_id] = turn
        threading.Thread(target=self._run, args=(turn,), daemon=True).start()

    def tell(self, thread_id: str, what: str, said: Any) -> bool:
        """Give something to the turn of a thread; False when there is none."""
        turn = self.find(thread_id)
        if turn is not None:
            turn.inbox.put((what, said))
        return turn is not None

    def steer(self, thread_id: str, message_id: str, text: str) -> None:
        """Acknowledge a steer by a reply on the chat, then do what it says."""
        turn = self.find(thread_id)
        answer = "\u23e9 Steer queued" if turn is not None else "No active agent"
        self._emit("message", None, chat_id=thread_id, text=answer, reply_to=message_id)
        if turn is not None:
            turn.inbox.put(("steer", text))

    def stop(self, thread_id: str) -> None:
        """End the turn of a thread without another word: the server says how a turn ends that it stopped."""
        with self._lock:
            turn = self._active.pop(thread_id, None)
        if turn is not None:
            self._keep(turn, "(stopped)")
            turn.inbox.put(("stop", None))

    def say_again(self, thread_id: str, turn_id: str | None) -> None:
        """Send the end of that turn once more, or the question that it waits with; the server knows both by an id."""
        with self._lock:
            active, ended = self._active.get(thread_id), self._ended.get(thread_id)
        if ended is not None and ended.turn_id == turn_id:
            self._emit("turn.completed", ended, state="completed")
        elif active is not None and active.question is not None:
            kind, fields = active.question
            self._emit(kind, active, **fields)

    # --- the script ------------------------------------------------------------------------------------------

    def _run(self, turn: Turn) -> None:
        self._emit("turn.started", turn)
        said = self._work(turn)
        if said is None:
            return
        for word in said.split():
            self._emit("content.delta", turn, text=f"{word} ", index=0)
        self._keep(turn, said)
        with self._lock:
            if self._active.get(turn.thread_id) is not turn:
                return  # it was stopped meanwhile
            # Its end is known before it is said, and said before it is not active any more: whoever asks in between
            # hears of it.
            self._ended[turn.thread_id] = turn
        self._emit("turn.completed", turn, state="completed")
        with self._lock:
            if self._active.get(turn.thread_id) is turn:
                del self._active[turn.thread_id]

    def _work(self, turn: Turn) -> str | None:
        """What the agent says in the end; None when it was stopped."""
        first, _, rest = turn.text.partition(" ")
        if first == "wait":
            steered = self._wait(turn, "steer")
            return None if steered is None else f"Steered: {steered}"
        if first == "ask":
            self._emit("item.updated", turn, item_type="command_execution", command=rest)
            decision = self._ask(
                turn, "approval.requested", request_type="command_execution_approval", args={"command": rest}
            )
            return None if decision is None else f"{rest}: {decision}"
        if first == "choose":
            answers = self._ask(turn, "user_input.requested", questions=[{"id": "choice", "question": rest}])
            return None if answers is None else f"You chose {answers.get('choice')}"
        return f"You said: {turn.text}"

    def _ask(self, turn: Turn, kind: str, **fields: Any) -> Any:
        """Ask a person, and wait; a socket that drops meanwhile changes nothing."""
        request_id = secrets.token_hex(8)
        turn.question = kind, {"request_id": request_id, **fields}
        self._emit(kind, turn, **turn.question[1])
        said = self._wait(turn, request_id)
        turn.question = None
        return said

    @staticmethod
    def _wait(turn: Turn, for_what: str) -> Any:
        while True:
            what, said = turn.inbox.get()
            if what == "stop":
                return None
            if what == for_what:
                return said

    def _keep(self, turn: Turn, said: str) -> None:
        with self._lock:
            if turn.kept:
                return
            turn.kept = True
        self._store.sessions.ensure(turn.session_id, "gateway")
        self._store.messages.append(turn.session_id, role="assistant", content=said)
