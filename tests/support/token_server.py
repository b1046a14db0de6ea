"""A provider that ends the whole login when it sees one refresh token twice.

    with TokenServer() as server:
        first = server.log_in("account")      # a refresh token that works once
        server.posts                          # every token that was sent, in order

Clients speak one line of JSON each way: {"refresh_token": ...}, answered with a token or {"error": ...}. Standard
library only: `post` is what children call.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
from typing import Any, Self


class TokenServer:
    """Listens on a port of this machine; every method may be called while clients send."""

    def __init__(self, *, lasts_seconds: float = 3600.0) -> None:
        self.lasts_seconds = lasts_seconds
        self.posts: list[str] = []
        self.burned: set[str] = set()
        self.answers: list[dict[str, Any]] = []  # what it says next, in place of its own answer
        self._accounts: dict[str, str] = {}  # of every token ever given out
        self._current: dict[str, str] = {}
        self._changed = threading.Condition()
        server = self

        class Line(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                asked = json.loads(self.rfile.readline() or b"{}")
                if asked:
                    self.wfile.write(json.dumps(server.answer(asked["refresh_token"])).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that was killed does not read its answer

        self._server = Server(("127.0.0.1", 0), Line)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def log_in(self, account: str) -> str:
        """A new grant: its refresh token."""
        with self._changed:
            self.burned.discard(account)
            return self._give(account)

    def _give(self, account: str) -> str:
        token = f"refresh-{account}-{secrets.token_hex(16)}"
        self._accounts[token], self._current[account] = account, token
        return token

    def answer(self, token: str) -> dict[str, Any]:
        """What the provider says to one POST of a token."""
        with self._changed:
            self.posts.append(token)
            self._changed.notify_all()
            if self.answers:
                return self.answers.pop(0)
            account = self._accounts[token]
            if account in self.burned or self._current[account] != token:
                self.burned.add(account)
                return {"status": 400, "error": "refresh_token_reused"}
            return {
                "status": 200, "access_token": f"access-{account}-{secrets.token_hex(16)}",
                "refresh_token": self._give(account), "expires_in": self.lasts_seconds, "token_type": "Bearer",
                "scope": "all", "id_token": f"id-{secrets.token_hex(16)}",
            }

    def wait_for_post_of(self, account: str, seconds: float = 60.0) -> None:
        """Block until a token of that account was sent."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(self._accounts[token] == account for token in self.posts), seconds
            ), f"no POST of {account}"

    def posts_of(self, account: str) -> list[str]:
        """The tokens of one account that were sent, in order."""
        with self._changed:
            return [token for token in self.posts if self._accounts[token] == account]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def post(port: int, token: str) -> dict[str, Any]:
    """Send a token and give the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(json.dumps({"refresh_token": token}).encode() + b"\n")
        found: dict[str, Any] = json.loads(connection.makefile().readline())
        return found
