"""Counting by a llama-server: `POST /tokenize`.

Invariant: each text is asked for once (a bounded memory of what was counted), each question waits some seconds at
most, and an answer that is no list of tokens is an error, never a zero.

Not for: servers that have no such path (Ollama, LM Studio, vLLM's differs); use a file or the estimator with its
learned factor. A small text was measured at 0.7 ms on one machine.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections import OrderedDict

from hermes_state.compaction.tokens.adapters.pieces import plain
from hermes_state.compaction.windows.endpoints import endpoint_key
from hermes_state.compaction.windows.servers import opener
from hermes_state.errors import EndpointUnreachable, InvalidInput

# A request of more is cut: servers limit what they take.
_LONGEST = 4 * 2**20
_LONGEST_ANSWER = 128 * 2**20
_REMEMBERED = 4096


class LlamaServer:
    """A counter that asks a llama-server."""

    def __init__(
        self, endpoint: str, *, timeout: float = 10.0, api_key: str | None = None, name: str | None = None
    ) -> None:
        """`endpoint`: the server's address. `timeout`: seconds a question. `name`: how counts are recorded; by default
        the address. Nothing is asked before the first count. Raises `InvalidInput`."""
        self._base = endpoint_key(endpoint)
        if not self._base:
            raise InvalidInput("A llama-server needs an address.", argument="endpoint")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._open = opener(self._base).open
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()
        self.name = name or f"llama-server:{self._base}"

    def count(self, text: str) -> int:
        """Tokens of a text. Raises `EndpointUnreachable` when the server does not say."""
        if not text:
            return 0
        text = plain(text)
        key = hashlib.sha256(text.encode("utf-8")).digest()
        with self._lock:
            found = self._seen.get(key)
            if found is not None:
                self._seen.move_to_end(key)
                return found
        found = sum(self._ask(text[start : start + _LONGEST]) for start in range(0, len(text), _LONGEST))
        with self._lock:
            self._seen[key] = found
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return found

    def _ask(self, text: str) -> int:
        body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
        request = urllib.request.Request(f"{self._base}/tokenize", data=body, headers=self._headers, method="POST")
        try:
            with self._open(request, timeout=self._timeout) as answer:
                tokens = json.loads(answer.read(_LONGEST_ANSWER)).get("tokens")
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
            raise self._failed(f"HTTP {status}") from error
        except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError) as error:
            raise self._failed(type(error).__name__) from error
        if not isinstance(tokens, list):
            raise self._failed("no list of tokens")
        return len(tokens)

    def _failed(self, reason: str) -> EndpointUnreachable:
        return EndpointUnreachable(
            f"{self._base} does not count tokens: {reason} at POST /tokenize.",
            hint="Only llama-server has this path. Count with a tokenizer file, or leave the counter out.",
            endpoint=self._base, reason=reason,
        )
