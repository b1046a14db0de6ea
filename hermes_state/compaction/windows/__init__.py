"""The windows of models: what a server serves, refused, or was said to have, and which of these counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.compaction.windows.endpoints import endpoint_key, model_at
from hermes_state.compaction.windows.records import KINDS, Kind, Refusal, Truncation, Window
from hermes_state.compaction.windows.refusals import refusal_of
from hermes_state.compaction.windows.rows import declare, forget, known, learn, observe_served, resolve
from hermes_state.compaction.windows.shortfall import completion_tokens, prompt_tokens, stopped_at_window, truncated
from hermes_state.compaction.windows.store import Windows

if TYPE_CHECKING:
    from hermes_state.compaction.windows.servers import Fact, Probe, probe

__all__ = [
    "KINDS", "Fact", "Kind", "Probe", "Refusal", "Truncation", "Window", "Windows", "completion_tokens", "declare",
    "endpoint_key", "forget", "known", "learn", "model_at", "observe_served", "probe", "prompt_tokens", "refusal_of",
    "resolve", "stopped_at_window", "truncated",
]


def __getattr__(name: str) -> Any:
    """Asking servers is loaded when it is used: the standard library's HTTP takes longer to load than all the rest."""
    if name in ("Fact", "Probe", "probe"):
        from hermes_state.compaction.windows import servers

        return getattr(servers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
