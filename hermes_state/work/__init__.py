"""What goes on beside a conversation: background work, streams, lanes, logins, credentials, facts about models."""

from __future__ import annotations

from hermes_state.work.work import Work

__all__ = ["Work"]
