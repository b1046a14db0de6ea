"""`store.turns`: start turns, take frames of gateways, answer, stop, recover.

Invariant: every call is one short transaction, or none: text that arrives is judged by a read. What settles a turn, a
question or a stop commits at `power`. Nothing here waits for a gateway: what it has to hear is owed in the outbox, and
`send` gives it to the handler of whoever has the connection.

Not for: transcripts (`store.messages`) and sockets. A session object a thread in memory was rejected: two processes had
two, and a restart had none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput, StateError, TurnNotActive, Unsupported
from hermes_state.outbox import Claim, NotSent, Outbox, State, Suppressed, Verdict
from hermes_state.outbox.verdicts import VERDICTS, lost_by, not_sent, verdict_of
from hermes_state.turns import frames, history, interactions, receiving, recovery, sending, settling, stops, threads
from hermes_state.turns.ending import Ends, what_ends
from hermes_state.turns.frames import Admission, Frame, FrameKind
from hermes_state.turns.home import Home
from hermes_state.turns.receiving import Received
from hermes_state.turns.records import (
    Interaction,
    Item,
    Stop,
    Thread,
    Turn,
    active_turn,
    find_thread,
    find_turn,
    need_thread,
    transport_of,
)
from hermes_state.turns.recovery import Ensure, RecoveryPlan
from hermes_state.turns.states import StopCause, TurnEvent

# What takes part in the transaction of a call, before anything else in it; what it raises rolls the call back.
Within = Callable[["Transaction"], object]

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep ended or owed again."""

    expired: tuple[int, ...]  # ids of questions that nobody answered in time
    stops_owed_again: tuple[str, ...]  # ids of stops whose obligation had ended without an answer


class Turns:
    """The turns of one store. Safe for threads."""

    def __init__(self, core: Core, *, sanitise: interactions.Sanitise) -> None:
        """`sanitise(type, payload)` gives what of a payload may be stored."""
        self._core = core
        self._sanitise = sanitise
        self._outbox = Outbox(core)

    @property
    def home(self) -> Home:
        """Both ends of deliveries home."""
        return Home(self._core)

    # --- looking ---------------------------------------------------------------------------------------------

    def thread(self, thread_id: str) -> Thread:
        """How a thread stands. Raises `ThreadNotFound`."""
        with self._core.reader() as reader:
            return need_thread(reader, thread_id)

    def get(self, turn_id: str) -> Turn | None:
        """One turn, None when it is none that is kept."""
        with self._core.reader() as reader:
            return find_turn(reader, turn_id)

    def active(self, thread_id: str) -> Turn | None:
        """The turn of a thread that has not ended."""
        with self._core.reader() as reader:
            return active_turn(reader, thread_id)

    def history(self, thread_id: str) -> list[Turn]:
        """The turns of a thread that are kept, newest first."""
        with self._core.reader() as reader:
            return history.page(reader, thread_id)

    def items(self, turn: Turn) -> list[Item]:
        """The items of a turn that are kept, in order."""
        with self._core.reader() as reader:
            return history.items(reader, turn.no)

    # --- starting --------------------------------------------------------------------------------------------

    def open_thread(self, thread_id: str, *, turn_ids: bool = True) -> Thread:
        """Make the state of a bound thread, or find it. `turn_ids`: whether its provider knows ids of turns."""
        return self._core.write(lambda tx: threads.open_thread(tx, thread_id, turn_ids=turn_ids))

    def start(
        self, thread_id: str, announce: Callable[[Turn], object], *, turn_id: str | None = None,
        generation: str | None = None, boot_id: str | None = None,
    ) -> Turn:
        """Reserve the turn of a thread, tell its gateway by `announce(turn)`, and have it run.

        What `announce` raises is raised, after the reservation was rolled back; a kill in between leaves a turn that
        the next reconnect asks about. Raises `TurnActive`, `ThreadStopped`, `ThreadNotFound`.
        """
        turn = self.reserve(thread_id, turn_id=turn_id, generation=generation, boot_id=boot_id)
        try:
            announce(turn)
        except BaseException as error:
            try:
                self.withdraw(turn.turn_id)
            except StateError as failure:
                error.add_note(f"The reservation of turn {turn.turn_id!r} was not rolled back: {failure}")
            raise
        return self.announced(turn.turn_id)

    def reserve(
        self, thread_id: str, *, turn_id: str | None = None, generation: str | None = None,
        boot_id: str | None = None, within: Within | None = None,
    ) -> Turn:
        """The first half of `start`, at `power`; follow with `announced` or `withdraw`.

        `within(tx)` is called in the transaction, before anything else in it.
        """

        def work(tx: Transaction) -> Turn:
            if within is not None:
                within(tx)
            at = self._core.clock.now()
            return settling.reserve(tx, thread_id, at=at, turn_id=turn_id, generation=generation, boot_id=boot_id)

        return self._core.write(work, durability="power")

    def announced(self, turn_id: str, *, within: Within | None = None) -> Turn:
        """The gateway was told of a reserved turn. One that has ended meanwhile stays so."""
        return self._event(turn_id, TurnEvent.ANNOUNCE, within=within)

    def withdraw(
        self, turn_id: str, *, error: str = "its announcement failed", within: Within | None = None
    ) -> Turn:
        """The announcement of a reserved turn failed for certain: roll the reservation back."""
        return self._event(turn_id, TurnEvent.WITHDRAW, error=error, within=within)

    def rollback(self, thread_id: str) -> None:
        """Take turns back: no gateway can. Raises `ThreadNotFound` for a thread that is none, else `Unsupported`."""
        self.thread(thread_id)
        raise Unsupported(
            f"The provider of thread {thread_id!r} in {self._core.path} cannot take turns back.",
            hint="Start a new thread from there.", path=self._core.path, thread_id=thread_id, operation="rollback",
        )

    def _event(
        self, turn_id: str, event: TurnEvent, *, error: str | None = None, within: Within | None = None
    ) -> Turn:
        at = self._core.clock.now()

        def work(tx: Transaction) -> Turn:
            if within is not None:
                within(tx)
            turn = find_turn(tx, turn_id)
            if turn is None:
                raise TurnNotActive(
                    f"There is no turn {turn_id!r} in {tx.path}.",
                    hint="It is no turn, or was forgotten with its thread.", path=tx.path, thread_id=None,
                    turn_id=turn_id,
                )
            settling.step(tx, need_thread(tx, turn.thread_id), turn, event, at=at, error=error)
            now = find_turn(tx, turn_id)
            assert now is not None
            return now

        return self._core.write(work, durability="process" if event is TurnEvent.ANNOUNCE else "power")

    # --- what gateways say -----------------------------------------------------------------------------------

    def judge(self, frame: Frame) -> Admission:
        """Whether a frame counts, and why not. Reads only."""
        with self._core.reader() as reader:
            return self._judge(reader, frame)[0]

    def admits(self, frame: Frame) -> bool:
        """Whether a frame may be shown. What is not admitted is to be dropped. Reads only."""
        return self.judge(frame) is Admission.ADMITTED

    def _judge(self, reader: Reader, frame: Frame) -> tuple[Admission, Turn | None]:
        """Whether a frame counts, and the active turn of its thread."""
        thread = find_thread(reader, frame.thread_id)
        turn = None if thread is None else active_turn(reader, frame.thread_id)
        return frames.judge(thread, turn, frame), turn

    def receive(self, frame: Frame, *, boot_id: str | None = None, within: Within | None = None) -> Received:
        """Take a frame: text is only judged, everything else is written in one transaction.

        `boot_id` is that of the plugin on whose connection it came. An end of a turn that is not the active one
        changes nothing and is counted. `within(tx)` is called in the transaction, before anything else in it. Raises
        `InvalidInput` for a question without an id.
        """
        with self._core.reader() as reader:
            seen, turn = self._judge(reader, frame)
        if frame.kind in frames.CONTENT:
            return Received(admission=seen, turn=turn)
        if seen is not Admission.ADMITTED and frame.kind not in frames.ENDS:
            return Received(admission=seen)
        at = self._core.clock.now()
        safe = receiving.safe(self._sanitise, frame)
        durable = frame.kind in frames.ENDS or frame.kind is FrameKind.SESSION_EXITED

        def work(tx: Transaction) -> Received:
            if within is not None:
                within(tx)
            return receiving.take(tx, frame, safe, boot_id=boot_id, at=at)

        return self._core.write(work, durability="power" if durable else "process")

    # --- people ----------------------------------------------------------------------------------------------

    def questions(
        self, *, thread_id: str | None = None, only_open: bool = True, limit: int = 100
    ) -> list[Interaction]:
        """Up to `limit` questions, oldest first."""
        with self._core.reader() as reader:
            return interactions.page(reader, thread_id=thread_id, only_open=only_open, limit=limit)

    def question(self, number: int) -> Interaction:
        """One question by its id. Raises `RequestNotFound`."""
        with self._core.reader() as reader:
            return interactions.need(reader, number)

    def answer(
        self, number: int, said: object = None, *, answers: Mapping[str, Any] | None = None
    ) -> Interaction:
        """Record an answer and owe it to the gateway, in one transaction at `power`. The same again changes nothing.

        `said`: accept, acceptForSession, decline, cancel; whatever else denies. `answers` are for a request for
        input. Raises `RequestNotFound` for a question that was never asked, and, counted, for one that had ended.
        """
        at = self._core.clock.now()
        one, counts = self._core.write(
            lambda tx: interactions.answer(tx, number, said=said, answers=answers, at=at), durability="power"
        )
        if not counts:
            raise interactions.late(self._core.path, one)
        return one

    def stop(self, thread_id: str, *, cause: StopCause = StopCause.USER) -> Stop | None:
        """Ask for the session of a thread to end, at `power`; None when nothing is sent. Raises `ThreadNotFound`."""
        if not isinstance(cause, StopCause):
            raise InvalidInput(f"cause is a StopCause, not {cause!r}.", argument="cause")
        at = self._core.clock.now()
        return self._core.write(lambda tx: stops.ask(tx, thread_id, cause=cause, at=at), durability="power")

    # --- gateways --------------------------------------------------------------------------------------------

    def ensure(self, thread_id: str, *, session_id: str | None = None) -> Ensure:
        """Ask the gateway for a session of a thread, its own by default, at `power`. See `recovery.ask`."""
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: recovery.ask(tx, thread_id, session_id=session_id, at=at), durability="power"
        )

    def plan(self, instance_id: str, *, boot_id: str | None, boot_id_changed: bool = False) -> RecoveryPlan:
        """What a connection of an instance has to recover. Reads only."""
        with self._core.reader() as reader:
            return recovery.plan_recovery(reader, instance_id, boot_id=boot_id, boot_id_changed=boot_id_changed)

    def recover(self, plan: RecoveryPlan) -> None:
        """Carry a plan out, at `power`; a second time nothing changes, and a plan with nothing to do costs no write."""
        if not plan.changes_nothing:
            at = self._core.clock.now()
            self._core.write(lambda tx: recovery.apply_recovery(tx, plan, at=at), durability="power")

    def claim(self, instance_id: str, *, limit: int = 1, term_seconds: float = 60.0) -> list[Claim]:
        """What that gateway is to hear next: per thread one after the other, a stop before everything else.

        What nobody wants any more is taken back instead, such as a decision that was on its way in a process that died
        when its session was stopped.
        """
        self._core.refuse_close_inside()  # of a closed store: the outbox has a core of its own
        wanted: list[Claim] = []
        while not wanted:
            claims = self._outbox.claim(
                [transport_of(instance_id)], kinds=sending.KINDS, limit=limit, term_seconds=term_seconds
            )
            if not claims:
                break
            for one in claims:
                with self._core.reader() as reader:
                    why = sending.unwanted(reader, one.primary)
                if why is None:
                    wanted.append(one)
                else:
                    self.settle(one, Suppressed(why=why))
        return wanted

    def settle(self, claimed: Claim, verdict: Verdict) -> dict[int, State]:
        """Write what a gateway answered, and what follows from it, in one transaction at `power`.

        Its answer to an ensure is `Accepted(result={"session_id": ..., "active_turn_id": ..., "boot_id": ...,
        "history_rows": ...})`. Raises `StaleFence` when the claim is not ours any more, `InvalidInput`.
        """
        if not isinstance(verdict, VERDICTS):
            raise InvalidInput(f"What a gateway answered is a verdict, not {verdict!r:.80}.", argument="verdict")
        at = self._core.clock.now()
        return self._core.write(lambda tx: sending.settle(tx, claimed, verdict, at=at), durability="power")

    def send(
        self, instance_id: str, handler: Callable[[Claim], Verdict | None], *, most: int = 100,
        claim: Callable[[], Claim | None] | None = None,
    ) -> list[tuple[Claim, Verdict]]:
        """Give up to `most` obligations to a connected gateway, one by one, each settled before the next is claimed.

        `handler` as for `Outbox.deliver`: one that raises `NotSent` spent an attempt, any other error leaves open
        whether it was sent, so it is sent again. `claim()` gives the next one, by default the first that `claim` of
        this object gives; what it raises ends it.
        """
        done: list[tuple[Claim, Verdict]] = []
        while len(done) < most:
            claimed = next(iter(self.claim(instance_id)), None) if claim is None else claim()
            if claimed is None:
                break
            verdict: Verdict
            try:
                verdict = verdict_of(handler(claimed))
            except NotSent as error:
                verdict = not_sent(error)
            except BaseException as error:
                self.settle(claimed, lost_by(error))
                raise
            self.settle(claimed, verdict)
            done.append((claimed, verdict))
            if sending.ends_the_round(verdict):
                break
        return done

    def ends_with(self, instance_id: str, *, for_good: bool) -> Ends:
        """How much would end with an instance that is revoked now; `for_good`: removed. Reads only."""
        with self._core.reader() as reader:
            return what_ends(reader, instance_id, for_good=for_good)

    # --- upkeep ----------------------------------------------------------------------------------------------

    def sweep(self) -> Swept:
        """End questions whose time ran out, and owe again the stops whose obligation ended without an answer."""
        at = self._core.clock.now()
        with self._core.reader() as reader:
            due = stops.any_unowed(reader) or interactions.any_due(reader, at=at)
        if not due:
            return Swept(expired=(), stops_owed_again=())
        return self._core.write(
            lambda tx: Swept(
                expired=tuple(interactions.expire(tx, at=at)), stops_owed_again=tuple(stops.owe_again(tx, at=at))
            ),
            durability="power",
        )
