"""Runtime status: what each run says of its platforms, and what the runs of a host look like together.

Invariant: a row is written by the one run that it names, so two processes that report at once lose nothing of each
other; a view takes for each home and platform the newest run that may still live. Freshness is told on the lease clock
only: of another clock it is unknown, never fresh.

Not for: the row of the run itself (see `ownership`). One document per home was rejected: the last writer wins it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_state.errors import InvalidInput
from hermes_state.host.living import Judged
from hermes_state.host.names import canonical, path_without_secrets, plain
from hermes_state.host.ownership import gateways
from hermes_state.host.records import Gateway
from hermes_state.host.states import Kind, PlatformState, SessionStore

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.host.ownership import Membership

STALE_SECONDS = 120.0
_LONGEST_PLATFORM = 100  # characters
# Nothing reaches a platform in these.
_GIVEN_UP = (PlatformState.DISCONNECTED, PlatformState.FAILED, PlatformState.UNSERVED)


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
    ingress_url: str | None  # where the platform reaches it from outside; None: nowhere
    listener_base: str | None  # where it listens on this machine; None: nowhere
    updated_at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run with what is known of its life and its platforms."""

    judged: Judged
    quiet_seconds: float | None  # since its last sign of life; None where its clock is not ours
    is_fresh: bool | None  # whether that was in the last 120 s; None where its clock is not ours
    platforms: tuple[PlatformStatus, ...]
    stores: Mapping[str, SessionStore]  # home -> what the run says of its store


def report(
    member: Membership, core: Core, *, home: str, platform: str, state: PlatformState, error_code: str | None = None,
    error_message: str | None = None, needs_attention: str | None = None, ingress_url: str | None = None,
    listener_base: str | None = None,
) -> None:
    """Say how a platform of a home is connected in this run; a connection clears the error and the need for attention.

    `needs_attention` stays as it is until the platform is connected or another text comes. `ingress_url` (where the
    platform calls) and `listener_base` (where this process listens) stay until others come or it is given up; of a URL
    only scheme, place and path are kept, since the rest may be a secret; what looks like one is taken out of all texts.
    Raises `HostLost`, and `InvalidInput` for what is no URL and for a home that the run does not serve.
    """
    at = core.clock.now()
    home = canonical(home)
    served = member.answer.served
    # That a home is not served is the one thing that is said of homes that are not.
    if served is not None and home not in {*served, member.run.home} and state is not PlatformState.UNSERVED:
        raise InvalidInput(
            f"Gateway {member.gateway_no} in {core.path} does not serve {home}, so it says nothing of its platforms.",
            hint="`settle` first.", path=core.path, home=home,
        )
    if not platform or len(platform) > _LONGEST_PLATFORM or "\0" in platform:
        raise InvalidInput(
            f"A platform is one word, not {platform!r:.80}.", hint="Name it as its bot does.", path=core.path,
        )
    error_code, error_message, needs_attention = plain(error_code), plain(error_message), plain(needs_attention)
    connected = state is PlatformState.CONNECTED
    urls = [_without_secrets(url, core) for url in (ingress_url, listener_base)]

    def work(tx: Transaction) -> None:
        member.refuse_ended(tx)
        tx.execute(
            "INSERT INTO platforms (gateway_no, home, platform, state, error_code, error_message, needs_attention,"
            " retrying_since, updated_at, ingress_url, listener_base)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11, ?12)"
            " ON CONFLICT (gateway_no, home, platform) DO UPDATE SET state = ?4, error_code = ?5, error_message = ?6,"
            " needs_attention = CASE WHEN ?10 THEN NULL ELSE coalesce(?7, needs_attention) END,"
            " retrying_since = CASE WHEN ?8 IS NULL THEN NULL ELSE coalesce(retrying_since, ?8) END, updated_at = ?9,"
            " ingress_url = CASE WHEN ?13 THEN NULL ELSE coalesce(?11, ingress_url) END,"
            " listener_base = CASE WHEN ?13 THEN NULL ELSE coalesce(?12, listener_base) END",
            (
                member.gateway_no, home, platform, state, None if connected else error_code,
                None if connected else error_message, None if connected else needs_attention,
                at if state is PlatformState.RETRYING else None, at, int(connected), *urls, int(state in _GIVEN_UP),
            ),
        )

    core.write(work)


def report_store(member: Membership, core: Core, *, home: str, state: SessionStore) -> None:
    """Say whether the store of a home opens. Raises `InvalidInput` for a home that the run does not serve, `HostLost`.
    """
    home = canonical(home)

    def work(tx: Transaction) -> None:
        member.refuse_ended(tx)
        if not tx.execute(
            "UPDATE served SET session_store = ? WHERE gateway_no = ? AND home = ?", (state, member.gateway_no, home)
        ):
            raise InvalidInput(
                f"Gateway {member.gateway_no} in {tx.path} does not serve {home}, so it says nothing of its store.",
                hint="`settle` first.", path=tx.path, home=home,
            )

    core.write(work)


def run_statuses(core: Core) -> list[RunStatus]:
    """Every run that is not known to have ended, with its platforms; oldest first."""
    now, domain = core.clock.boottime(), core.clock.domain()
    found = []
    for judged in gateways(core):
        one = judged.gateway
        # Equal is enough on one machine, as for its own leases; a time to come is of another boot that nobody names.
        quiet = now - one.beat_boottime if one.domain == domain and one.beat_boottime <= now else None
        found.append(RunStatus(
            judged=judged, quiet_seconds=quiet, is_fresh=None if quiet is None else quiet <= STALE_SECONDS,
            platforms=platforms_of(core, one.no), stores=stores_of(core, one.no),
        ))
    return found


def platforms_of(core: Core, gateway_no: int) -> tuple[PlatformStatus, ...]:
    """What one run says of its platforms."""
    with core.reader() as reader:
        rows = reader.rows(
            "SELECT gateway_no, home, platform, state, error_code, error_message, needs_attention, retrying_since,"
            " ingress_url, listener_base, updated_at FROM platforms WHERE gateway_no = ? ORDER BY home, platform",
            (gateway_no,),
        )
    return tuple(
        PlatformStatus(
            gateway_no=no, home=home, platform=platform, state=PlatformState(state), error_code=error_code,
            error_message=error_message, needs_attention=needs_attention, retrying_since=retrying_since,
            ingress_url=ingress_url, listener_base=listener_base, updated_at=updated_at,
        )
        for (
            no, home, platform, state, error_code, error_message, needs_attention, retrying_since, ingress_url,
            listener_base, updated_at,
        ) in rows
    )


def stores_of(core: Core, gateway_no: int) -> dict[str, SessionStore]:
    """What one run says of the store of each home that it serves."""
    with core.reader() as reader:
        rows = reader.rows("SELECT home, session_store FROM served WHERE gateway_no = ? ORDER BY home", (gateway_no,))
    return {home: SessionStore(state) for home, state in rows}


def current_platforms(statuses: list[RunStatus]) -> dict[tuple[str, str], PlatformStatus]:
    """For each home and platform what the newest run that may live says."""
    found: dict[tuple[str, str], PlatformStatus] = {}
    for status in statuses:
        if status.judged.may_live:
            found.update({(one.home, one.platform): one for one in status.platforms})
    return found


def served_twice(statuses: list[RunStatus]) -> dict[str, list[Gateway]]:
    """Homes that more than one gateway that may live serves, or was started for, by their records."""
    found: dict[str, list[Gateway]] = {}
    for status in statuses:
        one = status.judged.gateway
        if status.judged.may_live and one.kind is Kind.GATEWAY:
            for home in sorted(one.served if one.served is not None else {one.home}):
                found.setdefault(home, []).append(one)
    return {home: runs for home, runs in sorted(found.items()) if len(runs) > 1}


def _without_secrets(url: str | None, core: Core) -> str | None:
    if url is None:
        return None
    try:
        found = urlsplit(url)
        port = "" if found.port is None else f":{found.port}"
    except ValueError:
        found, port = urlsplit(""), ""
    if not found.scheme or not found.hostname:
        raise InvalidInput(
            "A platform was reported with an address that is no URL.",
            hint="Give scheme and host, as in https://example.org/webhook.", path=core.path,
        )
    host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    return f"{found.scheme}://{host}{port}{path_without_secrets(found.path)}"
