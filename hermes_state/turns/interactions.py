"""Questions of gateways to people: asked once, answered by id, never open for ever.

Invariant: a question is open until it is answered, cancelled or expired, and then never again. A decision and the
obligation to send it are one transaction, so it is sent again after a crash, under one id, and takes effect once. A
dropped socket changes nothing; another boot id of the plugin cancels what the old process waited for. The end of a turn
cancels its questions. What is not known to be a permission is a denial.

Not for: showing them. Answering by the gateway's own request id was rejected: a plugin that restarts counts from the
start again, and an answer to an old question would permit a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hermes_state import json_values
from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput, RequestNotFound
from hermes_state.outbox.inputs import MOST_ID, whole
from hermes_state.turns import owing
from hermes_state.turns.owing import suppress
from hermes_state.turns.records import (
    INTERACTION_COLUMNS,
    Interaction,
    Thread,
    Turn,
    in_turn,
    interaction_of,
    marked,
    plain_id,
    told,
)
from hermes_state.turns.states import Decision, InteractionEvent, InteractionState, decision_of, to_event

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Which of a payload may be stored, by item or request type: see `hermes_state.instances.sanitising`.
Sanitise = Callable[[str, object], dict[str, Any]]
# Before anything new of a thread, after its ensure: a plugin that lost its session knows no question of it.
PRIORITY = 100
KIND = owing.APPROVAL
# Of a question and of its answers, as JSON.
MOST_BYTES = 65_536
# A row without what was asked and said: it ends also when that cannot be read.
_BARE = INTERACTION_COLUMNS.replace(" args, detail, questions,", " '{}', NULL, NULL,").replace(" answers,", " NULL,")


def ask(
    tx: Transaction, thread: Thread, *, request_id: str, boot_id: str | None, turn_id: str | None,
    kind: Literal["approval", "user_input"], request_type: str, args: Mapping[str, Any], at: float,
    detail: str | None = None, questions: Sequence[Any] = (), expires_at: float | None = None,
) -> Interaction:
    """Record a question, or find it recorded before: the same id of the same turn. `args` are what the sanitiser left.

    Raises `InvalidInput`, `IdempotencyConflict` (the id stands for another question of that turn).
    """
    if not request_id:
        raise InvalidInput("A question of a gateway has an id.", argument="request_id")
    told_detail = None if detail is None else told(detail)
    content = (kind, request_type, _json(args, "args"), told_detail, _json(list(questions), "questions"))
    # A plugin may count its questions anew in each thread or turn; the table has each of its ids once.
    stored = in_turn(request_id, thread.thread_id, turn_id) if marked(request_id) else request_id
    for key in (request_id, in_turn(request_id, thread.thread_id, turn_id)):
        row = tx.row(
            f"SELECT {INTERACTION_COLUMNS} FROM interactions WHERE instance_id = ? AND coalesce(boot_id, '') = ?"
            " AND request_id = ?",
            (thread.instance_id, boot_id or "", key),
        )
        before = None if row is None else interaction_of(row)
        if before is not None and (before.thread_id, before.turn_id) == (thread.thread_id, turn_id):
            asked = (
                before.kind, before.request_type, _json(before.args, "args"), before.detail,
                _json(list(before.questions), "questions"),
            )
            if asked != content:
                raise IdempotencyConflict(
                    f"Question {request_id!r:.80} of turn {turn_id!r} in {tx.path} was asked before, and was another.",
                    hint="Give every question of a turn an id of its own.", path=tx.path, key=request_id,
                )
            return before
        if before is not None:
            stored = in_turn(request_id, thread.thread_id, turn_id)
    tx.execute(
        "INSERT INTO interactions (instance_id, boot_id, request_id, thread_id, session_id, turn_id, kind,"
        " request_type, args, detail, questions, opened_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            thread.instance_id, boot_id, stored, thread.thread_id, thread.session_id, turn_id, kind, request_type,
            content[2], told_detail, content[4] if questions else None, at, expires_at,
        ),
    )
    number = tx.last_insert_rowid()
    record(tx, "interactions", str(number), "insert", at)
    return need(tx, number)


def answer(
    tx: Transaction, number: int, *, said: object = None, answers: Mapping[str, Any] | None = None, at: float
) -> tuple[Interaction, bool]:
    """Record what a person said, and owe it to the gateway; gives the question, and whether this counts.

    An approval takes `said` (what is not known denies), a request for input `answers`. The same answer again counts
    and changes nothing; another one, or one after the end, does not count and is counted as late. Raises
    `RequestNotFound` for an id that is none.
    """
    one = need(tx, number)
    decision = decision_of(said) if one.kind == "approval" else None
    # As JSON gives it back: the same answer again is compared with what was stored.
    given = None if one.kind == "approval" else json.loads(_json(dict(answers or {}), "answers"))
    state = to_event(one.state, InteractionEvent.ANSWER)
    if state is None:
        if one.state is InteractionState.RESOLVED and (one.decision, one.answers) == (decision, given):
            return one, True
        tx.execute("UPDATE interactions SET late = late + 1 WHERE id = ?", (number,))
        return need(tx, number), False
    tx.execute(
        "UPDATE interactions SET state = ?, decision = ?, answers = ?, settled_at = ? WHERE id = ?",
        (
            str(state), None if decision is None else str(decision),
            None if given is None else _json(given, "answers"), at, number,
        ),
    )
    record(tx, "interactions", str(number), "update", at)
    settled = need(tx, number)
    _owe(tx, settled, decision, given, at=at)
    return settled, True


def any_due(reader: Reader, *, at: float) -> bool:
    """Whether `expire` has anything to do."""
    return reader.row("SELECT 1 FROM interactions WHERE state = 'open' AND expires_at <= ? LIMIT 1", (at,)) is not None


def expire(tx: Transaction, *, at: float, limit: int = 500) -> list[int]:
    """End the questions whose time ran out, and deny them to their gateways; gives their ids."""
    due = [
        interaction_of(row)
        for row in tx.rows(
            f"SELECT {_BARE} FROM interactions WHERE state = 'open' AND expires_at <= ?"
            " ORDER BY expires_at LIMIT ?",
            (at, limit),
        )
    ]
    for one in due:
        why = "nobody answered in time"
        try:
            _owe(tx, one, Decision.DENY if one.kind == "approval" else None, None, at=at)
        except owing.REFUSALS as error:  # the others end all the same; whoever looks at this one sees why
            why += f", and its gateway cannot be told: {error.message}"
        _end(tx, one, InteractionEvent.DEADLINE, why, at=at)
    return [one.id for one in due]


def end_of_turn(
    tx: Transaction, thread_id: str, turn_id: str | None, event: InteractionEvent, why: str, *, at: float
) -> int:
    """Cancel the open questions of a turn (all of the thread for None), and take back decisions on their way."""
    rows = tx.rows(
        f"SELECT {_BARE} FROM interactions WHERE thread_id = ?1 AND (?2 IS NULL OR turn_id IS ?2)"
        " AND state = 'open'",
        (thread_id, turn_id),
    )
    for row in rows:
        _end(tx, interaction_of(row), event, why, at=at)
    for (number,) in tx.rows(
        "SELECT id FROM interactions WHERE thread_id = ?1 AND (?2 IS NULL OR turn_id IS ?2) AND settled_at IS NOT NULL"
        " AND sent_at IS NULL",
        (thread_id, turn_id),
    ):
        suppress(tx, obligation_of(number), why, at=at)
    return len(rows)


def cancel(tx: Transaction, number: int, event: InteractionEvent, why: str, *, at: float) -> bool:
    """End one question without an answer; False when it has ended before."""
    row = tx.row(f"SELECT {_BARE} FROM interactions WHERE id = ?", (number,))
    return row is not None and _end(tx, interaction_of(row), event, why, at=at)


def withdraw(
    tx: Transaction, thread: Thread, request_id: str, *, boot_id: str | None, turn_id: str | None = None, at: float
) -> Interaction | None:
    """The gateway takes a question back; None when it had none of that id, of that turn where one is named."""
    found = [
        one
        for one, stored in tx.rows(
            "SELECT id, request_id FROM interactions WHERE thread_id = ?1 AND instance_id = ?2"
            " AND coalesce(boot_id, '') = ?3 AND (?4 IS NULL OR turn_id IS NULL OR turn_id = ?4) ORDER BY id DESC",
            (thread.thread_id, thread.instance_id, boot_id or "", turn_id),
        )
        if plain_id(stored) == request_id
    ]
    if not found:
        return None
    cancel(tx, found[0], InteractionEvent.WITHDRAWN, "its gateway took it back", at=at)
    return need(tx, found[0])


def sent(tx: Transaction, number: int, *, at: float) -> None:
    """Note that the gateway has the decision."""
    tx.execute(
        "UPDATE interactions SET sent_at = ? WHERE id = ? AND sent_at IS NULL AND state = 'resolved'", (at, number)
    )


def unwanted(reader: Reader, number: int, active: Turn | None) -> str | None:
    """Why a decision is not to be sent (again), None when it is. `active`: the turn that its thread has now."""
    row = reader.row(
        "SELECT i.turn_id, i.boot_id, l.boot_id FROM interactions i LEFT JOIN gateway_links l"
        " ON l.instance_id = i.instance_id WHERE i.id = ?",
        (number,),
    )
    if row is None:
        return "its question was forgotten with its turn"
    turn_id, boot_id, connected = row
    if turn_id is not None and (active is None or active.turn_id != turn_id):
        return "its turn ended meanwhile"
    # Another process of the plugin counts its questions from the start: the answer would be to another one.
    gone = boot_id is not None and connected is not None and boot_id != connected
    return "the plugin process that asked is gone" if gone else None


def forget_turns(tx: Transaction, thread_id: str, newest: int) -> int:
    """Part of forgetting the settled turns of a thread up to number `newest`: their questions go with them."""
    return tx.execute(
        "DELETE FROM interactions WHERE thread_id = ?1 AND state <> 'open' AND turn_id IN (SELECT turn_id FROM turns"
        " WHERE thread_id = ?1 AND settled_at IS NOT NULL AND no <= ?2)",
        (thread_id, newest),
    )


def find(reader: Reader, number: int) -> Interaction | None:
    """One question by its id; None for what is none."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MOST_ID:
        return None
    row = reader.row(f"SELECT {INTERACTION_COLUMNS} FROM interactions WHERE id = ?", (number,))
    return None if row is None else interaction_of(row)


def need(reader: Reader, number: int) -> Interaction:
    """As `find`. Raises `RequestNotFound`."""
    found = find(reader, number)
    if found is None:
        raise RequestNotFound(
            f"There is no interaction {number} in {reader.path}.", hint="It was never asked, or went with its turn.",
            path=reader.path, id=number, state=None, settled_at=None,
        )
    return found


def late(reader_path: Any, one: Interaction) -> RequestNotFound:
    """The error of an answer to a question that had ended."""
    why = f" ({one.reason})" if one.reason else ""
    return RequestNotFound(
        f"Interaction {one.id} of thread {one.thread_id!r} in {reader_path} was {one.state} before{why}.",
        hint="Nothing was sent; look at its thread for what followed.", path=reader_path, id=one.id,
        state=str(one.state), settled_at=one.settled_at,
    )


def page(
    reader: Reader, *, thread_id: str | None = None, only_open: bool = True, limit: int = 100
) -> list[Interaction]:
    """Up to `limit` (1 to 1,000) questions, oldest first, of one thread or of all. Raises `InvalidInput`."""
    whole("limit", limit, 1, 1000)
    return [
        interaction_of(row)
        for row in reader.rows(
            f"SELECT {INTERACTION_COLUMNS} FROM interactions WHERE (?1 IS NULL OR thread_id = ?1)"
            " AND (NOT ?2 OR state = 'open') ORDER BY id LIMIT ?3",
            (thread_id, int(only_open), limit),
        )
    ]


def obligation_of(number: int) -> str:
    """The dedupe id of a decision: the gateway drops what it knows by it."""
    return f"{KIND}/{number}"


def _owe(
    tx: Transaction, one: Interaction, decision: Decision | None, answers: Mapping[str, Any] | None, *, at: float
) -> None:
    owing.owe(
        tx, dedupe_id=obligation_of(one.id), kind=KIND, instance_id=one.instance_id, thread_id=one.thread_id,
        priority=PRIORITY, at=at,
        payload={
            "interaction": one.id, "request_id": one.request_id, "thread_id": one.thread_id,
            "session_id": one.session_id, "turn_id": one.turn_id, "kind": one.kind,
            "decision": None if decision is None else str(decision), "answers": answers,
        },
    )


def _end(tx: Transaction, one: Interaction, event: InteractionEvent, why: str, *, at: float) -> bool:
    state = to_event(one.state, event)
    if state is None or state is one.state:
        return False
    tx.execute(
        "UPDATE interactions SET state = ?, reason = ?, settled_at = ? WHERE id = ?",
        (str(state), told(why), at, one.id),
    )
    record(tx, "interactions", str(one.id), "update", at)
    return True


def _json(value: Any, name: str) -> str:
    try:
        json_values.check(value, json_values.MOST_LEVELS - 1)  # it goes out within the payload of an obligation
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} of an interaction is JSON: {error}.", argument=name) from error
    if size > MOST_BYTES:
        raise InvalidInput(
            f"{name} of an interaction has {size:,} bytes; {MOST_BYTES:,} is the most.", argument=name, size=size
        )
    return text
