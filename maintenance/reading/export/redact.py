"""Taking the usual shapes of secrets out of an export.

Invariant: what is replaced is counted, and everything else is unchanged. A help, not a proof: a secret without a known
shape stays. Not for: the store itself.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "[redacted]"
_WHOLE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, OpenRouter
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,}"  # Google
    r"|\bhf_[A-Za-z0-9]{20,}"
    r"|\b\d{8,10}:[A-Za-z0-9_-]{35}\b"  # Telegram bot
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON web token
    re.DOTALL,
)
_AFTER = re.compile(
    r"(\bBearer\s+|\b(?:api[_-]?key|secret|token|passw(?:or)?d)[\"']?\s*[:=]\s*[\"']?|://[^/\s:@]+:)"
    r"(?!\[redacted\])([^\s\"',;@]{8,})",
    re.IGNORECASE,
)


class Redactor:
    """Masks secrets and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, value: Any) -> Any:
        """`value` with the strings in it masked."""
        if isinstance(value, str):
            text, whole = _WHOLE.subn(MASK, value)
            text, after = _AFTER.subn(lambda found: found.group(1) + MASK, text)
            self.count += whole + after
            return text
        if isinstance(value, list):
            return [self.apply(item) for item in value]
        if isinstance(value, dict):
            return {key: self.apply(item) for key, item in value.items()}
        return value
