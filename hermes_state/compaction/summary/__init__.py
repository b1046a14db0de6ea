"""The text that stands for messages which leave the view: asked of a model, checked, or extracted without one."""

from hermes_state.compaction.summary.callers import command_summarizer, openai_summarizer
from hermes_state.compaction.summary.checked import Checked, checked
from hermes_state.compaction.summary.extractive import extractive
from hermes_state.compaction.summary.requests import Summarizer, SummaryRequest, requests_for

__all__ = [
    "Checked", "Summarizer", "SummaryRequest", "checked", "command_summarizer", "extractive", "openai_summarizer",
    "requests_for",
]
