"""What travels between gateway.py and gateway_plugin.py, and how both talk to whoever started them.

A frame is one WebSocket message, a JSON object with a type. After the hello every frame carries the version that both
sides agreed on. A request of the server has an id; its answer names it.

| first frame of a plugin | |
|---|---|
| enroll | token; answered by enrolled (instance_id, credential), once |
| hello | instance_id, credential, boot_id, versions; answered by welcome, or refused and a close code |

| then, of the server | answer |
|---|---|
| stop, ensure, approval | what `hermes_state.turns` says of each; sent again until it is answered |
| turn.start | turn_id, text; answered once the turn is reserved, not once it ends |
| turn.steer | text; acknowledged by a message of the agent that replies to its id |
| ping | pong, with the same number |

Of the plugin: frames about a thread (their types are `hermes_state.turns.FrameKind`), and messages on a chat.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hermes_state import json_values

_SAYING = threading.Lock()


class Socket(Protocol):
    """Either end of a WebSocket. Sending is safe from several threads."""

    def send(self, message: str) -> None: ...
    def recv(self, timeout: float | None = None) -> str | bytes: ...


def send(socket: Socket, kind: str, version: int | None = None, **fields: Any) -> None:
    """Send one frame; `version` only once one was agreed on."""
    stamp = {} if version is None else {"version": version}
    socket.send(json.dumps({"type": kind, **fields, **stamp}))


def receive(socket: Socket, timeout: float | None = None) -> dict[str, Any]:
    """The next frame. Raises `ValueError` for what is none, `TimeoutError`, and what a closed socket raises."""
    data = socket.recv(timeout)
    frame = json_values.load(data if isinstance(data, str) else data.decode())  # bounded: no depth can end a reader
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise ValueError("a frame is a JSON object with a type")
    return frame


def say(event: str, **facts: Any) -> None:
    """Tell whoever started this program: one JSON object a line."""
    with _SAYING:
        print(json.dumps({"event": event, **facts}, default=str), flush=True)


def obey(commands: Mapping[str, Callable[..., object]]) -> None:
    """Carry out what is typed, a line each: a command, its words, and the rest of the line as the last of them.

    What a command gives is said as `done`; what it raises, with its code, as `refused`. Returns at the end of input.
    """
    for line in sys.stdin:
        name, *rest = line.split(maxsplit=1)[:2] or [""]
        command = commands.get(name)
        if command is None:
            say("refused", command=name, message=f"known are {', '.join(commands)}")
            continue
        count = len(inspect.signature(command).parameters)
        words = rest[0].strip().split(maxsplit=max(count - 1, 0)) if rest and count else []
        try:
            say("done", command=name, result=command(*words))
        except Exception as error:  # of a library as of a typing mistake: the program goes on
            say("refused", command=name, **told(error))


def told(error: BaseException) -> dict[str, str]:
    """An error as it is said: its code, what happened, and what to do next where it says so."""
    said = {"code": getattr(error, "code", type(error).__name__), "message": str(error)}
    return said | ({"hint": error.hint} if getattr(error, "hint", "") else {})
