"""`sessions replicate` with the real Litestream and a replica in a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from hermes_state.errors import InvalidInput, LockTimeout, Refused, ReplicationFailed
from hermes_state.store import open_store
from maintenance.replicate.config import MARK, config_for, default_path, target
from maintenance.replicate.drill import Drilled, drill
from maintenance.replicate.position import copied
from maintenance.replicate.program import find_program
from maintenance.replicate.refusing import only_one
from maintenance.replicate.run import replicate_once
from maintenance.replicate.supervise import Patience, Stop, supervise
from maintenance.store_context import context_of
from tests.maintenance.replicate.running import SKIP, litestream_of, plain_litestream, replicating, until_open
from tests.support.cli import RunCli

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_program() is None, reason=SKIP)]


@pytest.fixture
def db(store_copy: Callable[[str], Path]) -> Path:
    return store_copy("0.19.0")


@pytest.fixture
def native(tmp_path: Path) -> Path:
    db = tmp_path / "native" / "state.db"
    with open_store(path=db) as store:
        session = store.sessions.create(source="cli", id="s", title="Plans").id
        for number in range(200):
            store.messages.append(session, role="user", content=f"message {number} " + "word " * 300)
    return db


def say(db: Path, count: int, text: str = "a later message") -> None:
    """Messages of now in a file of hermes-agent."""
    with open_write(db, foreign=True, deadline_seconds=10.0) as store:
        (session,) = store.rows("SELECT id FROM sessions ORDER BY id LIMIT 1")[0]
        for number in range(count):
            with store.transaction() as tx:
                tx.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
                    (session, f"{text} {number}", SYSTEM.now()),
                )


def once(db: Path, replica: Path) -> str:
    return replicate_once(context_of(db, SYSTEM), config_for(db, str(replica), None), quiet=True).transaction


def drilled(db: Path, *, wait: float = 0.0, max_lag: float = 60.0) -> Drilled:
    return drill(
        context_of(db, SYSTEM), config_for(db, None, None), wait_seconds=wait, max_lag_seconds=max_lag
    )


@pytest.mark.parametrize("kind", ["db", "native"])
def test_once_copies_everything_that_was_committed_and_the_drill_proves_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store: Path = request.getfixturevalue(kind)
    first = once(store, tmp_path / "replica")
    found = drilled(store)
    assert (found.sound, found.equal, found.problems, found.findings, found.behind) == (True, True, (), (), 0)
    with open_read(store) as reader:
        assert reader.row("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)") == (
            found.sessions, found.messages
        )
    assert [path.name for path in store.parent.iterdir() if path.name.startswith((".drill-", ".leftover"))] == []
    assert once(store, tmp_path / "replica") >= first
    done = copied(store)
    assert done is not None and done.transaction >= first


def test_a_replica_that_lags_says_by_how_many_messages_and_for_how_long(db: Path, tmp_path: Path) -> None:
    once(db, tmp_path / "replica")
    say(db, 3)
    found = drilled(db)
    assert (found.sound, found.equal, found.behind) == (True, False, 3)
    assert 0 <= found.lag_seconds < 60
    assert (found.newest_live_id or 0) - (found.newest_replica_id or 0) == 3
    late = drilled(db, max_lag=0.0)
    assert late.exit_code == 65
    assert late.problems[0].startswith("The replica lacks the newest 3 messages, the oldest of them ")
    assert late.problems[1] == "No Litestream runs on the store now, as far as can be seen."
    once(db, tmp_path / "replica")
    assert drilled(db).equal


def test_a_change_without_a_message_that_never_reached_the_replica_is_a_problem(db: Path, tmp_path: Path) -> None:
    once(db, tmp_path / "replica")
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.execute("UPDATE sessions SET title = 'another' WHERE id = (SELECT min(id) FROM sessions)")
    found = drilled(db)
    assert found.exit_code == 65
    assert found.problems[0] == "The replica is not what the store is: the content of sessions differs."


def test_a_damaged_or_missing_replica_is_a_result_and_exits_65(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    once(db, tmp_path / "replica")
    files = sorted((tmp_path / "replica").rglob("*.ltx"))
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 0xFF
    files[0].write_bytes(bytes(content))
    ran = run_cli("sessions", "replicate", "--drill", "--db", db, "--json")
    assert ran.exit_code == 65
    assert ran.json["sound"] is False and ran.json["sessions"] is None
    assert ran.json["problems"][0].startswith("Litestream cannot restore it: ")
    shutil.rmtree(tmp_path / "replica")
    assert run_cli("sessions", "replicate", "--drill", "--db", db).exit_code == 65


def test_it_follows_until_sigterm_and_sends_the_rest(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    with replicating(run_cli, db, "--to", tmp_path / "replica") as running:
        say(db, 20)
        assert drilled(db, wait=30.0).equal
        assert drilled(db).litestream == tuple(litestream_of(db)) != ()
        say(db, 5, "the last ones")
        status, out = running.stop()
    assert status == 0, running.lines
    assert out == "Litestream was stopped and sent what it had; started again 0 times.\n"
    assert litestream_of(db) == []
    assert drilled(db).equal


@pytest.mark.campaign
def test_a_litestream_that_is_killed_is_started_again_and_loses_nothing(
    db: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    with replicating(run_cli, db, "--to", tmp_path / "replica") as running:
        (pid,) = litestream_of(db)
        os.kill(pid, signal.SIGKILL)
        say(db, 7)
        again = "litestream ended with status -9; it is started again in 1 s."
        assert running.until("ended with status") == again
        running.until("replicating to")
        say(db, 7)
        assert drilled(db, wait=30.0).equal
        status, out = running.stop(signal.SIGINT)
    assert (status, out) == (0, "Litestream was stopped and sent what it had; started again 1 time.\n")


def test_it_gives_up_when_litestream_does_not_stay_up(db: Path) -> None:
    said: list[str] = []
    with pytest.raises(ReplicationFailed) as raised:
        supervise(
            db, ["replicate", "-config", "/nowhere/litestream.yml"], quiet=True, stop=Stop(), say=said.append,
            patience=Patience(first_seconds=0.01, longest_seconds=0.03, most_failures=4),
        )
    assert said == [
        f"litestream ended with status 1; it is started again in {pause:g} s." for pause in (0.01, 0.02, 0.03)
    ]
    assert raised.value.facts["status"] == 1
    assert raised.value.message.startswith(f"`litestream replicate` for {db} ended with status 1: ")


def test_a_store_that_is_renamed_over_stops_it_and_the_drill_would_have_noticed(
    db: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    with replicating(run_cli, db, "--to", tmp_path / "replica") as running:
        other = db.with_name("other")
        shutil.copyfile(db, other)
        os.replace(other, db)
        status, out = running.ended()
    assert (status, out) == (1, "")
    assert [line for line in running.lines if line.startswith("Error:")] == [
        f"Error: {db} was replaced or removed while Litestream copied it, so it was stopped: the replica has the old "
        "file."
    ]


def test_a_plain_litestream_goes_on_after_a_swap_and_only_the_drill_says_so(db: Path, tmp_path: Path) -> None:
    once(db, tmp_path / "replica")
    with plain_litestream("replicate", "-no-expand-env", "-config", default_path(db)) as running:
        running.until("replicating to")
        assert drilled(db, wait=30.0).equal
        copy = db.with_name("copy")
        shutil.copyfile(db, copy)
        say(copy, 30)
        for ending in ("-wal", "-shm"):
            Path(f"{copy}{ending}").unlink(missing_ok=True)
        os.replace(copy, db)
        for ending in ("-wal", "-shm"):
            Path(f"{db}{ending}").unlink(missing_ok=True)
        found = drilled(db, wait=3.0, max_lag=0.0)
        assert running.process.poll() is None
    assert found.exit_code == 65
    assert found.problems[0].startswith(("The replica lacks the newest 30 messages", "The replica is not what"))


@pytest.mark.campaign
def test_nothing_starts_beside_another_litestream_or_another_run(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    with replicating(run_cli, db, "--to", tmp_path / "replica"):
        (pid,) = litestream_of(db)
        ran = run_cli("sessions", "replicate", "--once", "--db", db)
        assert ran.exit_code == 75
        assert ran.stderr.startswith(f"Error: Another `hermes-state sessions replicate` works for {db}.\n")
        shown = run_cli("sessions", "replicate", "--dry-run", "--db", db, "--json")
        assert shown.json["litestream"] == [pid]
    with plain_litestream("replicate", "-no-expand-env", "-config", default_path(db)) as running:
        until_open(db)
        with pytest.raises(Refused) as raised:
            once(db, tmp_path / "replica")
    assert raised.value.message == (
        f"PID {running.process.pid} (litestream) replicates {db} already; two of them would each miss what the other "
        "copies."
    )
    with only_one(db), pytest.raises(LockTimeout):
        once(db, tmp_path / "replica")


def test_a_store_outside_wal_mode_is_refused(db: Path, tmp_path: Path) -> None:
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    connection.close()
    with pytest.raises(Refused) as raised:
        once(db, tmp_path / "replica")
    assert raised.value.message == (
        f"{db} is in journal mode delete; Litestream copies the WAL, so it needs WAL mode."
    )
    assert not default_path(db).exists()


def test_a_configuration_of_a_person_is_used_as_it_is_and_never_changed(db: Path, tmp_path: Path) -> None:
    file = tmp_path / "litestream.yml"
    file.write_text(f"dbs:\n  - path: {db}\n    replica:\n      url: file://{tmp_path / 'theirs'}\n")
    before = file.read_bytes()
    with pytest.raises(InvalidInput, match="was not written by this program, so --to does not change it"):
        config_for(db, str(tmp_path / "replica"), file)
    config = config_for(db, None, file)
    assert (config.ours, config.replica, config.arguments()) == (False, None, ["-config", str(file)])
    replicate_once(context_of(db, SYSTEM), config, quiet=True)
    assert drill(context_of(db, SYSTEM), config, wait_seconds=0.0).equal
    assert file.read_bytes() == before and (tmp_path / "theirs").is_dir()
    file.write_text(f"dbs:\n  - path: {db}-other\n    replica:\n      url: file://{tmp_path / 'theirs'}\n")
    with pytest.raises(InvalidInput) as raised:
        replicate_once(context_of(db, SYSTEM), config, quiet=True)
    assert raised.value.message == f"{file} does not name {db}."


def test_what_is_written_is_private_without_secrets_and_keeps_litestream_from_truncating(tmp_path: Path) -> None:
    store = tmp_path / 'a "home"' / "$HOME" / "state.db"
    store.parent.mkdir(parents=True)
    with open_store(path=store) as opened:
        opened.sessions.create(source="cli")
    replica = tmp_path / "re $USER: plica"
    replicate_once(context_of(store, SYSTEM), config_for(store, str(replica), None), quiet=True)
    text = default_path(store).read_text()
    assert text.startswith(MARK) and "truncate-page-n: 0\n" in text and "retention: 168h\n" in text
    assert default_path(store).stat().st_mode & 0o777 == 0o600
    assert drill(context_of(store, SYSTEM), config_for(store, None, None), wait_seconds=0.0).equal
    assert replica.is_dir()
    with pytest.raises(InvalidInput, match="has a password in it"):
        target(store, "sftp://me:secret@host/path")
    with pytest.raises(InvalidInput, match="holds the store itself"):
        target(store, str(store.parent))
    assert target(store, "s3://bucket/x") == "s3://bucket/x"


def test_a_stop_during_once_is_passed_on_and_said(db: Path, tmp_path: Path) -> None:
    stop = Stop()
    stop.tell(signal.SIGTERM)
    with pytest.raises(ReplicationFailed):
        replicate_once(context_of(db, SYSTEM), config_for(db, str(tmp_path / "r"), None), quiet=True, stop=stop)
    thread_errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            once(db, tmp_path / "replica")
        except BaseException as error:
            thread_errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert thread_errors == [] and drilled(db).equal


def test_json_of_each_form(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    done = run_cli("sessions", "replicate", "--to", tmp_path / "replica", "--once", "--db", db, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert {key: done.json[key] for key in ("path", "replica", "config_is_ours", "proven", "rounds")} == {
        "path": str(db), "replica": str(tmp_path / "replica"), "config_is_ours": True, "proven": True, "rounds": 1,
    }
    assert json.loads(run_cli("sessions", "replicate", "--drill", "--db", db, "--json").stdout)["equal"] is True
    nothing = run_cli("sessions", "replicate", "--once", "--drill", "--db", db)
    assert nothing.exit_code == 2
