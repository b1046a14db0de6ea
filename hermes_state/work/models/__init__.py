"""What is known of models: facts by layers, windows by endpoint, registrations by source."""

from __future__ import annotations

from hermes_state.work.models.layers import DEFAULT_MODEL, Facts, Layer, resolve
from hermes_state.work.models.models import Models
from hermes_state.work.models.reasoning import Route, replayable, replayed
from hermes_state.work.models.registrations import Registration, Source
from hermes_state.work.models.windows import RULES, ContextWindow, Distrust, Passed

__all__ = [
    "DEFAULT_MODEL", "RULES", "ContextWindow", "Distrust", "Facts", "Layer", "Models", "Passed", "Registration",
    "Route", "Source", "replayable", "replayed", "resolve",
]
