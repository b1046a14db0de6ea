"""Which process ticks the scheduled jobs of which home, as each process says of itself.

Invariant: a process writes its own rows only, all of them in one transaction; a row of an owner that is proven dead is
removed by whoever writes next. Nothing here permits or forbids a tick: a home is ticked under the lease in its own
store. Freshness is told on the lease clock; of another clock it is unknown, never fresh.

Not for: deciding who yields (see `cron_store.ticker`). A column of the row of a gateway was rejected: programs that are
no gateway tick as well, and one process ticks many homes, each in its own standing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_state.clock import ClockDomain
from hermes_state.host.folder import our_uid
from hermes_state.host.living import FORGET_SECONDS
from hermes_state.host.records import identity_of
from hermes_state.owners import OwnerIdentity, Verdict, provably_dead

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import Presence

# Until when a process that was heard counts as ticking (facts section 3.5).
FRESH_SECONDS = 120.0
_COLUMNS = (
    "owner, home, uid, standing, said, code_root, code_sha, disk_sha, how, by_hand, since, beat_at, boot_id,"
    " time_namespace, beat_boottime"
)


class TickStanding(StrEnum):
    """How a process stands to a home that it knows of."""

    TICKS = "ticks"  # it has the tick lease of that home
    WAITS = "waits"  # it would tick, and another one has the lease
    YIELDS = "yields"  # its code is stale, and a newer process serves the home
    STANDS_DOWN = "stands_down"  # the home has a gateway of its own
    FAILS = "fails"  # its store cannot be used


@dataclass(frozen=True, kw_only=True)
class Ticking:
    """What a process says of itself and one home."""

    home: str  # as `os.path.realpath` gives it
    standing: TickStanding
    said: str = ""  # why it does not tick
    code_root: str | None = None
    code_sha: str | None = None  # that it runs
    disk_sha: str | None = None  # that lay on disk when it looked last
    how: str = ""  # how a person starts it again
    by_hand: bool = True  # nobody starts it again by itself
    since: float = 0.0  # of this standing; epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class TickerSeen:
    """The same, as another process sees it."""

    ticking: Ticking
    identity: OwnerIdentity | None  # None: this version cannot read it
    is_ours: bool  # of our uid, with an identity that can be read; everything else is ignored
    verdict: Verdict  # of its life
    quiet_seconds: float | None  # since it was heard; None where its clock is not ours
    beat_at: float  # when it was heard; epoch seconds UTC, for people

    @property
    def may_live(self) -> bool:
        """Whether it counts as alive until it is proven otherwise."""
        return self.is_ours and not self.verdict.dead

    @property
    def is_fresh(self) -> bool:
        """Whether it lives and was heard in the last 120 s. What is unknown is not fresh."""
        return self.may_live and self.quiet_seconds is not None and 0 <= self.quiet_seconds <= FRESH_SECONDS


def record(core: Core, presence: Presence, rows: Sequence[Ticking]) -> None:
    """Say which homes this process knows, in the place of all it said before."""
    clock = core.clock
    dead = [seen for seen in tickers(core) if seen.is_ours and seen.verdict.dead]
    at, boottime, domain, text = clock.now(), clock.boottime(), clock.domain(), presence.identity.to_json()

    def work(tx: Transaction) -> None:
        tx.execute("DELETE FROM ticking WHERE owner = ?", (text,))
        tx.executemany(
            f"INSERT INTO ticking ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    text, one.home, our_uid(), one.standing, one.said, one.code_root, one.code_sha, one.disk_sha,
                    one.how, int(one.by_hand), one.since, at, domain.boot_id, domain.time_namespace, boottime,
                )
                for one in rows
            ],
        )
        for gone in {seen.identity.to_json() for seen in dead if seen.identity is not None}:
            tx.execute("DELETE FROM ticking WHERE owner = ?", (gone,))
        tx.execute(
            "DELETE FROM ticking WHERE uid = ? AND beat_at < ? AND boot_id <> ?",
            (our_uid(), at - FORGET_SECONDS, domain.boot_id),
        )

    core.write(work)


def retract(core: Core, presence: Presence) -> None:
    """Take back all that this process said."""
    text = presence.identity.to_json()
    core.write(lambda tx: tx.execute("DELETE FROM ticking WHERE owner = ?", (text,)))


def tickers(core: Core, home: str | None = None) -> list[TickerSeen]:
    """What every process says of a home, or of all; by home, then by owner."""
    clock, folder = core.clock, core.path.parent
    with core.reader() as reader:
        rows = reader.rows(
            f"SELECT {_COLUMNS} FROM ticking WHERE ?1 IS NULL OR home = ?1 ORDER BY home, owner", (home,)
        )
    now, here = clock.boottime(), clock.domain()
    judged: dict[str, Verdict] = {}
    found = []
    for (
        owner, name, uid, standing, said, code_root, code_sha, disk_sha, how, by_hand, since, beat_at, boot_id,
        time_namespace, beat_boottime,
    ) in rows:
        identity = identity_of(owner)
        is_ours = identity is not None and uid == our_uid()
        if is_ours and identity is not None:
            verdict = judged.get(owner)
            if verdict is None:
                verdict = judged[owner] = provably_dead(identity, folder, clock=clock)
        else:
            verdict = Verdict(dead=False, because="its row is of another user, or cannot be read here")
        same = ClockDomain(boot_id=boot_id, time_namespace=time_namespace) == here
        found.append(TickerSeen(
            ticking=Ticking(
                home=name, standing=TickStanding(standing), said=said, code_root=code_root, code_sha=code_sha,
                disk_sha=disk_sha, how=how, by_hand=bool(by_hand), since=since,
            ),
            identity=identity, is_ours=is_ours, verdict=verdict,
            quiet_seconds=now - beat_boottime if same else None, beat_at=beat_at,
        ))
    return found
