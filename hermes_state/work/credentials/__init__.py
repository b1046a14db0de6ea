"""Credentials of providers: their status, who uses which, and the rotation of tokens that work once."""

from __future__ import annotations

from hermes_state.work.credentials.choosing import STRATEGIES, Strategy, choose
from hermes_state.work.credentials.credentials import Credentials, Shared
from hermes_state.work.credentials.grants import Grant
from hermes_state.work.credentials.records import Credential, Served
from hermes_state.work.credentials.secret_file import SecretFile, SecretStore
from hermes_state.work.credentials.secrets import Secrets
from hermes_state.work.credentials.states import Rotation, Status
from hermes_state.work.credentials.verdicts import Ended, Exchange, Postponed, Rotated, Unsure, Verdict, verdict_of

__all__ = [
    "STRATEGIES", "Credential", "Credentials", "Ended", "Exchange", "Grant", "Postponed", "Rotated", "Rotation",
    "SecretFile", "SecretStore", "Secrets", "Served", "Shared", "Status", "Strategy", "Unsure", "Verdict", "choose",
    "verdict_of",
]
