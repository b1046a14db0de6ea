"""Asking a model server what window it serves.

Invariant: a probe reads only, waits a few seconds at most for each question, believes documented fields only, and tells
what is served from what the model was trained for. The key of the caller goes into a header and into nothing else.

What is asked, in this order, until a served window is known:

    llama-server  GET /v1/models `meta.n_ctx` (served), `meta.n_ctx_train` (trained)
                  GET /props `default_generation_settings.n_ctx` (served)
    vLLM          GET /v1/models `max_model_len` (served)
    LM Studio     GET /api/v0/models `loaded_context_length` (served), `max_context_length` (trained)
    Ollama        GET /api/ps `context_length` (served), POST /api/show `parameters` num_ctx, `model_info` (trained)

Not for: tables of known models. They name what a model was trained for, and a local server gives 4,096 of it.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from hermes_state.compaction.windows.endpoints import endpoint_key
from hermes_state.compaction.windows.records import LARGEST, SMALLEST
from hermes_state.errors import EndpointUnreachable, InvalidInput

# For one question. A server on the same machine answers in a millisecond; one that is loading a model does not answer.
TIMEOUT_SECONDS = 3.0
# A list of models is some kilobytes; a whole catalogue of a router some megabytes.
_LONGEST_ANSWER = 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One number that a server gave."""

    # tokens
    tokens: int
    # served now, or what the model was trained for
    kind: Literal["served", "trained"]
    # `source`: probe; `server`, `path` and `field` where it stood
    evidence: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What a server answered."""

    # the model asked about
    model: str
    # the server, as `endpoint_key` writes it
    endpoint: str
    # at most one served and one trained; empty when it answered nothing of use
    facts: tuple[Fact, ...]
    # every question with the status of its answer, or why there was none: "GET /props": "404"
    asked: Mapping[str, str] = field(default_factory=dict)


def probe(endpoint: str, model: str, *, timeout: float = TIMEOUT_SECONDS, api_key: str | None = None) -> Probe:
    """Ask a server about the window of a model.

    `endpoint`: its address, with or without `/v1`. `timeout`: seconds for each of at most five questions. `api_key`:
    sent as a bearer token. Raises `EndpointUnreachable` when nothing answers there at all, `InvalidInput`.
    """
    key = endpoint_key(endpoint)
    if not key:
        raise InvalidInput("A probe needs the address of a server.", argument="endpoint")
    if not 0 < timeout <= 600:
        raise InvalidInput(f"timeout is a number of seconds from 0 to 600, not {timeout!r}.", argument="timeout")
    talk = _Talk(key, timeout, api_key)
    served: Fact | None = None
    trained: Fact | None = None
    for fact in _facts(talk, model):
        if fact.kind == "trained":
            trained = trained or fact
        elif served is None:
            served = fact
        if served is not None and trained is not None:
            break
    facts = tuple(fact for fact in (served, trained) if fact is not None)
    return Probe(model=model, endpoint=key, facts=facts, asked=dict(talk.asked))


def opener(base: str) -> urllib.request.OpenerDirector:
    """What opens the addresses below `base`: it follows no redirect, and asks no proxy for this machine itself."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if _is_here(base):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _facts(talk: _Talk, model: str) -> Iterator[Fact]:
    """Served numbers of a server come before those that a model was trained for, so the first of a kind counts."""
    found = _of_openai_list(talk, model)
    yield from found
    if any(fact.kind == "served" for fact in found):
        return
    props = talk.ask("GET", "/props")
    settings = props.get("default_generation_settings") if isinstance(props, Mapping) else None
    if isinstance(settings, Mapping):
        yield from _fact(settings.get("n_ctx"), "served", "llama-server", "/props", "default_generation_settings.n_ctx")
        return
    studio = talk.ask("GET", "/api/v0/models")
    for entry in _entries(studio, "data", ("id",), model):
        yield from _fact(
            entry.get("loaded_context_length"), "served", "lm-studio", "/api/v0/models", "loaded_context_length"
        )
        yield from _fact(
            entry.get("max_context_length"), "trained", "lm-studio", "/api/v0/models", "max_context_length"
        )
    running = talk.ask("GET", "/api/ps")
    for entry in _entries(running, "models", ("name", "model"), model, only=False):
        yield from _fact(entry.get("context_length"), "served", "ollama", "/api/ps", "context_length")
    if isinstance(running, Mapping) and "models" in running:
        yield from _of_ollama_show(talk, model)


def _of_openai_list(talk: _Talk, model: str) -> list[Fact]:
    found: list[Fact] = []
    path = "/v1/models"
    for entry in _entries(talk.ask("GET", path), "data", ("id", "root"), model):
        meta = entry.get("meta")
        if isinstance(meta, Mapping):
            found += _fact(meta.get("n_ctx"), "served", "llama-server", path, "meta.n_ctx")
            found += _fact(meta.get("n_ctx_train"), "trained", "llama-server", path, "meta.n_ctx_train")
        found += _fact(entry.get("max_model_len"), "served", "vllm", path, "max_model_len")
        # Groq, OpenRouter: routers that serve what they list.
        found += _fact(entry.get("context_window"), "served", "openai-like", path, "context_window")
        found += _fact(entry.get("context_length"), "served", "openai-like", path, "context_length")
    return found


def _of_ollama_show(talk: _Talk, model: str) -> Iterator[Fact]:
    path = "/api/show"
    shown = talk.ask("POST", path, {"model": model})
    if not isinstance(shown, Mapping):
        return
    parameters = shown.get("parameters")
    for line in parameters.splitlines() if isinstance(parameters, str) else ():
        words = line.split()
        if len(words) == 2 and words[0] == "num_ctx" and words[1].isascii() and words[1].isdigit():
            yield from _fact(int(words[1][:12]), "served", "ollama", path, "parameters.num_ctx")
    info = shown.get("model_info")
    for name, value in info.items() if isinstance(info, Mapping) else ():
        if isinstance(name, str) and name.endswith(".context_length"):
            yield from _fact(value, "trained", "ollama", path, f"model_info.{name}")


def _fact(tokens: Any, kind: Literal["served", "trained"], server: str, path: str, field: str) -> list[Fact]:
    if type(tokens) is not int or not SMALLEST <= tokens <= LARGEST:
        return []
    return [Fact(
        tokens=tokens, kind=kind, evidence={"source": "probe", "server": server, "path": path, "field": field}
    )]


def _entries(
    answer: Any, key: str, names: tuple[str, ...], model: str, *, only: bool = True
) -> list[Mapping[str, Any]]:
    """The entries of a list that are about the model; with `only`, a list of one is about it whatever its name."""
    listed = answer.get(key) if isinstance(answer, Mapping) else None
    entries = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    wanted = {model, f"{model}:latest"}
    named = [one for one in entries if any(one.get(name) in wanted for name in names if isinstance(one.get(name), str))]
    # llama-server serves one model, under the path of its file.
    return named or (entries if only and len(entries) == 1 else [])


class _Talk:
    """The questions put to one server."""

    def __init__(self, base: str, timeout: float, api_key: str | None) -> None:
        self._base = base
        self._timeout = timeout
        self._headers = {"Accept": "application/json", "User-Agent": "hermes-state"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._open = opener(base).open
        self.asked: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The parsed answer; None when the server has no such path or answers something else than JSON."""
        request = urllib.request.Request(f"{self._base}{path}", method=method, headers=self._headers)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        question = f"{method} {path}"
        try:
            with self._open(request, timeout=self._timeout) as answer:
                self.asked[question] = str(answer.status)
                text = _read(answer, time.monotonic() + self._timeout)
        except urllib.error.HTTPError as error:
            self.asked[question] = str(error.code)
            error.close()
            return None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            said = type(reason if isinstance(reason, BaseException) else error).__name__
            if self.asked:  # it is there: it only does not answer this
                self.asked[question] = said
                return None
            raise EndpointUnreachable(
                f"No model server answers at {self._base}: {said} at {question}, within {self._timeout:g} s.",
                hint="Check that it runs and that the address is right. A window can also be declared.",
                endpoint=self._base, reason=said,
            ) from error
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self.asked[question] += ", not JSON"
            return None


def _read(answer: Any, until: float) -> bytes:
    """The body, up to a size and a moment: a server that sends a byte a second must not hold the caller."""
    parts: list[bytes] = []
    size = 0
    while size < _LONGEST_ANSWER and time.monotonic() < until:
        part = answer.read1(65_536)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    return b""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: the key of one server is not for another."""

    def redirect_request(self, *request: Any, **more: Any) -> None:
        """Follow nothing."""
        return None


def _is_here(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
