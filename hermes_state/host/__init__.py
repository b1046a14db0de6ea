"""The host of one OS user: which gateway owns it, who serves which home, who uses which credential."""

from __future__ import annotations

from hermes_state.host.decision import Attach, Reason, Refuse, ReplaceHost, Start, Verdict, decide, next_ask
from hermes_state.host.entering import Entered
from hermes_state.host.exits import (
    EXIT_CODES,
    FATES,
    Fate,
    Outcome,
    Reading,
    Supervisor,
    exit_code,
    stop_code,
    supervisor_of,
)
from hermes_state.host.facts import Answer, Ask, Facts, Other, Party, Seen
from hermes_state.host.folder import host_folder
from hermes_state.host.host import Host, open_host
from hermes_state.host.ownership import Membership, Run
from hermes_state.host.probe import HostView, Probe, Request, Waits
from hermes_state.host.starting import facts_for, start
from hermes_state.host.states import Kind, MarkerKind, PlatformState, RunState, SessionStore

__all__ = [
    "EXIT_CODES", "FATES", "Answer", "Ask", "Attach", "Entered", "Facts", "Fate", "Host", "HostView", "Kind",
    "MarkerKind", "Membership", "Other", "Outcome", "Party", "PlatformState", "Probe", "Reading", "Reason", "Refuse",
    "ReplaceHost", "Request", "Run", "RunState", "Seen", "SessionStore", "Start", "Supervisor", "Verdict", "Waits",
    "decide", "exit_code", "facts_for", "host_folder", "next_ask", "open_host", "start", "stop_code",
    "supervisor_of",
]
