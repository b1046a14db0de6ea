"""`store.work.lanes`: what comes for a chat while a turn runs there waits in order, and is taken at a turn's beginning.

Invariant: what was added survives a kill, and is in exactly one message or dropped by name. Everything that waits, up
to a bound, becomes one user message, and only where the last message of the session was answered, so that no two user
messages stand beside each other, however many deliveries of cron wait among them. Taking is under the lease of the
turn, in one transaction with the message.

Not for: messages that need no turn, or for waking one. Appending each item as a message when it comes was rejected: a
hundred deliveries of cron overnight are a hundred user messages in a row, which providers refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.conversation import bodies, history
from hermes_state.conversation.append import insert_many, prepare
from hermes_state.conversation.fields import encode
from hermes_state.conversation.session_rows import session_no, wall_time
from hermes_state.errors import InvalidInput, RouteMoved, RouteNotFound
from hermes_state.outbox.inputs import LATEST, MOST_ID, MOST_REASON, seconds, text, whole
from hermes_state.routing.homes import Home, guard, refuse_other_home
from hermes_state.routing.records import Route
from hermes_state.routing.records import read as read_route
from hermes_state.work import lane_rows, mirroring
from hermes_state.work.lane_rows import Item, ItemKind
from hermes_state.work.mirroring import Mirrored, Provenance
from hermes_state.work.timed import Timed

if TYPE_CHECKING:
    from hermes_state.conversation.messages import Messages
    from hermes_state.engine import Reader, Transaction
    from hermes_state.routing.turns import Turn

# Most items, and most characters of theirs beyond the first item's, in one user message; the rest waits for the next.
# Where more mirrors than that wait before the first follow-up, as many as these more are taken with it.
MOST_TAKEN, MOST_TAKEN_CHARACTERS, MOST_BEFORE = 500, 262_144, 5_000
# Most items of a conversation that was reset, which one call drops; the next call goes on.
MOST_LATE = 1_000
MOST_PAGE = 1000
# How long keys are remembered after an item ended; no platform sends an update again after so long.
KEPT_SECONDS = 14 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What `take` gave to a turn."""

    # the user message that the turn is to answer; None: nothing was taken
    message_id: int | None
    # what is in it, in order
    items: tuple[Item, ...]
    # the newest message of the session where that has no answer yet: answer it first, then take again
    unanswered: int | None
    # what came for a conversation that was reset since, and is dropped now
    late: tuple[Item, ...]
    # whether more waits
    more: bool


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One lane in which something waits."""

    lane: str  # session key
    follow_ups: int
    mirrors: int
    since: float  # when the first of them came, epoch seconds UTC


class Lanes(Timed):
    """The lanes of one store. Safe for threads."""

    # --- coming ------------------------------------------------------------------------------------------------

    def add(self, lane: str, key: str, content: str | list[Any], home: Home, *, details: Any = None) -> Item:
        """Keep what somebody wrote in a chat until a turn takes it, at `power`; acknowledge it to its platform then.

        `lane` is the chat's session key, `key` the platform's id of the message (a repeat is found, not added again),
        `content` a text or a list of parts, `details` JSON that is kept with the message. It is for the conversation
        that the chat is in now, or for the next one where that is suspended or expired: what makes a program reset a
        chat is added after the reset. Raises `InvalidInput`,
        `IdempotencyConflict`, `WrongHome`, `HomeRemoved`.
        """
        def work(tx: Transaction, at: float) -> Item:
            return lane_rows.add(
                tx, lane, f"message/{key}", content, home, kind=ItemKind.FOLLOW_UP, label=None, details=details, at=at
            )[0]

        return self._write_at(home, work)

    def mirror(
        self, lane: str, content: str, home: Home, *, delivery_id: str, job: str, provenance: Provenance,
        attach: bool | None, default: bool,
    ) -> Mirrored:
        """As `hermes_state.work.mirroring.mirror`, in a transaction of its own, at `power`."""
        return self._write_at(home, lambda tx, at: mirroring.mirror(
            tx, lane, content, home, delivery_id=delivery_id, job=job, provenance=provenance, attach=attach,
            default=default, at=at,
        ))

    # --- the turn ----------------------------------------------------------------------------------------------

    def take(self, turn: Turn[Messages], route: Route, home: Home, *, wake: bool = False) -> Taken:
        """Begin a turn with all that waits in the lane of `route`, as one user message of its session, at `power`.

        Call it when a turn begins, and again when it was answered, until nothing more is taken. Mirrors wait for a
        follow-up to come; with `wake` they make a turn by themselves. Nothing is taken while the newest message of the
        session has no answer, as after a kill: `unanswered` says which one, also when nothing waits. What came before
        the chat was reset is dropped, and given back as `late`. Raises `LeaseLost`, `StaleFence` (the turn is not
        ours), `RouteMoved`, `RouteNotFound` (the chat goes on elsewhere), `SessionReplaced` (follow it), `InvalidInput`
        (the turn is of another session than the route), `WrongHome`, `HomeRemoved`. Nothing is taken for a chat that is
        suspended or expired: what waits there is for its next session.
        """
        if turn.session_id != route.session_id:
            raise InvalidInput(
                f"The turn is of session {turn.session_id!r}, the chat {route.session_key!r} is in"
                f" {route.session_id!r}.", hint="Begin a turn of the route's session.", argument="turn",
            )
        refuse_other_home(self._core, home)
        at = wall_time(self._core.clock)
        return turn.write(lambda tx: _take(tx, turn.session_id, route, home, wake=wake, at=at), durability="power")

    def drop(self, lane: str, home: Home, *, reason: str, mirrors: bool = False) -> list[Item]:
        """Drop the follow-ups that wait in a lane, as when a person stops what they asked for; gives them as they were.

        With `mirrors` those go too. What they say stays readable. Raises `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        text("reason", reason, most=MOST_REASON, of="")

        def work(tx: Transaction, at: float) -> list[Item]:
            found = [
                one for one in lane_rows.waiting(tx, lane, limit=MOST_ID)
                if mirrors or one.kind is ItemKind.FOLLOW_UP
            ]
            lane_rows.dropped(tx, found, reason, at=at)
            return found

        return self._write_at(home, work)

    # --- reading -----------------------------------------------------------------------------------------------

    def get(self, no: int) -> Item | None:
        """One item by its number."""
        whole("no", no, 1, MOST_ID)
        with self._core.reader() as reader:
            return lane_rows.read(reader, no) if has_lanes(reader) else None

    def waiting(self, lane: str, *, limit: int = 50) -> list[Item]:
        """The first `limit` items (1 to 1000) that wait in a lane, in order."""
        whole("limit", limit, 1, MOST_PAGE)
        with self._core.reader() as reader:
            return lane_rows.waiting(reader, lane, limit=limit) if has_lanes(reader) else []

    def lanes(self, *, limit: int = 50) -> list[Waiting]:
        """The lanes in which something waits, up to `limit` (1 to 1000), by name: look there after a restart."""
        whole("limit", limit, 1, MOST_PAGE)
        with self._core.reader() as reader:
            return [
                Waiting(lane=lane, follow_ups=follow_ups, mirrors=mirrors, since=since)
                for lane, follow_ups, mirrors, since in reader.rows(
                    "SELECT lane, sum(kind = 'follow_up'), sum(kind = 'mirror'), min(came_at) FROM lane_items"
                    " WHERE state = 'waiting' GROUP BY lane ORDER BY lane LIMIT ?", (limit,),
                )
            ] if has_lanes(reader) else []

    def forget(self, *, kept_seconds: float = KEPT_SECONDS, limit: int = 500) -> int:
        """Forget up to `limit` items that ended `kept_seconds` ago; gives how many. What waits is never forgotten."""
        seconds("kept_seconds", kept_seconds, most=LATEST)
        whole("limit", limit, 1, MOST_PAGE)
        at = self._core.clock.now()

        def work(tx: Transaction) -> int:
            rows = tx.rows(
                # by number, which is their age, so that the look ends at the first that are young
                "SELECT no FROM lane_items WHERE settled_at <= ? ORDER BY no LIMIT ?", (at - kept_seconds, limit),
            )
            for (no,) in rows:
                tx.execute("DELETE FROM lane_items WHERE no = ?", (no,))
                record(tx, "lane_items", str(no), "delete", at)
            return len(rows)

        return self._core.write(work)

    # --- inside ------------------------------------------------------------------------------------------------



def has_lanes(reader: Reader) -> bool:
    """Whether the store has the tables: they come with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'lane_items'") is not None


def _take(tx: Transaction, session_id: str, route: Route, home: Home, *, wake: bool, at: float) -> Taken:
    guard(tx, home)
    now = _same(tx, route)
    late = lane_rows.late(tx, route.session_key, now.generation, limit=MOST_LATE)
    lane_rows.dropped(tx, late, "its conversation was reset before it was taken", at=at)
    place = lane_rows.first_follow_up(tx, route.session_key, now.generation)
    most = max(MOST_TAKEN, min(place or 0, MOST_BEFORE))
    there = lane_rows.waiting(tx, route.session_key, limit=most + 1, generation=now.generation)
    fitting = _fitting(there, most)
    unanswered = _unanswered(tx, session_id)
    if not fitting or not (wake or place) or unanswered is not None or not now.goes_on:
        return Taken(message_id=None, items=(), unanswered=unanswered, late=tuple(late), more=bool(there))
    new = encode(
        at, "user", _joined([mirroring.labelled(one) for one in fitting]),
        extra={"lane": [
            {"key": one.key, "kind": str(one.kind), "came_at": one.came_at}
            | ({} if one.details is None else {"details": one.details})
            for one in fitting
        ]},
    )
    frame = bodies.prepare(new.content_type, new.raw, new.content, compress=False)
    no = session_no(tx, session_id)
    (message_id,) = insert_many(tx, session_id, no, [prepare(no, new, frame)])
    lane_rows.taken(tx, fitting, session_id, message_id, at=at)
    return Taken(
        message_id=message_id, items=tuple(fitting), unanswered=None, late=tuple(late),
        more=len(fitting) < len(there),
    )


def _same(tx: Transaction, route: Route) -> Route:
    """The chat's entry now, which must be of the same conversation and session."""
    now = read_route(tx, route.session_key)
    if now is None:
        raise RouteNotFound(
            f"There is no routing entry {route.session_key!r} in {tx.path} any more.",
            hint="Bind the chat anew; what waits in its lane stays.", path=tx.path, session_key=route.session_key,
        )
    if (now.generation, now.session_id, now.incarnation) != (route.generation, route.session_id, route.incarnation):
        raise RouteMoved(
            f"The chat {route.session_key!r} of {tx.path} is in session {now.session_id!r}, generation"
            f" {now.generation}, by now; nothing was taken for {route.session_id!r}.",
            hint="Begin a turn of the session that it is in.", path=tx.path, session_key=route.session_key, route=now,
        )
    return now


def _fitting(items: Sequence[Item], most: int) -> list[Item]:
    """The first of them, as many as one message takes."""
    found: list[Item] = []
    size = 0
    for one in items[:most]:
        size += lane_rows.size_of(one)
        if found and size > MOST_TAKEN_CHARACTERS:
            break
        found.append(one)
    return found


def _joined(contents: Sequence[Any]) -> Any:
    """One content: texts as paragraphs; where one has parts, all are parts."""
    if all(isinstance(one, str) for one in contents):
        return "\n\n".join(contents)
    parts: list[Any] = []
    for one in contents:
        parts += [{"type": "text", "text": one}] if isinstance(one, str) else one
    return parts


def _unanswered(tx: Transaction, session_id: str) -> int | None:
    """The newest message that is to be seen, when something has to follow it before a user speaks again."""
    page = history.page(
        tx, session_no(tx, session_id), before=None, after=None, limit=1, chain=False, include_rewound=False
    )
    if not page.messages:
        return None
    (newest,) = page.messages
    waits = newest.role in ("user", "tool") or (newest.role == "assistant" and bool(newest.tool_calls))
    return newest.id if waits else None
