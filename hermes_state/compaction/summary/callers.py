"""Summarisers outside this process: a program, and a server that speaks OpenAI's protocol.

Invariant: a call ends within its timeout; what went wrong is an error with the exit status or the HTTP status and the
end of what the other side said, and never holds a key. Nothing is retried here.

Not for: deciding whether the answer is a summary (see `checked`). A client library was rejected: one request with a
timeout needs none.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from hermes_state.compaction.summary.requests import SummaryRequest
from hermes_state.errors import InvalidInput, SummarizerFailed

_MOST_BYTES = 8_000_000  # of an answer: a summary has thousands


class CommandSummarizer:
    """Calls a program for each request; made by `command_summarizer`."""

    def __init__(self, argv: Sequence[str], timeout: float) -> None:
        if shutil.which(argv[0]) is None:
            raise InvalidInput(
                f"The summariser {argv[0]} is no program that can be run.",
                hint="Give the path of a program that may be executed.", argument="argv",
            )
        self.argv = list(argv)
        self.timeout = timeout
        self.name = "command:" + os.path.basename(self.argv[0])

    def __call__(self, request: SummaryRequest) -> str:
        document = {
            "kind": request.kind, "messages": list(request.messages), "max_tokens": request.max_tokens,
            "window": request.window, "previous": request.previous, "part": request.part, "parts": request.parts,
        }
        program = self.argv[0]
        asked = json.dumps(document).encode("utf-8")
        try:
            # A group of its own: a program that waits for another one takes it along when it is ended.
            running = subprocess.Popen(
                self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise SummarizerFailed(
                f"The summariser {program} cannot be run: {error.strerror or error}.",
                hint="Give the path of a program that may be executed.", summarizer=self.name,
            ) from error
        try:
            out, err = running.communicate(asked, timeout=self.timeout)
        except subprocess.TimeoutExpired as error:
            raise SummarizerFailed(
                f"The summariser {program} did not answer within {self.timeout:g} seconds and was ended.",
                hint="Give it more time, or use the extractive summary.", summarizer=self.name,
            ) from error
        finally:
            if running.stdout is not None and not running.stdout.closed:  # not read to its end
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.communicate()
        if running.returncode != 0:
            said = err.decode("utf-8", "replace").strip()[-500:] or "nothing on stderr"
            raise SummarizerFailed(
                f"The summariser {program} ended with status {running.returncode}: {said}",
                hint="Run it by hand with a request as JSON on its standard input.", summarizer=self.name,
                status=running.returncode,
            )
        return out[:_MOST_BYTES].decode("utf-8", "replace")


class OpenAISummarizer:
    """Asks a server for each request; made by `openai_summarizer`."""

    def __init__(self, url: str, model: str, api_key_env: str | None, timeout: float, extra: dict[str, Any]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise InvalidInput(
                "The address of a summariser is http:// or https://, a host and a path, without a user or a password.",
                hint="Put a key into an environment variable and name that.",
            )
        base = url.rstrip("/")
        self.url = base if base.endswith("/chat/completions") else base + "/chat/completions"
        self.model, self.api_key_env, self.timeout, self.extra = model, api_key_env, timeout, extra
        self.place = parts.hostname + (f":{parts.port}" if parts.port else "")
        self.name = f"openai:{model}@{self.place}"

    def __call__(self, request: SummaryRequest) -> str:
        body = {
            "model": self.model, "messages": list(request.messages), "max_tokens": request.max_tokens, "temperature": 0,
            "stream": False, **self.extra,
        }
        headers = {"Content-Type": "application/json"}
        if self.api_key_env is not None:
            key = os.environ.get(self.api_key_env)
            if not key:
                raise self._failed(f"needs a key, and the environment variable {self.api_key_env} is not set")
            headers["Authorization"] = f"Bearer {key}"
        asked = urllib.request.Request(self.url, json.dumps(body).encode("utf-8"), headers, method="POST")
        try:
            with urllib.request.urlopen(asked, timeout=self.timeout) as answer:
                raw = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(2_000).decode("utf-8", "replace")
            what = f"refused with HTTP status {error.code}: {self._without_key(said)[:500]}"
            raise self._failed(what, error.code) from None
        except TimeoutError as error:
            raise self._failed(f"did not answer within {self.timeout:g} seconds") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(f"cannot be reached: {getattr(error, 'reason', None) or error}") from error
        return self._text(raw)

    def _text(self, raw: bytes) -> str:
        try:
            content = json.loads(raw)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError) as error:
            raise self._failed("gave an answer that is no chat completion") from error
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def _without_key(self, said: str) -> str:
        key = os.environ.get(self.api_key_env) if self.api_key_env else None
        return said.replace(key, "[key]") if key else said

    def _failed(self, what: str, status: int | None = None) -> SummarizerFailed:
        return SummarizerFailed(
            f"The summariser {self.model} at {self.place} {what}.",
            hint="Look at the server, or use the extractive summary.", summarizer=self.name, status=status,
        )


def command_summarizer(argv: Sequence[str], timeout: float = 120.0) -> CommandSummarizer:
    """A program: the request as a JSON document on its stdin, the summary on its stdout, exit status 0.

    The document has the fields of `SummaryRequest`. `name` is 'command:<program>'. Raises `SummarizerFailed` when
    called.
    """
    if not argv or not argv[0]:
        raise InvalidInput(
            "A summariser that is a program needs its path.", hint="For example: command:/usr/local/bin/summarise"
        )
    return CommandSummarizer(argv, timeout)


def openai_summarizer(
    url: str, model: str, *, api_key_env: str | None = None, timeout: float = 120.0, extra: dict[str, Any] | None = None
) -> OpenAISummarizer:
    """A server at `url` (as far as `/v1`, or the whole address): POST /chat/completions with `model`, temperature 0.

    `api_key_env` names the environment variable that holds the key; it is read at each call. `extra` are fields of the
    request besides, for example `tools`, so that an extension has the very prefix of the live request. `name` is
    'openai:<model>@<host>'. Raises `SummarizerFailed` when called.
    """
    return OpenAISummarizer(url, model, api_key_env, timeout, extra or {})
