"""How the ticking of a home is, as data.

Invariant: green is said only of a home whose ticker was heard in the last 200 s and had a success in the last 200 s; a
process that lives and fires nothing is never green, whatever its heartbeat says. Ages that lie in the future are not
fresh. Nor is a home green whose wall clock is in doubt, or whose jobs are silent because that was wrong before.

Not for: drawing it (see the command line). One light for "the process lives" was rejected: a stale ticker was green and
fired nothing for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from cron_store.home import must_stand
from cron_store.ticker.deciding import stale_text
from hermes_state.host import ticking
from hermes_state.host.ticking import TickerSeen, TickStanding

if TYPE_CHECKING:
    from cron_store.looking import Looking
    from cron_store.records import ClockStep
    from hermes_state.host import Host
    from hermes_state.owners import OwnerIdentity

# Three ticks and 20 s (facts section 3.3).
FRESH_SECONDS = 200.0
MOST_NAMED = 5  # jobs in a sentence
MOST_EVENTS = 50  # steps of the clock that are looked through


class Light(StrEnum):
    """What is to be said first of a home."""

    GREEN = "green"  # heard, and with success
    STALE_CODE = "stale_code"  # who would tick it yields to a newer process that does not tick it
    FAILING = "failing"  # heard, and the last tick did not succeed
    NO_SUCCESS = "no_success"  # heard, and no tick succeeded for too long, or ever
    SILENT = "silent"  # not heard for too long
    NEVER = "never"  # nobody ever ticked it
    CLOCK_IN_DOUBT = "clock_in_doubt"  # ticked well, and the wall clock moved by what is not believed yet
    AHEAD = "ahead"  # ticked well, and jobs are accounted for beyond now: they fire nothing before that


@dataclass(frozen=True, kw_only=True)
class HomeStatus:
    """The ticking of one home."""

    home: str
    light: Light
    text: str  # a sentence for people
    heartbeat_seconds: float | None  # since it was heard; None: never
    success_seconds: float | None
    error: str | None  # of the last tick, where it failed
    owner: OwnerIdentity | None  # who was heard last
    tickers: tuple[TickerSeen, ...]  # who says anything of this home; empty where the host cannot be asked
    clock_step: ClockStep | None  # the step of the wall clock that is in doubt
    clock_since_at: float | None  # when a tick noted it, by the clock that is in doubt; None: none did yet
    ahead: Mapping[str, int]  # up to 50 jobs that are accounted for beyond now -> until when, epoch seconds UTC
    ahead_since_at: float | None  # when the clock was set back last; None: no step was seen, or no job is ahead

    @property
    def is_green(self) -> bool:
        """Whether all is well."""
        return self.light is Light.GREEN


@dataclass(frozen=True, kw_only=True)
class Survivor:
    """A live process that ticks and runs other code than lies on disk."""

    identity: OwnerIdentity
    homes: tuple[str, ...]
    running_sha: str | None
    disk_sha: str | None
    how: str  # how a person starts it again
    supervised: bool  # something starts it again once it ends


def home_status(cron: Looking, host: Host | None = None) -> HomeStatus:
    """How the ticking of an open home is. `host`: where other processes of this user are seen. Raises
    `LedgerUnreadable`."""
    row, now, home = cron.ticker(), cron.now(), str(cron.home)
    seen = () if host is None else tuple(ticking.tickers(host.core, home))
    heard = None if row is None or row.heartbeat_at is None else now - row.heartbeat_at
    success = None if row is None or row.success_at is None else now - row.success_at
    error = None if row is None else row.error
    light = _light(heard, success, error, seen)
    step, ahead = cron.clock_step(), cron.ahead()
    since = None if step is None or step.stood_seconds is None else step.at - step.stood_seconds
    back_at = _set_back_at(cron) if ahead else None
    clocks = [*([] if step is None else [_step_text(step, since)]), *([_ahead_text(ahead, back_at)] if ahead else [])]
    if light is not Light.GREEN or not clocks:
        clocks.insert(0, _text(light, heard, success, error, seen))
    else:
        light = Light.AHEAD if step is None else Light.CLOCK_IN_DOUBT
    return HomeStatus(
        home=home, light=light, text=" ".join(clocks), heartbeat_seconds=heard, success_seconds=success, error=error,
        owner=None if row is None else row.owner, tickers=seen, clock_step=step, clock_since_at=since, ahead=ahead,
        ahead_since_at=back_at,
    )


def survivors(host: Host) -> list[Survivor]:
    """Every live process that ticks, or is a gateway, and runs other code than lies on disk; each with how to start it
    again. They are left alone here."""
    from hermes_state.host.code import sha_on_disk

    found: dict[str, Survivor] = {}
    for stale in host.stale_code():
        identity = stale.gateway.identity
        if identity is not None:
            found[identity.nonce] = Survivor(
                identity=identity, homes=tuple(sorted(stale.gateway.served or {stale.gateway.home})),
                running_sha=stale.running_sha, disk_sha=stale.disk_sha, how=stale.how, supervised=not stale.by_hand,
            )
    homes: dict[str, list[str]] = {}
    for one in ticking.tickers(host.core):
        said, identity = one.ticking, one.identity
        if not one.may_live or identity is None:
            continue
        homes.setdefault(identity.nonce, []).append(said.home)
        disk = said.disk_sha if said.code_root is None else sha_on_disk(said.code_root) or said.disk_sha
        if identity.nonce in found or disk is None or said.code_sha is None or disk == said.code_sha:
            continue
        found[identity.nonce] = Survivor(
            identity=identity, homes=(), running_sha=said.code_sha, disk_sha=disk,
            how=said.how or f"restart manually: kill -TERM {identity.pid}, then start it as before",
            supervised=not said.by_hand,
        )
    return [
        one if one.homes else Survivor(
            identity=one.identity, homes=tuple(homes[nonce]), running_sha=one.running_sha, disk_sha=one.disk_sha,
            how=one.how, supervised=one.supervised,
        )
        for nonce, one in found.items()
    ]


def _fresh(seconds: float | None) -> bool:
    return seconds is not None and 0 <= seconds <= FRESH_SECONDS


def _yielding(seen: tuple[TickerSeen, ...]) -> TickerSeen | None:
    """One that yields, where nobody is heard to tick."""
    if any(one.ticking.standing is TickStanding.TICKS and one.is_fresh for one in seen):
        return None
    return next((one for one in seen if one.ticking.standing is TickStanding.YIELDS and one.may_live), None)


def _light(
    heard: float | None, success: float | None, error: str | None, seen: tuple[TickerSeen, ...]
) -> Light:
    if _yielding(seen) is not None:
        return Light.STALE_CODE
    if heard is None:
        return Light.NEVER
    if not _fresh(heard):
        return Light.SILENT
    if error is not None:
        return Light.STALE_CODE if error.startswith("STALE CODE") else Light.FAILING
    return Light.GREEN if _fresh(success) else Light.NO_SUCCESS


def _text(
    light: Light, heard: float | None, success: float | None, error: str | None, seen: tuple[TickerSeen, ...]
) -> str:
    yielding = _yielding(seen)
    if light is Light.STALE_CODE:
        if yielding is None:
            return error or ""
        said = yielding.ticking
        return stale_text(said.code_sha, said.disk_sha, said.how)
    if light is Light.NEVER:
        return "Nobody has ever ticked this home: start a gateway or run `hermes-state cron tick --once`."
    if light is Light.SILENT:
        aside = next((one.ticking.said for one in seen if one.is_fresh and one.ticking.said), "")
        return f"Nobody was heard to tick this home for {heard:.0f} s. {aside}".strip()
    if light is Light.FAILING:
        return f"The last tick failed: {error}"
    if light is Light.NO_SUCCESS:
        since = "ever" if success is None else f"for {success:.0f} s"
        return f"It is ticked, and no tick has succeeded {since}."
    return f"Ticked {heard:.0f} s ago."


def _set_back_at(cron: Looking) -> float | None:
    """When the wall clock was set back last, as far as its events go."""
    for event in cron.events(kind="clock_step", limit=MOST_EVENTS):
        seconds = event.detail.get("seconds")
        if isinstance(seconds, int | float) and seconds < 0:
            return event.at
    return None


def _step_text(step: ClockStep, since: float | None) -> str:
    stands = must_stand(step.seconds)
    if since is None or step.stood_seconds is None:
        when, then = "; no tick has noted it yet", f"that comes {stands:.0f} s after one has noted it,"
    else:
        when, then = f", since {_moment(since)} by that clock", f"{stands - step.stood_seconds:.0f} s from now"
    return (
        f"The wall clock moved by {step.seconds:+.0f} s and is not believed{when}: jobs go by the boot clock. It is"
        f" believed at a tick {then} if it stays so. If it is right, run `hermes-state cron accept-clock`; else set it"
        " back."
    )


def _ahead_text(ahead: Mapping[str, int], since: float | None) -> str:
    names = ", ".join(f"{job_id} (until {_moment(until)})" for job_id, until in [*ahead.items()][:MOST_NAMED])
    more = f" and {len(ahead) - MOST_NAMED} more" if len(ahead) > MOST_NAMED else ""
    when = "; when the clock was wrong is not known" if since is None else (
        f", since the clock was set back at {_moment(since)}"
    )
    return (
        f"Accounted for beyond now, and silent until then{when}: {names}{more}. That is not taken back: add a job under"
        " another id to have it run before."
    )


def _moment(epoch: float) -> str:
    """An instant in UTC; a number that no calendar has is said as it is."""
    try:
        return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{epoch:.0f} s after 1970"
