"""Runtime status: what each run says of its platforms, and what the runs of a host look like together.

Invariant: a row is written by the one run that it names, so two processes that report at once lose nothing of each
other; a view takes for each home and platform the newest run that may still live. Freshness is told on the lease clock
only: of another clock it is unknown, never fresh.

Not for: the row of the run itself (see `ownership`). One document per home was rejected: the last writer wins it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.host.living import Judged
from hermes_state.host.ownership import gateways
from hermes_state.host.states import PlatformState

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.host.ownership import Membership

STALE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class PlatformStatus:
    """One platform of one home, by the run that says so."""

    gateway_no: int  # the writer's row
    home: str
    platform: str
    state: PlatformState
    error_code: str | None
    error_message: str | None
    needs_attention: str | None  # what a person has to do; None: nothing
    retrying_since: float | None  # epoch seconds UTC
    updated_at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run with what is known of its life and its platforms."""

    judged: Judged
    quiet_seconds: float | None  # since its last sign of life; None where its clock is not ours
    is_fresh: bool | None  # whether that was in the last 120 s; None where its clock is not ours
    platforms: tuple[PlatformStatus, ...]


def report(
    member: Membership, core: Core, *, home: str, platform: str, state: PlatformState, error_code: str | None = None,
    error_message: str | None = None, needs_attention: str | None = None,
) -> None:
    """Say how a platform of a home is connected in this run; a connection clears the error and the need for attention.

    `needs_attention` stays as it is until the platform is connected or another text comes. Raises `HostLost`.
    """
    at = core.clock.now()
    connected = state is PlatformState.CONNECTED

    def work(tx: Transaction) -> None:
        member.refuse_ended(tx)
        tx.execute(
            "INSERT INTO platforms (gateway_no, home, platform, state, error_code, error_message, needs_attention,"
            " retrying_since, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
            " ON CONFLICT (gateway_no, home, platform) DO UPDATE SET state = ?4, error_code = ?5, error_message = ?6,"
            " needs_attention = CASE WHEN ?10 THEN NULL ELSE coalesce(?7, needs_attention) END,"
            " retrying_since = CASE WHEN ?8 IS NULL THEN NULL ELSE coalesce(retrying_since, ?8) END, updated_at = ?9",
            (
                member.gateway_no, home, platform, state, None if connected else error_code,
                None if connected else error_message, None if connected else needs_attention,
                at if state is PlatformState.RETRYING else None, at, int(connected),
            ),
        )

    core.write(work)


def run_statuses(core: Core) -> list[RunStatus]:
    """Every run that is not known to have ended, with its platforms; oldest first."""
    now, domain = core.clock.boottime(), core.clock.domain()
    found = []
    for judged in gateways(core):
        one = judged.gateway
        # Equal is enough on one machine, as for its own leases.
        quiet = now - one.beat_boottime if one.domain == domain else None
        found.append(RunStatus(
            judged=judged, quiet_seconds=quiet, is_fresh=None if quiet is None else quiet <= STALE_SECONDS,
            platforms=platforms_of(core, one.no),
        ))
    return found


def platforms_of(core: Core, gateway_no: int) -> tuple[PlatformStatus, ...]:
    """What one run says of its platforms."""
    with core.reader() as reader:
        rows = reader.rows(
            "SELECT gateway_no, home, platform, state, error_code, error_message, needs_attention, retrying_since,"
            " updated_at FROM platforms WHERE gateway_no = ? ORDER BY home, platform", (gateway_no,),
        )
    return tuple(
        PlatformStatus(
            gateway_no=no, home=home, platform=platform, state=PlatformState(state), error_code=error_code,
            error_message=error_message, needs_attention=needs_attention, retrying_since=retrying_since,
            updated_at=updated_at,
        )
        for no, home, platform, state, error_code, error_message, needs_attention, retrying_since, updated_at in rows
    )


def current_platforms(statuses: list[RunStatus]) -> dict[tuple[str, str], PlatformStatus]:
    """For each home and platform what the newest run that may live says."""
    found: dict[tuple[str, str], PlatformStatus] = {}
    for status in statuses:
        if status.judged.may_live:
            found.update({(one.home, one.platform): one for one in status.platforms})
    return found
