"""Operations over damage and what it leaves: repair, recover, install, scrub, merging a capture, dropping leftovers.

A damaged store shows that it is damaged and the rows that can be read of it; what lies beside a store is looked at by
`also`. Most of these may be done once more after any accident, and must then end as if there had been none.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from hermes_state import open_store
from hermes_state.clock import clock_from_environment
from hermes_state.engine import open_read
from hermes_state.errors import Corrupt, NotAStore, StateError
from hermes_state.testing import corruption
from maintenance import ledger
from maintenance.leftovers.prune import prune
from maintenance.recovery.captures.merge import merge_wal
from maintenance.recovery.install import install
from maintenance.recovery.run import recover
from maintenance.repair import repair
from tests.faults.judging import digest, sound
from tests.faults.operation import STORE, Done, Operation, State, conversation, foreign, settled, verb
from tests.maintenance.adopting import nobody
from tests.maintenance.native_stores import context
from tests.maintenance.recovery.captures.making import write_manifest
from tests.maintenance.repair.damages import prints

SECRET = "sk-ant-api03-Zq7Zq7Zq7Zq7Zq7Zq7Zq7Zq7"
CAPTURE = f"{STORE}.retired-wal-20260913T101500Z-4711"
ONLY_FOREIGN = frozenset({"foreign"})

# --- repair ------------------------------------------------------------------------------------------------------


def damaged(begin: Callable[[Path], None], damage: Callable[[Path], object]) -> Callable[[Path], None]:
    """A store that is damaged in one place that holds no rows."""

    def prepare(home: Path) -> None:
        begin(home)
        damage(settled(home / STORE))
        (home / "search.db").unlink(missing_ok=True)
        _remember(home, STORE)

    return prepare


def repair_store(home: Path, done: Done) -> None:
    repair(home / STORE, clock=clock_from_environment())
    done("repaired", "power")


def damaged_or_sound(home: Path) -> State:
    """The rows, whatever the state of the rest; and what the store shows once it is sound."""
    tables = prints(home / STORE)
    rows = {"rows": digest([(name, tables[name]) for name in ("sessions", "messages")])}
    try:
        return rows | dict(sound(home / STORE))
    except (Corrupt, NotAStore, AssertionError):
        return rows | {"damaged": "yes"}


# --- scrub -------------------------------------------------------------------------------------------------------


def secrets(home: Path) -> None:
    """A native store with a secret in a title, in messages, in deleted text and in the search index."""
    with open_store(path=home / STORE) as store:
        store.sessions.create(id="talk", source="cli", title=f"about {SECRET}")
        for number in range(4):
            store.messages.append("talk", role="user", content=f"line {number} {SECRET if number % 2 else 'plain'}")
        gone = store.messages.append("talk", role="user", content=f"deleted {SECRET} " + "word " * 900)
        store.messages.delete("talk", [gone], actor="test", reason="a test")
        assert len(store.search("api03", limit=5)) > 0


def foreign_secrets(home: Path) -> None:
    """The same in a file of hermes-agent, whose own triggers fill its indexes."""
    foreign(home)
    connection = apsw.Connection(str(home / STORE))
    connection.execute("INSERT INTO sessions (id, source, started_at, title) VALUES ('s', 'cli', 1.0, ?)", (SECRET,))
    for number in range(3):
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, ?)",
            (f"line {number} {SECRET}", 2.0 + number),
        )
    connection.close()


def scrub_store(home: Path, done: Done) -> None:
    verb(home, "sessions", "scrub", "--pattern", SECRET, "--yes")
    done("scrubbed", "power")


def row_by_row(home: Path) -> State:
    """Each row by itself: a scrub that was cut off has redacted some."""
    sound(home / STORE)
    state = {}
    with open_read(home / STORE) as store:
        for table in ("sessions", "messages"):
            known = [str(row[1]) for row in store.rows(f"PRAGMA table_info({table})")]
            # A mark has a part that is another one in each run, and the check of a row is over it.
            names = [name for name in known if name != "row_check"]
            for row in store.rows(f"SELECT rowid, {', '.join(names)} FROM {table}"):
                state[f"{table} {row[0]}"] = digest(re.sub(r"\[redacted [^\]]*\]", "[redacted]", repr(row)))
    return state


def no_byte_of_it(home: Path, steps: int) -> None:
    """What was said to be gone is in no byte of any file."""
    if steps:
        holding = [path.name for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert holding == [], f"it is still in {holding}"


# --- captures ----------------------------------------------------------------------------------------------------


def _capture(home: Path, write: Callable[[Path], None]) -> None:
    """A capture of what `write` puts into a copy of the store: the file as it was, and the WAL."""
    folder, elsewhere = home / CAPTURE, home / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    shutil.copyfile(settled(home / STORE), folder / STORE)
    shutil.copyfile(home / STORE, elsewhere / STORE)
    write(elsewhere / STORE)
    shutil.copyfile(elsewhere / f"{STORE}-wal", folder / f"{STORE}-wal")
    write_manifest(folder, "2026-09-13T10:15:00Z")
    shutil.rmtree(elsewhere)


def captured(home: Path) -> None:
    conversation(home)

    def write(path: Path) -> None:
        with open_store(path=path) as store:
            store.sessions.create(id="lost", source="cli")
            for session in ("talk", "lost"):
                store.messages.append(session, role="user", content=f"only in the lost WAL: {session}")

    _capture(home, write)


def foreign_captured(home: Path) -> None:
    foreign(home)

    def write(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA journal_mode = wal").fetchall()
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('lost', 'cli', 1.0)")
        for number in range(3):
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('lost', 'user', ?, ?)",
                (f"only in the lost WAL: {number}", 2.0 + number),
            )
        connection.close()

    _capture(home, write)


def merge(home: Path, done: Done) -> None:
    report = merge_wal(home / CAPTURE, home / STORE, clock=clock_from_environment())
    if not report.proven:
        raise StateError("The merged store could not be proven.")
    done("merged", "power")


def capture_stays(home: Path, steps: int) -> None:
    """The capture is whole; a note that says it was merged is true, and is there once that was told."""
    told = json.loads((home / CAPTURE / "manifest.json").read_bytes())
    for file in told["files"]:
        assert _sha256(home / CAPTURE / file["name"]) == file["sha256"], file["name"]
    note = home / CAPTURE / "merged.json"
    if steps or note.exists():
        assert "rows" in json.loads(note.read_text() or "{}"), "a note that says nothing"
        with open_read(home / STORE) as store:
            assert store.rows("SELECT count(*) FROM sessions WHERE id = 'lost'") == [(1,)], "a note that is not true"


# --- leftovers ---------------------------------------------------------------------------------------------------

SAFE, ZEROED, UNSAFE = f"{STORE}.malformed-backup-1", f"{STORE}.zeroed-1.bak", f"{STORE}.malformed-backup-2"


def leftovers(home: Path) -> None:
    """A store with a copy of it, a file of zeros, and a copy that holds a session which the store lacks."""
    conversation(home)
    shutil.copyfile(settled(home / STORE), home / SAFE)
    (home / ZEROED).write_bytes(bytes(20_000))
    (home / "elsewhere").mkdir()
    shutil.copyfile(home / STORE, home / "elsewhere" / STORE)
    with open_store(path=home / "elsewhere" / STORE) as store:
        store.sessions.create(id="only here", source="cli")
    shutil.copyfile(settled(home / "elsewhere" / STORE), home / UNSAFE)
    shutil.rmtree(home / "elsewhere")
    _remember(home, SAFE, ZEROED, UNSAFE)


def drop_leftovers(home: Path, done: Done) -> None:
    prune(home / STORE, clock=clock_from_environment())
    left = [name for name in (SAFE, ZEROED) if (home / name).exists()]
    if left:  # what cannot be looked into at the moment is not safe
        raise StateError(f"{left} were kept.")
    done("dropped", "power")


def only_safe_ones_went(home: Path, steps: int) -> None:
    """Each is whole under its name or gone with a line in the ledger, and what was not safe is there."""
    sums = _remembered(home)
    lines = {line["filters"]["path"].rpartition("/")[2] for line in ledger.read(home / STORE)}
    for name in (SAFE, ZEROED, UNSAFE):
        if (home / name).exists():
            assert _sha256(home / name) == sums[name], f"{name} is not whole"
            assert not steps or name == UNSAFE, f"{name} was dropped and is there"
        else:
            assert name != UNSAFE, "it was the only one that has a session"
            assert name in lines, f"{name} is gone without a record"


# --- recover and install -----------------------------------------------------------------------------------------


def recover_and_install(home: Path, done: Done) -> None:
    clock = clock_from_environment()
    report = recover(home / STORE, home / "out.db", clock=clock)
    if report.partial:
        raise StateError(f"Rows were lost: {report.tables}")
    done("recovered", "power")
    install(context(home / STORE, clock=clock), report, scanner=nobody)
    done("installed", "power")


def source_and_result(home: Path) -> State:
    """The store's bytes while it is damaged, what it shows later; and what the result shows once it has its name."""
    state: dict[str, Any] = {}
    try:
        state["store"] = digest(sorted(sound(home / STORE).items()))
    except (Corrupt, NotAStore):
        same = _sha256(home / STORE) == _remembered(home)[STORE]
        state |= {"store": "as it was" if same else "altered", "damaged": "yes"}
    if (home / "out.db").exists():
        state["result"] = digest(sorted(sound(home / "out.db").items()))
    return state


def _remember(home: Path, *names: str) -> None:
    (home / "sums.json").write_text(json.dumps({name: _sha256(home / name) for name in names}))


def _remembered(home: Path) -> dict[str, str]:
    return dict(json.loads((home / "sums.json").read_text()))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _repair(name: str, prepare: Callable[[Path], None], dialects: frozenset[str]) -> Operation:
    return Operation(
        name=name, prepare=prepare, run=repair_store, shows=damaged_or_sound, keeps_old=True, repeats=True,
        dialects=dialects, refusals=frozenset({"refused"}),
    )


def _index(name: str) -> Callable[[Path], object]:
    return lambda path: corruption.zero_root(path, name)


def _twice(name: str) -> Callable[[Path], object]:
    return lambda path: corruption.duplicate_schema_row(path, name)


MENDING: tuple[Operation, ...] = (
    _repair("repair_index", damaged(conversation, _index("messages_session")), frozenset({"native"})),
    _repair("repair_foreign_index", damaged(foreign, _index("idx_sessions_source")), ONLY_FOREIGN),
    _repair("repair_schema", damaged(conversation, _twice("messages")), frozenset({"native"})),
    _repair("repair_foreign_schema", damaged(foreign, _twice("messages")), ONLY_FOREIGN),
    Operation(
        name="scrub", prepare=secrets, run=scrub_store, whole=False, shows=row_by_row, also=no_byte_of_it, repeats=True
    ),
    Operation(
        name="foreign_scrub", prepare=foreign_secrets, run=scrub_store, whole=False, shows=row_by_row,
        also=no_byte_of_it, repeats=True, dialects=ONLY_FOREIGN,
    ),
    Operation(name="merge_capture", prepare=captured, run=merge, also=capture_stays, repeats=True),
    Operation(
        name="foreign_merge_capture", prepare=foreign_captured, run=merge, also=capture_stays, repeats=True,
        dialects=ONLY_FOREIGN,
    ),
    Operation(name="leftovers", prepare=leftovers, run=drop_leftovers, also=only_safe_ones_went, repeats=True),
    Operation(
        name="recover_install", prepare=damaged(conversation, corruption.zero_header), run=recover_and_install,
        shows=source_and_result, keeps_old=True, repeats=True, refusals=frozenset({"refused"}),
    ),
    Operation(
        name="foreign_recover_install", prepare=damaged(foreign, corruption.zero_header), run=recover_and_install,
        shows=source_and_result, keeps_old=True, repeats=True, refusals=frozenset({"refused"}),
        dialects=ONLY_FOREIGN,
    ),
)
