"""Counting tokens: of a text, of a message, of a request, with or without a tokenizer."""

from __future__ import annotations

from hermes_state.compaction.tokens.counters import Scaled, TokenCounter, as_counter
from hermes_state.compaction.tokens.estimate import Estimator
from hermes_state.compaction.tokens.factors import Factor, Factors, Lesson
from hermes_state.compaction.tokens.messages import message_tokens, request_tokens

__all__ = [
    "Estimator", "Factor", "Factors", "Lesson", "Scaled", "TokenCounter", "as_counter", "message_tokens",
    "request_tokens",
]
