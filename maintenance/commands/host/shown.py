"""How gateways and verdicts are shown, as documents and to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maintenance.output.text import rfc3339

if TYPE_CHECKING:
    from hermes_state.host.code import StaleRun
    from hermes_state.host.decision import Verdict
    from hermes_state.host.markers import Marker
    from hermes_state.host.probe import HostView
    from hermes_state.host.status import PlatformStatus, RunStatus


def host_document(view: HostView) -> dict[str, Any]:
    """The fields of `--json` for the owner."""
    record, answer = view.record, view.answer
    owner = None if record is None else record.gateway
    return {
        "seen": view.seen, "because": list(view.because), "fence": None if record is None else record.fence,
        "pid": None if owner is None or owner.identity is None else owner.identity.pid,
        "home": None if owner is None else owner.home,
        "claimed_at": None if record is None else rfc3339(record.claimed_at),
        "left_because": None if record is None else record.left_because, "answers": answer is not None,
        "multiplex": None if answer is None else answer.multiplex,
        "served": None if answer is None or answer.served is None else sorted(answer.served),
    }


def run_document(status: RunStatus) -> dict[str, Any]:
    """The fields of `--json` for one run."""
    judged = status.judged
    run = judged.gateway
    return {
        "gateway": run.no, "pid": None if run.identity is None else run.identity.pid, "home": run.home,
        "kind": run.kind, "supervisor": run.supervisor, "label": run.label, "state": run.state,
        "may_live": judged.may_live, "because": judged.verdict.because, "is_fresh": status.is_fresh,
        "quiet_seconds": status.quiet_seconds, "multiplex": run.multiplex,
        "served": None if run.served is None else sorted(run.served), "active_agents": run.active_agents,
        "code_sha": run.code_sha, "code_version": run.code_version, "started_at": rfc3339(run.started_at),
        "platforms": [platform_document(one) for one in status.platforms],
    }


def platform_document(one: PlatformStatus) -> dict[str, Any]:
    """The fields of `--json` for one platform."""
    return {
        "home": one.home, "platform": one.platform, "state": one.state, "error_code": one.error_code,
        "error_message": one.error_message, "needs_attention": one.needs_attention,
        "retrying_since": rfc3339(one.retrying_since), "updated_at": rfc3339(one.updated_at),
    }


def stale_document(one: StaleRun) -> dict[str, Any]:
    """The fields of `--json` for one run of old code."""
    run = one.gateway
    return {
        "gateway": run.no, "pid": None if run.identity is None else run.identity.pid, "home": run.home,
        "running_sha": one.running_sha, "disk_sha": one.disk_sha, "how": one.how, "by_hand": one.by_hand,
    }


def marker_document(one: Marker) -> dict[str, Any]:
    """The fields of `--json` for one marker."""
    return {
        "kind": one.kind, "home": one.home, "target_pid": None if one.target is None else one.target.pid,
        "reason": one.reason, "written_at": rfc3339(one.written_at),
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The fields of `--json` for a verdict."""
    return {
        "verdict": verdict.outcome, "reason": verdict.reason, "sentence": verdict.sentence,
        "evidence": list(verdict.evidence), "beside": getattr(verdict, "beside", None),
        "owner_pid": getattr(verdict, "pid", None),
        "served": sorted(verdict.served) if hasattr(verdict, "served") else None,
    }


def life(status: RunStatus) -> str:
    """One word on whether a run lives."""
    if status.judged.verdict.dead:
        return "dead"
    if not status.judged.is_ours:
        return "ignored"
    if status.is_fresh is None:
        return "unknown"
    return "alive" if status.is_fresh else "silent"
