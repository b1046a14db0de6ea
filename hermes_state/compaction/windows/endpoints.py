"""One name for one server, however its address is written.

Invariant: the key has no user, no password, no query and no fragment, and two spellings of one address are one key:
letters of scheme and host are small, the port of the scheme is left out, and so is what every path of an API begins or
ends with (`/v1`, `/chat/completions`).

Not for: asking the server (see `servers`). Keeping the address as given was rejected: `localhost:11434`,
`http://localhost:11434/` and `http://localhost:11434/v1` would each have a window of their own, and one of them a key.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from hermes_state.errors import InvalidInput

_PORTS = {"http": 80, "https": 443}
# Ends of a path that name a call of the API, not the server.
_CALLS = (
    "/chat/completions", "/completions", "/completion", "/messages", "/responses", "/embeddings", "/models",
    "/chat", "/generate", "/v1", "/v0", "/api",
)
_LONGEST = 2048


def endpoint_key(endpoint: str) -> str:
    """The key of an address: scheme, host, port where it is not the scheme's own, and the path below which the API is.

    An empty one stays empty: any server. A missing scheme is http. Raises `InvalidInput`; what it says has no part of
    the address in it.
    """
    if not isinstance(endpoint, str):
        raise _unusable("it is no text")
    text = endpoint.strip()
    if not text:
        return ""
    if len(text) > _LONGEST or any(ord(character) < 33 or ord(character) == 127 for character in text):
        raise _unusable("it is too long, or has spaces or control characters")
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _unusable("its host or port cannot be read") from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise _unusable("only http and https are spoken here")
    if not host:
        raise _unusable("it names no host")
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    where = "" if port is None or port == _PORTS[scheme] else f":{port}"
    return f"{scheme}://{name}{where}{_base(parts.path)}"


def model_at(text: str) -> tuple[str, str]:
    """Model and endpoint key of `MODEL@ENDPOINT`, or of a model alone. Raises `InvalidInput`.

    Some models have an `@` in their name: what follows the last one is an endpoint when it looks like an address.
    """
    for scheme in ("@http://", "@https://"):
        at = text.find(scheme)
        if at >= 0:
            return _named(text[:at]), endpoint_key(text[at + 1 :])
    model, at_sign, rest = text.rpartition("@")
    host = rest.partition("/")[0]
    if at_sign and ("." in host or ":" in host or host.lower() == "localhost"):
        return _named(model), endpoint_key(rest)
    return _named(text), ""


def _named(model: str) -> str:
    if not model.strip():
        raise InvalidInput("The model is missing: MODEL@ENDPOINT, as in qwen3:8b@localhost:11434.", argument="model")
    return model.strip()


def _base(path: str) -> str:
    path = path.rstrip("/")
    while True:
        for call in _CALLS:
            if path.endswith(call):
                path = path[: -len(call)].rstrip("/")
                break
        else:
            return path


def _unusable(why: str) -> InvalidInput:
    # The address is not repeated: it may carry a password.
    return InvalidInput(
        f"The endpoint cannot be used: {why}.", argument="endpoint", hint="Give it as in http://localhost:11434 ."
    )
