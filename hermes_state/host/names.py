"""What a host is told by its gateways, as it is kept: one spelling for each home, no secret, no text without end.

Invariant: two spellings of one home never stand side by side, since a gateway would be started for each. What looks
like a credential is taken out before it is written; that is a net below callers who should not give any, and no proof.

Not for: homes as routing knows them (see `routing.homes`, whose spelling this is).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from hermes_state.errors import InvalidInput

MOST_CHARACTERS = 2_000  # of a text for people
_HIDDEN = "***"
_SECRETS = (
    (re.compile(r"(\w+://)[^/\s@]+@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\b(bot)?\d{5,}:[\w-]{3,}"), rf"\1{_HIDDEN}"),  # a bot's token of Telegram
    (re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|xox[a-z]|xapp|AIza|ya29)[-_.][\w.-]{8,}"), _HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w.-]+"), _HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic|bot)\s+[\w.~+/=-]{16,}"), rf"\1 {_HIDDEN}"),
    (
        re.compile(
            r"(?i)([\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential)[\w-]*[\"']?\s*[=:]\s*|"
            r"--[\w-]*(?:token|secret|passw(?:or)?d|api-?key)[\w-]*\s+)[\"']?[^\s\"'&,;]+"
        ),
        rf"\1{_HIDDEN}",
    ),
)
# A part of a URL's path that no person made up: long, of letters and digits without a word's shape.
_PART = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w.~%:+=-]{20,}")


def canonical(home: object) -> str:
    """The one spelling of a home. Raises `InvalidInput` for what is no absolute path."""
    from hermes_state.routing import canonical_home

    given = os.fspath(home) if isinstance(home, (str, os.PathLike)) else home
    if not isinstance(given, str) or not os.path.isabs(given) or "\0" in given:
        raise InvalidInput(
            f"A home is the absolute path of a folder, not {given!r:.80}.", hint="Give the whole path.", argument="home"
        )
    return str(canonical_home(given))


def homes_of(served: Iterable[str]) -> frozenset[str]:
    """Homes, each by its one spelling. Raises `InvalidInput`, also for one path where a list of them belongs."""
    if isinstance(served, (str, bytes, os.PathLike)):
        raise InvalidInput(
            f"Homes come as a list, not as the one path {served!r:.80}.", hint="Put it into a list.", argument="served"
        )
    return frozenset(canonical(home) for home in served)


def without_secrets(text: str) -> str:
    """The text without what looks like a credential."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def path_without_secrets(path: str) -> str:
    """The path of a URL without the parts that look like a credential."""
    return "/".join(_HIDDEN if _PART.fullmatch(part) else part for part in without_secrets(path).split("/"))


def plain(text: str | None) -> str | None:
    """A text for people, as it is kept: no credential, no character that ends a text for others, 2,000 characters."""
    if text is None:
        return None
    text = text[: MOST_CHARACTERS * 4].replace("\0", "\N{REPLACEMENT CHARACTER}")
    said = without_secrets(text)
    return said if len(said) <= MOST_CHARACTERS else f"{said[: MOST_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
