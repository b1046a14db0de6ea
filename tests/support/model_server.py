"""A model server in a thread: real HTTP on a free port, with answers that a test names."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

# A status and a body: an object becomes JSON, a text is sent as it is.
Answer = tuple[int, Any]


class ModelServer:
    """Answers `GET /path` and `POST /path` as told, 404 otherwise, and keeps what it was asked."""

    def __init__(self, answers: Mapping[str, Answer], *, headers: Mapping[str, str] | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.authorizations: list[str | None] = []
        told = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                told.asked.append((f"{self.command} {self.path}", body))
                told.authorizations.append(self.headers.get("Authorization"))
                status, said = answers.get(f"{self.command} {self.path}", (404, {"error": "not found"}))
                content = (said if isinstance(said, str) else json.dumps(said)).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

            def log_message(self, *words: Any) -> None:
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        """Its address, as the key of it is written."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
