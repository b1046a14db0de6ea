"""What is looked for, and what takes its place.

Invariant: a replacement is never matched again, so scrubbing twice changes nothing the second time; equal secrets get
equal replacements within a run, and nothing about a secret can be learned from its replacement. JSON stays JSON: its
strings are searched as they read, not as they are escaped.

Not for: where the texts are. Patterns of our own for every kind of secret were rejected: `detect-secrets` keeps them.
Asking a service whether a secret still works, which that library can, is never done.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import pkgutil
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.errors import InvalidInput
from hermes_state.json_values import MOST_LEVELS
from maintenance.dialects.foreign.content import MARKER

PRESET = "secrets"
_MARK = re.compile(r"\[redacted [\w-]+ [0-9a-f]{6}\]")
# Strings that are kept for the proof; beyond that only the patterns are looked for again.
MOST_KEPT = 10_000
# Keys that came after the newest release of detect-secrets, by their published prefixes.
_NEWER = {
    "anthropic": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "openai": r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{40,}",
    "google-api": r"AIza[0-9A-Za-z_-]{35}",
    "hugging-face": r"hf_[A-Za-z]{34,}",
    "groq": r"gsk_[A-Za-z0-9]{40,}",
    "xai": r"xai-[A-Za-z0-9]{60,}",
    "openrouter": r"sk-or-v1-[0-9a-f]{40,}",
    # The library finds the first line of a key, which is not the secret.
    "private-key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{16,}?-----END [A-Z ]*PRIVATE KEY-----",
}
# Public by nature, or the head of what `private-key` takes whole.
_LEFT_OUT = {"ip_public", "private_key", "keyword", "high_entropy_strings", "base"}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of secret."""

    # short name, in reports and replacements
    name: str
    # a match is a secret
    regex: re.Pattern[str]
    # whether only what its groups match is one
    groups: bool = False


def rules_for(patterns: Sequence[str], preset: str | None) -> tuple[Rule, ...]:
    """The rules of `--pattern` and `--preset`. Raises `InvalidInput` for what is no pattern or matches everything."""
    rules = [] if preset is None else _preset()
    for number, pattern in enumerate(patterns, 1):
        try:
            regex = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidInput(f"{pattern!r} is no regular expression: {error}.", pattern=pattern) from error
        if regex.search("") is not None:
            raise InvalidInput(
                f"{pattern!r} matches the empty text, so it would match everywhere.",
                hint="Write what the secret looks like.", pattern=pattern,
            )
        name = "pattern" if len(patterns) == 1 else f"pattern-{number}"
        rules.append(Rule(name=name, regex=regex, groups=regex.groups > 0))
    if not rules:
        raise InvalidInput("Nothing to look for.", hint="Give --pattern REGEX or --preset secrets.")
    return tuple(rules)


def _preset() -> list[Rule]:
    """The patterns of detect-secrets and the newer ones, one rule a kind."""
    try:
        plugins = importlib.import_module("detect_secrets.plugins")
        base = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector
    except ImportError as error:
        raise InvalidInput(
            "--preset secrets needs the library detect-secrets, which is not installed.",
            hint="Install it with: pip install 'hermes-state[scrub]'", library="detect-secrets",
        ) from error
    rules = []
    for found in pkgutil.iter_modules(plugins.__path__):
        if found.name in _LEFT_OUT:
            continue
        module = importlib.import_module(f"detect_secrets.plugins.{found.name}")
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)]
        regexes = [regex for kind in kinds if kind.__module__ == module.__name__ for regex in kind().denylist]
        rules += [Rule(name=found.name.replace("_", "-"), regex=regex) for regex in regexes]
    return rules + [Rule(name=name, regex=re.compile(text)) for name, text in _NEWER.items()]


def literals(rules: Sequence[Rule]) -> set[str]:
    """The rules that are plain texts: these can be looked for in bytes although no row holds them any more."""
    said = (rule.regex.pattern for rule in rules)
    return {pattern for pattern in said if re.escape(pattern).replace("\\-", "-") == pattern}


class Redactor:
    """Replaces what the rules find, and remembers what that was for the proof."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.counts: Counter[str] = Counter()  # matches by rule
        self.found: set[str] = set()  # the secrets, at most MOST_KEPT of them
        self._key = secrets.token_bytes(32)

    def cell(self, value: Any) -> Any:
        """A text, bytes or number without secrets; the value itself when there are none in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            text = value.decode("utf-8", "surrogateescape")
            changed = self.text(text)
            return value if changed == text else changed.encode("utf-8", "surrogateescape")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            text = repr(value)
            changed = self._plain(text)
            return value if changed == text else changed
        return value

    def text(self, value: str) -> str:
        """A text without secrets, inside JSON too when it is a JSON list or object, also behind hermes-agent's mark."""
        if value.startswith(MARKER):
            return MARKER + self.text(value[len(MARKER) :])
        if value[:1] in ("{", "["):
            try:
                parsed = json.loads(value)
            except (ValueError, RecursionError):
                return self._plain(value)
            changed = self._inside(parsed, MOST_LEVELS)
            if changed is not parsed:
                value = json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
        return self._plain(value)

    def _inside(self, value: Any, levels: int) -> Any:
        """A JSON value without secrets; the very same object when nothing changed."""
        if isinstance(value, str):
            changed = self.text(value)
            return value if changed == value else changed
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            changed = self._plain(repr(value))
            return value if changed == repr(value) else changed
        if levels == 0:
            return value
        if isinstance(value, list):
            items = [self._inside(item, levels - 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if isinstance(value, dict):
            pairs = [(self._plain(key), self._inside(item, levels - 1)) for key, item in value.items()]
            old = list(value.items())
            same = all(new[0] == was[0] and new[1] is was[1] for new, was in zip(pairs, old, strict=True))
            return value if same else dict(pairs)
        return value

    def _plain(self, value: str) -> str:
        """A text without secrets. Replacements, earlier ones and those of other rules, are not searched."""
        for rule in self.rules:
            if rule.regex.search(value) is None:
                continue
            replace = self._replacing(rule)
            pieces, at = [], 0
            for mark in _MARK.finditer(value):
                pieces += [rule.regex.sub(replace, value[at : mark.start()]), mark.group()]
                at = mark.end()
            value = "".join([*pieces, rule.regex.sub(replace, value[at:])])
        return value

    def _replacing(self, rule: Rule) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            spans = [match.span(group) for group in range(1, rule.regex.groups + 1)] if rule.groups else []
            outer = [span for span in spans if span[0] < span[1]] or [match.span()]
            text, at, end = match.string, match.start(), match.end()
            said: list[str] = []
            for start, stop in sorted(outer):
                if start < at:
                    continue  # inside a group that is replaced already
                said += [text[at:start], self._mark(rule, text[start:stop])]
                at = stop
            return "".join([*said, text[at:end]])

        return replace

    def _mark(self, rule: Rule, secret: str) -> str:
        if not secret:
            return secret
        self.counts[rule.name] += 1
        if len(self.found) < MOST_KEPT:
            self.found.add(secret)
        told = hmac.new(self._key, secret.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:6]
        return f"[redacted {rule.name} {told}]"
