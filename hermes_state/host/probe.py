"""Looking at the host: the lock, the record, and what live gateways say of themselves.

Invariant: nobody is dialled as the owner before the lock says that an owner lives and its record is not that of a dead
process. Where the record cannot be read, the lock and whoever answers in the folder count as before. A look at the
owner is remembered for 2 s and forgotten at once when any process writes what it depends on. Nothing here changes
anything.

Not for: verdicts (see `decision`). Dialling whatever the record names was rejected: pids and sockets are used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.clock import Clock
from hermes_state.host import gateway_lock
from hermes_state.host.asking import PATIENCE_SECONDS, Question, ask, at_once, unlisted
from hermes_state.host.decision import next_ask
from hermes_state.host.exits import Supervisor
from hermes_state.host.facts import Answer, Ask, Facts, Other, Party, Seen
from hermes_state.host.living import holds_its_presence, judge
from hermes_state.host.names import canonical
from hermes_state.host.records import Gateway, HostRecord, read_host, read_running
from hermes_state.host.states import TERMINAL, Kind
from hermes_state.owners.presence import is_here

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity, Presence

Asker = Callable[[Party, Question, float], Answer | None]
MEMO_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long a start waits for others, in seconds."""

    identify: float = PATIENCE_SECONDS  # for one answer
    settle: float = 5.0  # for an owner to settle whom it serves
    poll: float = 0.25  # between two questions while it does
    rescan: float = 8.0  # for an owner to look for homes
    leave: float = 30.0  # for an owner that is replaced to be gone


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a start wants. Raises `InvalidInput` for what is no absolute path of a home."""

    home: str  # the home that is to be served; kept by its one spelling
    supervisor: Supervisor = Supervisor.NONE
    replace: bool = False
    force: bool = False
    standalone: bool = False  # this home is configured to have a gateway of its own
    kind: Kind = Kind.GATEWAY  # what is started

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", canonical(self.home))


@dataclass(frozen=True, kw_only=True)
class HostView:
    """The owner as it was seen at one moment."""

    seen: Seen
    because: tuple[str, ...]  # sentences
    record: HostRecord | None  # None when it cannot be read
    owner: Party | None  # only with LIVE and US
    answer: Answer | None  # what it said; None when it was not asked or did not answer
    lock_lost: bool = False  # its lock file was removed or replaced; it owns the host for as long as it lives


class Probe:
    """The eyes of one process on the host. Safe for threads."""

    def __init__(
        self, core: Core | None, folder: Path, clock: Clock, *, asker: Asker = ask, waits: Waits | None = None,
        problem: str = "", busy: bool = False, presence: Presence | None = None,
    ) -> None:
        """`core` is None where `host.db` is not there or cannot be read; `problem` says why in the second case.

        `busy`: it cannot be read because somebody keeps it locked. `presence`: who looks, when that is not this
        process; for tests.
        """
        self._core = core
        self._folder = folder
        self._clock = clock
        self._ask = asker
        self.waits = waits or Waits()
        self._problem = problem
        self._busy = busy
        self._presence = presence
        self._memo: tuple[float, int, HostView] | None = None
        # How often an owner was asked who it is.
        self.dialled = 0

    def host_gateway(self) -> HostView:
        """Who owns the host and whom it says it serves; asked at most once in 2 s while nothing changes."""
        now, revision = self._clock.monotonic(), self._revision()
        if self._memo is not None:
            at, seen_revision, view = self._memo
            if now - at < MEMO_SECONDS and seen_revision == revision:
                return view
        view = self._see()
        if view.seen is Seen.LIVE and view.owner is not None:
            view = replace(view, answer=self._dial(view.owner, Question.IDENTIFY, self.waits.identify))
        self._memo = now, revision, view
        return view

    def forget(self) -> None:
        """Look anew next time; called at each write of this process."""
        self._memo = None

    def facts(self, request: Request) -> Facts:
        """All that a verdict on this request needs, asked for in the order of its cost."""
        facts = self.first(request)
        while (question := next_ask(facts)) is not None:
            facts = self._learn(facts, question, request)
        return facts

    def first(self, request: Request) -> Facts:
        """What is seen before anybody is asked; nothing at all when it is forced."""
        blank = Facts(
            home=request.home, supervisor=request.supervisor, seen=Seen.UNKNOWN, replace=request.replace,
            force=request.force, standalone=request.standalone, kind=request.kind,
        )
        if request.force:
            return blank
        view = self._see()
        return replace(
            blank, seen=view.seen, because=view.because, owner=view.owner, taken_over=self._is_taken_over(view.owner)
        )

    def ask_all(self) -> list[tuple[Gateway, Answer | None]]:
        """Every gateway that may live but this process's, each asked once who it is; oldest first.

        What is of another boot and silent is not here: its socket did not outlive that.
        """
        return self._ask_but(None)

    def _ask_but(self, owner: Party | None) -> list[tuple[Gateway, Answer | None]]:
        if self._core is None:
            return []
        with self._core.reader() as reader:
            running = read_running(reader)
        asked = []
        for one in running:
            identity = one.identity
            if identity is None or self.is_us(identity) or (owner is not None and one.no == owner.gateway_no):
                continue
            judged = judge(one, self._folder, self._clock)
            if judged.may_live and one.kind is Kind.GATEWAY:
                asked.append(judged)
        parties = [judged.gateway.party() for judged in asked]
        said = at_once(lambda party: self._dial(party, Question.IDENTIFY, self.waits.identify), parties)
        return [
            (judged.gateway, answer) for judged, answer in zip(asked, said, strict=True)
            if answer is not None or judged.same_boot
        ]

    def _unlisted(self) -> list[Other]:
        """Gateways that answer and have no row: those that could not write one, or whose file was taken from them."""
        listed = set()
        if self._core is not None:
            with self._core.reader() as reader:
                listed = {one.identity.nonce for one in read_running(reader) if one.identity is not None}
        found = []
        for socket, said in unlisted(self._folder, listed, self.waits.identify):
            if said is not None and self._is_nonce_ours(said.nonce):
                continue
            # One that starts answers before its row is there, and nothing before it has one: that row will be read.
            if self._core is not None and (said is None or said.served is None or said.state in TERMINAL):
                continue
            party = Party(
                gateway_no=0, identity=None, home="an unknown home" if said is None or said.home is None else said.home,
                fence=None, socket=socket, answered_pid=None if said is None else said.pid,
            )
            found.append(Other(party=party, answer=said))
        return found

    # --- asking ----------------------------------------------------------------------------------------------

    def _learn(self, facts: Facts, question: Ask, request: Request) -> Facts:
        asked = facts.asked | {question}
        owner = facts.owner
        if question is Ask.OTHERS:
            return replace(facts, asked=asked, others=self._others(owner, facts.home))
        if question is Ask.WAIT:
            return self._wait(replace(facts, asked=asked), request)
        assert owner is not None  # only LIVE asks these
        if question is Ask.IDENTIFY:
            found = self._dial(owner, Question.IDENTIFY, self.waits.identify)
            return replace(facts, asked=asked, identified=found)
        return replace(facts, asked=asked, rescanned=self._dial(owner, Question.RESCAN, self.waits.rescan))

    def _wait(self, facts: Facts, request: Request) -> Facts:
        """Ask again until the owner says whom it serves, is another one, or is gone, for some seconds."""
        deadline = self._clock.monotonic() + self.waits.settle
        while True:
            self._clock.sleep(self.waits.poll)
            fresh = self.first(request)
            if fresh.seen not in (Seen.LIVE, Seen.UNRECORDED):
                return fresh
            if fresh.owner is not None:
                said = self._dial(fresh.owner, Question.IDENTIFY, self.waits.identify)
                facts = replace(fresh, asked=facts.asked | {Ask.IDENTIFY}, identified=said)
                if said is not None and (said.served is not None or said.is_leaving):
                    return facts
            else:
                facts = replace(fresh, asked=facts.asked, identified=None)
            if self._clock.monotonic() >= deadline:
                return facts

    def _others(self, owner: Party | None, home: str) -> tuple[Other, ...]:
        """Every other live gateway with its answer, asked again for some seconds while one has not settled."""
        deadline = self._clock.monotonic() + self.waits.settle
        while True:
            found = self._others_now(owner, home)
            settling = [one for one in found if one.answer is not None and one.answer.served is None]
            if not settling or self._clock.monotonic() >= deadline:
                return found
            self._clock.sleep(self.waits.poll)

    def _others_now(self, owner: Party | None, home: str) -> tuple[Other, ...]:
        found = []
        for one, said in self._ask_but(owner):
            alone = one.multiplex is False and one.served is not None and home not in one.served
            found.append(Other(party=one.party(), answer=said, keeps_to_itself=alone))
        return (*found, *self._unlisted())

    def _dial(self, party: Party, question: Question, seconds: float) -> Answer | None:
        self.dialled += 1
        said = self._ask(party, question, seconds)
        identity = party.identity
        if said is None or identity is None or said.nonce != identity.nonce or said.pid != identity.pid:
            return None
        return said if said.home in (None, party.home) else None

    # --- seeing ----------------------------------------------------------------------------------------------

    def _see(self) -> HostView:
        found = gateway_lock.look(self._folder)
        record = self._record()
        said = [found.because]
        if self._problem:
            said.append(self._problem)
        held = found.outcome is gateway_lock.Outcome.HELD
        if found.outcome is gateway_lock.Outcome.COULD_NOT_OPEN or self._problem:
            # A lock that is held says that an owner lives, whether or not anything says who it is.
            unknown = Seen.BUSY if self._busy else Seen.UNKNOWN
            seen = Seen.UNRECORDED if held else unknown
            return HostView(seen=seen, because=tuple(said), record=record, owner=None, answer=None)
        one = None if record is None else record.gateway
        if record is None or one is None:
            seen = Seen.UNRECORDED if held else Seen.NOBODY
            said.append("no record names an owner")
            return HostView(seen=seen, because=tuple(said), record=record, owner=None, answer=None)
        judged = judge(one, self._folder, self._clock)
        party = one.party(record.fence)
        said.append(f"the record with fence {record.fence} names {party}: {judged.verdict.because}")
        if judged.is_ours and one.identity is not None and self.is_us(one.identity):
            return HostView(seen=Seen.US, because=tuple(said), record=record, owner=party, answer=None)
        lost = False
        if held:
            seen = Seen.LIVE if judged.may_live else Seen.UNRECORDED
            if judged.verdict.dead and (who := gateway_lock.holders_of(self._folder)):
                # A child that was made without our hooks, say, keeps it for its dead parent.
                said.append(f"its lock is kept open by {', '.join(who)}: end that, and the host is free")
        elif holds_its_presence(judged, self._folder):
            seen = Seen.LIVE
            lost = True
            said.append("its lock file was removed or replaced, and it lives")
        else:
            seen = Seen.NOBODY
        owner = party if seen is Seen.LIVE else None
        return HostView(seen=seen, because=tuple(said), record=record, owner=owner, answer=None, lock_lost=lost)

    def is_us(self, identity: OwnerIdentity) -> bool:
        """Whether that is whoever looks."""
        return self._is_nonce_ours(identity.nonce)

    def _is_nonce_ours(self, nonce: str) -> bool:
        if self._presence is not None:
            return nonce == self._presence.identity.nonce
        return is_here(nonce)

    def _record(self) -> HostRecord | None:
        if self._core is None:
            return None
        with self._core.reader() as reader:
            return read_host(reader)

    def _revision(self) -> int:
        if self._core is None:
            return 0
        with self._core.reader() as reader:
            row = reader.row("SELECT revision FROM host")
        return 0 if row is None else int(row[0])

    def _is_taken_over(self, owner: Party | None) -> bool:
        if self._core is None or owner is None or owner.identity is None:
            return False
        from hermes_state.host.markers import is_marked

        with self._core.reader() as reader:
            return is_marked(reader, owner.identity, self._clock)
