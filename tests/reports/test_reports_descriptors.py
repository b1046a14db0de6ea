"""Reports 81 to 85: descriptors stay as many as they were, are counted, and are named when they run out."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.store import Store
from tests.maintenance.damage import examined, only
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


def descriptors(db: Path) -> dict[str, int]:
    """How many descriptors this process has on each file beside the store, and in all."""
    gc.collect()  # what other tests left open is not what this one counts
    counts = {"all": 0}
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the listing itself
        counts["all"] += 1
        if name.startswith(str(db.parent)):
            counts[name] = counts.get(name, 0) + 1
    return counts


def in_threads(count: int, work: Callable[[], object]) -> None:
    """Run `work` in `count` threads, ten at a time; each of them ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    for _ in range(count // 10):
        threads = [threading.Thread(target=run) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []


@pytest.fixture
def chat(db: Path) -> Store:
    """A store with 50 sessions, open for as long as the test wants it."""
    store = open_store(path=db)
    for number in range(50):
        session = store.sessions.create(source="cli", title=f"chat {number}")
        store.messages.append(session.id, role="user", content=f"hello {number}")
    return store


def test_three_hundred_threads_that_read_once_and_end_leave_no_descriptor(chat: Store, db: Path) -> None:
    def read_once() -> None:
        assert len(chat.sessions.list(limit=50)) == 50
        assert len(chat.search("hello", limit=5)) == 5

    in_threads(20, read_once)  # the pool is bounded; fill it
    before = descriptors(db)
    in_threads(300, read_once)
    after = descriptors(db)
    # Readers are opened when threads meet, so a run may have fewer than the most: one writer, four readers, the index.
    assert max(after.values()) <= before["all"] + 3 * 4
    assert after[str(db)] <= 1 + 4
    chat.close()
    assert set(descriptors(db)) == {"all"}


def polls(chat: Store, db: Path, many: int) -> None:
    position = chat.changes.position()
    counts = []
    for number in range(many):
        chat.sessions.list(limit=20)
        if number % 50 == 0:
            chat.sessions.count_by_source()
            chat.changes.since(position)
        if number in (20, many - 1):
            counts.append(descriptors(db))
    assert counts[0] == counts[1]
    chat.close()


def test_polls_leave_the_descriptors_as_they_were(chat: Store, db: Path) -> None:
    polls(chat, db, 500)


@pytest.mark.campaign
def test_five_thousand_polls_leave_the_descriptors_as_they_were(chat: Store, db: Path) -> None:
    polls(chat, db, 5000)


def test_a_hundred_and_twenty_opens_of_an_hour_leave_no_descriptor(chat: Store, db: Path) -> None:
    chat.close()
    before = descriptors(db)
    for number in range(120):
        with open_store(path=db, read_only=number % 2 == 1) as store:
            assert len(store.sessions.list(limit=3)) == 3
            if number % 20 == 0:
                store.search("hello", limit=1)
    assert descriptors(db) == before
    assert set(before) == {"all"}


SATURATED = """
import os, resource, sys
from pathlib import Path
from hermes_state import open_store

folder = Path(sys.argv[1]).parent
main = open_store(path=sys.argv[1])
session = main.sessions.create(id="chat", source="telegram").id
main.messages.append(session, role="user", content="before")
with open_store(path=folder / "there.db"):
    pass
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
filler = []
while True:
    try:
        filler.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        break
said, opened = set(), 0
for room in range(14):  # from none left, one more each time, until the open succeeds
    try:
        open_store(path=folder / sys.argv[2].format(room)).close()
        opened += 1
    except Exception as problem:
        said.add(f"{type(problem).__name__} {problem.errno} {'(EMFILE: Too many open files)' in str(problem)} "
                 f"{'ulimit -n' in getattr(problem, 'hint', '')}")
    os.close(filler.pop())
print(*sorted(said), sep="\\n")
print(opened > 0)
main.messages.append(session, role="user", content="while descriptors were short")
print([message["content"] for message in main.messages.context(session)])
print([name for name in os.listdir(folder) if name.endswith(".new")])
main.close()
"""


@pytest.mark.parametrize("name", ["there.db", "new {}.db"])
def test_a_gateway_that_runs_out_of_descriptors_is_told_that_and_loses_nothing(
    db: Path, child: Children, name: str
) -> None:
    assert child(SATURATED, db, name).finish().splitlines() == [
        "CannotOpen 24 True True", "True", "['before', 'while descriptors were short']", "[]",
    ]


def test_the_doctor_counts_the_descriptors_of_a_holder_on_the_store(db: Path, child: Children, run_cli: RunCli) -> None:
    holder = child(
        """
        import sys, gates
        from hermes_state import open_store
        with open_store(path=sys.argv[1]) as store:
            store.sessions.list()
            gates.reach("open")
            gates.wait("end")
        """,
        db,
    )
    holder.wait_for("open")
    told = run_cli("doctor", "--db", db, "--json").json
    (found,) = [finding for finding in told["findings"] if finding["code"] == "holder"]
    on_store = sum(
        os.readlink(f"/proc/{holder.pid}/fd/{number}").startswith(str(db))
        for number in os.listdir(f"/proc/{holder.pid}/fd")
    )
    assert f"{on_store} descriptors on the store" in found["sentence"]
    holder.release("end")
    holder.finish()


# --- 82: a warning at half of the limit --------------------------------------------------------------------------

KEEPING = """
import os, resource, sys, gates
from hermes_state import open_store

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with open_store(path=sys.argv[1]) as store:
    store.sessions.list()
    used = len(os.listdir("/proc/self/fd")) - 1
    filler = [os.open(os.devnull, os.O_RDONLY) for _ in range(31 - used)]
    gates.reach("below")
    gates.wait("one more")
    filler.append(os.open(os.devnull, os.O_RDONLY))
    gates.reach("half")
    gates.wait("end")
"""


def test_a_holder_is_warned_about_from_half_of_its_limit_on(db: Path, child: Children, run_cli: RunCli) -> None:
    with open_store(path=db):
        pass
    holder = child(KEEPING, db)
    holder.wait_for("below")
    below = only(examined(db), "holder")
    assert (below.facts["pid"], below.facts["descriptors"], below.facts["descriptor_limit"]) == (holder.pid, 31, 64)
    holder.release("one more")
    holder.wait_for("half")
    told = run_cli("doctor", "--db", db, "--json")
    (found,) = [finding for finding in told.json["findings"] if finding["code"] == "descriptors_running_out"]
    assert (told.exit_code, found["severity"], found["object"]) == (3, "warning", f"PID {holder.pid}")
    assert found["sentence"].endswith(" It uses 32 of 64 descriptors: I/O errors may be that.")
    holder.release("end")
    holder.finish()


# --- 84: descriptors by file, over all programs ------------------------------------------------------------------

WRITERS = """
import sqlite3, sys, gates
stores = [sqlite3.connect(sys.argv[1], isolation_level=None) for _ in range(int(sys.argv[2]))]
for number, store in enumerate(stores):
    store.execute("PRAGMA busy_timeout = 20000")
    store.execute("UPDATE sessions SET display_name = ? WHERE rowid = 1", (f"by handle {number}",))
gates.reach("open")
gates.wait("end")
"""
READERS = """
import sqlite3, sys, gates
stores = [sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) for _ in range(int(sys.argv[2]))]
for store in stores:
    store.execute("SELECT count(*) FROM sessions").fetchone()
gates.reach("open")
gates.wait("end")
"""


def test_the_health_check_counts_descriptors_by_file_over_all_programs(
    store_copy: StoreCopy, child: Children, run_cli: RunCli
) -> None:
    db = store_copy()
    gateway, dashboard = child(WRITERS, db, 5, audited=False), child(READERS, db, 6, audited=False)
    for one in (gateway, dashboard):
        one.wait_for("open")
    told = run_cli("doctor", "--quick", "--db", db, "--json").json["findings"]
    (census,) = [finding for finding in told if finding["code"] == "holder_census"]
    assert (census["facts"]["writable"], census["facts"]["read_only"]) == ([gateway.pid], [dashboard.pid])
    assert census["facts"]["descriptors_by_file"]["main"] == 5 + 6
    assert census["sentence"] == (
        "1 process has the store open for writing, 1 only for reading; 24 descriptors on its files in all "
        "(database file 11, WAL 11, WAL index 2)."
    )
    # What one program has open many times is told of that program.
    of_gateway = next(finding for finding in told if finding["object"] == f"PID {gateway.pid}")
    assert of_gateway["facts"]["descriptors_on_store"] == 5 + 5 + 1
    for one in (gateway, dashboard):
        one.release("end")
        one.finish()


# --- without a free descriptor -----------------------------------------------------------------------------------

WITHOUT_ONE = """
import os, resource, shutil, sys
from pathlib import Path
from hermes_state import open_store
from hermes_state.errors import StateError

db, what = Path(sys.argv[1]), sys.argv[2]
store = open_store(path=db)
store.sessions.create(id="talk", source="cli")
store.messages.append("talk", role="user", content="only in the WAL of this generation")
if what == "lost":
    shutil.copy(db, db.with_name("other"))
    os.replace(db.with_name("other"), db)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, most))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    if what == "lost":
        store.messages.append("talk", role="user", content="one more")
    else:
        store.messages.stream("talk")
except StateError as error:
    raised = error
for number in held:
    os.close(number)
print(type(raised).__name__, raised, sep=": ")
if what != "lost":
    with store.messages.stream("talk") as text:
        text.append("now it goes")
"""


def test_a_lost_generation_is_kept_although_no_descriptor_is_free(db: Path, child: Children) -> None:
    db.parent.mkdir(parents=True)
    said = child(WITHOUT_ONE, db, "lost", audited=False).finish()
    assert said.startswith("GenerationLost: Hermes paused saving because another program replaced the files ")
    (capture,) = db.parent.glob("state.db.retired-wal-*")
    assert b"only in the WAL of this generation" in (capture / "state.db-wal").read_bytes()
    assert json.loads((capture / "manifest.json").read_text())["copy"] == (
        "not made: the connection could not be used safely"
    )


def test_a_call_that_cannot_load_its_module_says_that_descriptors_ran_out_and_works_later(
    db: Path, child: Children
) -> None:
    db.parent.mkdir(parents=True)
    assert child(WITHOUT_ONE, db, "stream", audited=False).finish() == (
        "CannotOpen: This process has run out of file descriptors, so loading what is needed for a call on "
        f"{db} failed (EMFILE: Too many open files).\n"
    )
