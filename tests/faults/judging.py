"""What a store must be after a fault or a crash: it opens, is sound, and shows a state between two steps."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_state import open_store
from hermes_state.engine import APPLICATION_ID, ReadStore, Store, open_write
from hermes_state.errors import ForeignStore, SchemaTooNew, StateError
from hermes_state.testing.power_loss import Crash, Recording, crashes
from maintenance.doctor.findings import Severity
from maintenance.doctor.native_rows import row_findings
from tests.faults.operation import STORE, Durability, Operation, State, begin, start_clock

# There is no store.
GONE: State = {}


@dataclass
class Steps:
    """What a run was told is done, in order."""

    done: list[tuple[str, Durability]] = field(default_factory=list)

    def __call__(self, label: str, durability: Durability) -> None:
        self.done.append((label, durability))


def state_of(home: Path, operation: Operation | None = None) -> State:
    """What the store shows; it opens, is sound, and takes writes. Raises what opening raises, `AssertionError`."""
    state = shown(home, operation)
    if "damaged" not in state:
        takes_writes(home / STORE)
    return state


def shown(home: Path, operation: Operation | None = None) -> State:
    """The same without a write."""
    if operation is not None and operation.shows is not None:
        return operation.shows(home)
    return sound(home / STORE) if (home / STORE).exists() else GONE


def takes_writes(path: Path) -> None:
    """Write to the store, look, and take it away again."""
    try:
        with open_store(path=path) as store:
            session = store.sessions.create(source="after")
            said = store.messages.append(session.id, role="user", content="after it", durability="power")
            assert store.messages.get(said).content == "after it"
            store.sessions.delete(session.id, actor="test", reason="a test")
    except SchemaTooNew:
        pass  # the step of the operation `migrate` is one that no release has
    except ForeignStore:
        _takes_foreign_writes(path)


def _takes_foreign_writes(path: Path) -> None:
    with open_write(path, foreign=True) as store:
        with store.transaction(durability="power") as tx:
            tx.execute("INSERT INTO sessions (id, source, started_at) VALUES ('after', 'cli', 1.0)")
            tx.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('after', 'user', 'after it', 1.0)"
            )
        with store.transaction(durability="power") as tx:
            assert tx.rows("SELECT content FROM messages WHERE session_id = 'after'") == [("after it",)]
            tx.execute("DELETE FROM messages WHERE session_id = 'after'")
            tx.execute("DELETE FROM sessions WHERE id = 'after'")


def sound(path: Path) -> State:
    """What a store that is sound shows. Raises what opening raises, `AssertionError`."""
    with opened(path) as store:
        assert store.rows("PRAGMA integrity_check(5)") == [("ok",)]
        assert store.rows("PRAGMA foreign_key_check") == []
        if store.application_id != APPLICATION_ID:
            return foreign_state(store)
        wrong = [found for found in row_findings(store, deep=True) if found.severity > Severity.INFO]  # type: ignore[arg-type]
        assert not wrong, wrong
        return native_state(store)


def opened(path: Path) -> Store:
    """The store, open for writing. An empty WAL index, as a crash may leave, spares it the look at all processes."""
    if path.with_name(f"{path.name}-wal").exists():
        path.with_name(f"{path.name}-shm").touch()
    try:
        return open_write(path)
    except ForeignStore:
        return open_write(path, foreign=True)


def native_state(store: Store | ReadStore) -> State:
    """By session, then what is not of a session."""
    state: dict[str, Any] = {}
    for no, key, *facts in store.rows(
        "SELECT no, id, source, state, parent_no, relation, ended_at IS NULL, title, deleted_messages, hidden"
        " FROM sessions WHERE NOT (hidden = 1 AND active_at = 0)"
    ):
        messages = store.rows("SELECT seq, id, row_check FROM messages WHERE session_no = ? ORDER BY seq", (no,))
        edits = store.rows(
            "SELECT action, from_seq, to_seq, undoes FROM view_edits WHERE session_no = ? ORDER BY id", (no,)
        )
        generations = store.rows(
            "SELECT generation, c.state, cut_at, anchors, source_digest, summary, error, h.moves, k.position, k.clip"
            " FROM compactions c LEFT JOIN compaction_heads h ON h.compaction_id = c.id"
            " LEFT JOIN compaction_clips k ON k.compaction_id = c.id WHERE c.session_no = ? ORDER BY 1, 9", (no,)
        )
        state[f"session {key}"] = digest(facts, messages, edits, generations)
    # A stream is durable in batches, so what it has at one moment is no state of its own; its message is.
    lists = store.rows("SELECT keys FROM deletions WHERE kind = 'session'")
    removed = {key for (keys,) in lists for key in json.loads(keys)}
    buried = {key for (key,) in store.rows("SELECT key FROM tombstones WHERE kind = 'session'")}
    assert removed <= buried, (removed, buried)
    assert not [key for key in removed if f"session {key}" in state]
    state["schema"] = digest(store.rows("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"))
    state["ledger"] = digest(store.rows("SELECT number, name FROM migrations ORDER BY 1"))
    return state


def foreign_state(store: Store) -> State:
    """By table."""
    state = {}
    for table in ("sessions", "messages"):
        columns = [row[1] for row in store.rows(f'PRAGMA table_info("{table}")')]
        cells = ", ".join(f'quote("{name}")' for name in columns)
        state[f"table {table}"] = digest(store.rows(f"SELECT {cells} FROM {table} ORDER BY 1, 2"))
    return state


def digest(*parts: Any) -> str:
    """A short name for what the parts say."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Clean:
    """One run of an operation without a fault."""

    operation: Operation
    recording: Recording
    # the states before the first step, and after each
    states: tuple[State, ...]
    durabilities: tuple[Durability, ...]


def prepared(operation: Operation, folder: Path) -> Path:
    """A home in which the operation can run."""
    home = folder / "home"
    home.mkdir(parents=True)
    start_clock()
    operation.prepare(home)
    return home


def record_clean(operation: Operation, folder: Path) -> Clean:
    """Run the operation under a recording and learn the states from what the disk has at each step."""
    home = prepared(operation, folder)
    recording = Recording(home)
    told = Steps()

    def done(label: str, durability: Durability) -> None:
        told(label, durability)
        recording.mark(len(told.done))

    with recording:
        begin(home, operation, done)
    states: dict[int, State] = {}
    for crash in crashes(recording, every="mark", modes=("kept",)):
        steps = len(crash.marks)
        if steps not in states:
            states[steps] = _state_at(operation, crash, steps, folder / "clean")
    final = state_of(home, operation)
    assert states[len(told.done)] == final or not operation.whole
    return Clean(
        operation=operation, recording=recording,
        states=tuple(states[number] for number in range(len(told.done) + 1)),
        durabilities=tuple(durability for _label, durability in told.done),
    )


def _state_at(operation: Operation, crash: Crash, steps: int, folder: Path) -> State:
    try:
        home = crash.write(folder)
        operation.also(home, steps)
        return state_of(home, operation)
    finally:
        shutil.rmtree(folder)


def allowed(clean: Clean, first: int, last: int) -> list[State]:
    """The states from after step `first` to after step `last`."""
    return list(clean.states[first : min(last, len(clean.states) - 1) + 1])


def is_one_of(state: State, states: list[State], *, whole: bool) -> bool:
    """Whether a state is one of those; else, with `whole` False, each of its parts is as in one of them."""
    if state in states:
        return True
    return not whole and all(
        any(state.get(name) == other.get(name) for other in states)
        for name in {*state, *(name for other in states for name in other)}
    )


def survived(clean: Clean, crash: Crash) -> int:
    """How many steps must be there after a crash: those at power, and all of them where nothing unsynced was lost."""
    acknowledged = len(crash.marks)
    if crash.mode == "kept":
        return acknowledged
    power = [number for number in range(1, acknowledged + 1) if clean.durabilities[number - 1] == "power"]
    return power[-1] if power else 0


def judge_crash(clean: Clean, crash: Crash, folder: Path) -> str | None:
    """What is wrong after a crash, None when nothing is."""
    where = f"{clean.operation.name} at {crash.position} {crash.mode} {crash.seed}"
    home = crash.write(folder)
    try:
        clean.operation.also(home, survived(clean, crash))
        state = shown(home, clean.operation)
        again = once_more(clean.operation, home, clean.states)
    except StateError as error:
        return None if error.code in clean.operation.refusals else f"{where}: {type(error).__name__}: {error}"
    except AssertionError as error:
        return f"{where}: {str(error)[:300]}"
    finally:
        shutil.rmtree(folder)
    old = clean.recording.before.get(STORE)
    if clean.operation.keeps_old and state != clean.states[0] and old not in crash.files.values():
        return f"{where}: the content is another one, and the old file is nowhere"
    if again is not None:
        return f"{where}: {again}"
    first, last = survived(clean, crash), len(crash.marks) + 1
    if is_one_of(state, allowed(clean, first, last), whole=clean.operation.whole):
        return None
    known = [number for number, other in enumerate(clean.states) if other == state]
    return f"{where}: the state is that after step {known or 'none'}, not {first} to {last}"


def once_more(operation: Operation, home: Path, states: tuple[State, ...]) -> str | None:
    """Do the operation again where it must be possible, and write to the store; what is wrong, None when nothing is."""
    if operation.repeats:
        try:
            begin(home, operation, Steps())
        except StateError as error:
            if error.code not in operation.refusals:
                return f"once more, it raised {type(error).__name__}: {error}"
        else:
            operation.also(home, len(states) - 1)
            if (state := shown(home, operation)) != states[-1]:
                differing = sorted(key for key in {*state, *states[-1]} if state.get(key) != states[-1].get(key))
                return f"done once more, it ended in another state ({differing})"
    state_of(home, operation)
    return None
