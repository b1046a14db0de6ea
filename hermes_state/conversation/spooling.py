"""A turn that counts as saved: in the store, or in the spool beside it until the store takes it.

Invariant: `save` returns only when every message of the turn is in the store at "power" or in the spool on the disk,
and raises `NotSaved` when it is in neither. What was spooled goes into the store before anything that is saved after
it, in order, each message once: its key was chosen before the first try, so that a try whose end nobody saw, a replay
that was killed and a second replay all find what they did. An item that can never be written is quarantined with its
reason and holds nobody up.

Not for: bad input, which is refused at once and spooled nowhere. Retrying in memory was rejected: a kill ends it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.turn_payload import apply_turn, settled, turn_payload
from hermes_state.errors import (
    InvalidInput,
    LockTimeout,
    NotSaved,
    StateError,
    StatementFailed,
    StorageError,
    StoreHeld,
    TornItem,
    UnsafeProcess,
)
from hermes_state.spool import Item, Quarantined, Spool
from hermes_state.spool.folder import lines_of
from hermes_state.spool.lines import item_of

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction

KIND = "turn"
# The store cannot take anything now, whatever it is: busy, full, damaged, replaced, being rewritten.
CANNOT_TAKE = (LockTimeout, StorageError, StoreHeld, UnsafeProcess)
SAVE_SECONDS = 20.0  # how long a turn waits for the write lock before it is spooled (a routine wait, design rule 2)
ITEMS_PER_COMMIT = 20  # of a replay, so that others get the write lock in between


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where a turn is."""

    # ids of its messages in the order of the rows, None while it is spooled
    ids: list[int] | None
    # what waits in the spool, None when the turn is in the store
    item: Item | None
    # why the store did not take it, None when it did
    cause: StateError | None


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay did."""

    # messages that are new in the store
    messages: int
    # items whose messages are all in the store now, those that were there before included
    applied: int
    # items that can never be written
    quarantined: list[Quarantined]


class Spooling:
    """`store.spool`: saving turns whatever happens, and giving the store what waits."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._spool = Spool(core.path, clock=core.clock)

    def save(
        self, session_id: str, rows: Sequence[Mapping[str, Any]], *, source: str | None = None,
        model: str | None = None, key: str | None = None, deadline_seconds: float = SAVE_SECONDS,
    ) -> Saved:
        """Save the messages of a turn at "power", or spool them when the store cannot take them now.

        `rows` as for `messages.append_many`. `source`: makes the session when it is not there, with `model`. `key`:
        stands for the whole turn, so that saving it again under the same key stores nothing twice; by default every
        call is a turn of its own. `deadline_seconds`: how long to wait for the write lock.
        Raises `NotSaved` (with both causes) when the spool cannot take it either, and by name for what no replay could
        cure: `InvalidInput`, `SessionNotFound`, `SessionDeleted`, `SessionReplaced`, `IdempotencyConflict`, `Entombed`.
        """
        turn = turn_payload(self._core.clock.now(), session_id, rows, source=source, model=model, key=key)
        try:
            if not self._spool.is_empty():
                self.replay(deadline_seconds=deadline_seconds)
            ids = self._core.write(
                lambda tx: settled(tx, apply_turn(tx, turn)), durability="power", deadline_seconds=deadline_seconds
            )
        except CANNOT_TAKE as cause:
            return Saved(ids=None, item=keep(self._spool, turn, cause, store_id=self._core.store_id), cause=cause)
        return Saved(ids=ids, item=None, cause=None)

    def replay(self, *, deadline_seconds: float = SAVE_SECONDS) -> Replayed:
        """Bring everything that waits into the store, in order; returns what was done. Safe to repeat and to kill.

        Raises `LockTimeout` when another process is replaying or has the write lock, and what every write raises; what
        is not in the store by then stays in the spool.
        """
        done = Replayed(messages=0, applied=0, quarantined=[])
        for _ in range(2):  # what an earlier replay left, then what was put since
            with self._spool.replaying() as files:
                for path in files:
                    for batch in _batches(path):
                        new, whole, failed = self._core.write(
                            lambda tx, batch=batch: settled(tx, self._batch(tx, batch)),  # type: ignore[misc]
                            durability="power", deadline_seconds=deadline_seconds,
                        )
                        kept = [self._spool.quarantine(item, error) for item, error in failed]
                        done = Replayed(
                            messages=done.messages + new, applied=done.applied + whole,
                            quarantined=done.quarantined + kept,
                        )
                    self._spool.done(path)
        return done

    def waiting(self) -> list[Item]:
        """What waits in the spool, oldest first."""
        return list(self._spool.items())

    def quarantined(self) -> list[Quarantined]:
        """What can never be written, oldest first, each with its file and its reason."""
        return self._spool.quarantined()

    def requeue(self, kept: Quarantined) -> Item:
        """Put a quarantined item at the end of the spool once more, e.g. after its session was made again.

        Raises `TornItem` for one that never was an item.
        """
        return self._spool.requeue(kept)

    def _batch(self, tx: Transaction, batch: list[bytes]) -> tuple[int, int, list[tuple[Item | bytes, StateError]]]:
        """Each item in a savepoint of its own: messages added, items applied, and what failed for good."""
        added = applied = 0
        failed: list[tuple[Item | bytes, StateError]] = []
        refused: list[tuple[Item | bytes, StateError]] = []
        for line in batch:
            try:
                item = item_of(line)
            except ValueError as error:
                torn = TornItem(f"A line of {self._spool.folder} is no spooled item: {error}.", path=self._spool.folder)
                failed.append((line, torn))
                continue
            tx.execute("SAVEPOINT item")
            try:
                if item.kind != KIND:
                    raise InvalidInput(f"Spooled item {item.id} is of the kind {item.kind!r}, which is not known here.")
                if item.store_id not in (None, self._core.store_id):
                    raise InvalidInput(
                        f"Spooled item {item.id} is for the store {item.store_id}; {self._core.path} is "
                        f"{self._core.store_id}.",
                    )
                before = tx.rows("SELECT max(id) FROM messages")[0][0] or 0
                apply_turn(tx, item.payload)
                added += tx.rows("SELECT count(*) FROM messages WHERE id > ?", (before,))[0][0]
                applied += 1
            except StatementFailed as error:
                tx.execute("ROLLBACK TO item")
                refused.append((item, error))
            except CANNOT_TAKE:
                raise  # nothing is wrong with the item: all of it stays in the spool
            except (StateError, KeyError, TypeError, ValueError) as error:
                tx.execute("ROLLBACK TO item")
                failed.append((item, _as_error(item, error)))
            tx.execute("RELEASE item")
        if refused and not applied and not self._takes_any(tx):
            raise refused[0][1]  # it is the store that SQLite takes nothing into, not the items
        return added, applied, failed + refused

    def _takes_any(self, tx: Transaction) -> bool:
        """Whether a turn of an ordinary session would be taken; nothing of it stays."""
        now = self._core.clock.now()
        session = f"spool-{secrets.token_hex(16)}"
        turn = turn_payload(now, session, [{"role": "user", "content": "."}], source="spool", model=None, key=None)
        tx.execute("SAVEPOINT probe")
        try:
            apply_turn(tx, turn)
        except StatementFailed:
            return False
        finally:
            tx.execute("ROLLBACK TO probe")
            tx.execute("RELEASE probe")
        return True


class TurnSpool:
    """What `open_spool` gives: turns are kept for a store that this process cannot open now."""

    def __init__(self, store: Path, *, clock: Clock) -> None:
        self._spool, self._clock = Spool(store, clock=clock), clock

    def save(
        self, session_id: str, rows: Sequence[Mapping[str, Any]], *, cause: StateError, source: str | None = None,
        model: str | None = None, key: str | None = None,
    ) -> Saved:
        """Spool a turn; arguments as for `Spooling.save`. `cause`: why the store cannot be opened.

        Raises `NotSaved` and `InvalidInput`.
        """
        turn = turn_payload(self._clock.now(), session_id, rows, source=source, model=model, key=key)
        return Saved(ids=None, item=keep(self._spool, turn, cause, store_id=None), cause=cause)

    def waiting(self) -> list[Item]:
        """What waits in the spool, oldest first."""
        return list(self._spool.items())

    def quarantined(self) -> list[Quarantined]:
        """What can never be written, oldest first."""
        return self._spool.quarantined()


def keep(spool: Spool, turn: dict[str, Any], cause: StateError, *, store_id: str | None) -> Item:
    """Spool a turn that a store did not take. Raises `NotSaved` with both causes."""
    try:
        return spool.put(KIND, turn, cause=cause.code, store_id=store_id)
    except StateError as error:
        raise NotSaved(
            f"A turn of session {turn['session_id']} is saved nowhere: the store did not take it ({cause.message}) and "
            f"neither did the spool ({error.message})",
            hint="Free space or fix the folder, then save it again; until then only this process has it.",
            session_id=turn["session_id"], store_error=cause, spool_error=error, path=spool.folder,
        ) from cause


def _batches(path: Path) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines_of(path):
        batch.append(line)
        if len(batch) == ITEMS_PER_COMMIT:
            yield batch
            batch = []
    if batch:
        yield batch


def _as_error(item: Item, error: Exception) -> StateError:
    if isinstance(error, StateError):
        return error
    return InvalidInput(f"Spooled item {item.id} is not a turn: {type(error).__name__}: {error}.")
