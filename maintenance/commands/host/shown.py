"""How gateways and verdicts are shown, as documents and to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maintenance.output.text import rfc3339

if TYPE_CHECKING:
    from hermes_state.host.code import StaleRun
    from hermes_state.host.converge import Step
    from hermes_state.host.decision import Verdict
    from hermes_state.host.markers import Marker
    from hermes_state.host.probe import HostView
    from hermes_state.host.status import PlatformStatus, RunStatus
    from hermes_state.host.unit_files import UnitFile


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
        "lock_lost": view.lock_lost,
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
        "active_work": run.active_work, "restart_requested": run.restart_requested,
        "stores": [{"home": home, "session_store": state} for home, state in status.stores.items()],
        "code_sha": run.code_sha, "code_version": run.code_version, "started_at": rfc3339(run.started_at),
        "platforms": [platform_document(one) for one in status.platforms],
    }


def platform_document(one: PlatformStatus) -> dict[str, Any]:
    """The fields of `--json` for one platform."""
    return {
        "home": one.home, "platform": one.platform, "state": one.state, "error_code": one.error_code,
        "error_message": one.error_message, "needs_attention": one.needs_attention,
        "retrying_since": rfc3339(one.retrying_since), "ingress_url": one.ingress_url,
        "listener_base": one.listener_base, "updated_at": rfc3339(one.updated_at),
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


def step_document(number: int, one: Step) -> dict[str, Any]:
    """The fields of `--json` for one step of a plan."""
    run = one.gateway
    return {
        "order": number, "do": one.do, "stops": one.stops, "starts": one.starts,
        "gateway": None if run is None else run.no,
        "pid": None if run is None or run.identity is None else run.identity.pid,
        "home": None if run is None else run.home, "supervisor": None if run is None else run.supervisor,
        "label": None if run is None else run.label, "homes": list(one.homes), "how": one.how,
    }


def unit_document(one: UnitFile) -> dict[str, Any]:
    """The fields of `--json` for one service file."""
    return {
        "path": one.path, "supervisor": one.unit.supervisor, "home": one.unit.home, "masked": one.masked,
        "fates": {"killed" if code < 0 else str(code): fate for code, fate in one.unit.fates.items()},
        "findings": [
            {"code": found.code, "sentence": found.sentence, "fix": found.fix} for found in one.unit.findings
        ],
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
