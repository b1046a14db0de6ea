"""A process that keeps writing to a store as a gateway does, and says which rows it was told are committed.

Invariant: a row is reported only after its commit was acknowledged, so every reported row must be in the file at the
end. The real hermes-agent 0.19.0 is used when HERMES_PEERS has it, otherwise a plain APSW writer.

Not for: timing; it writes as fast as `pause` lets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support import peers

_WRITER = """
import apsw, json, pathlib, sys, time
request = json.loads(sys.argv[1])
con = apsw.Connection(request["db"])
con.set_busy_timeout(20000)
stop = pathlib.Path(request["stop"])
session = request["session"]
new = "INSERT INTO sessions (id, source, started_at) VALUES (?, 'telegram', ?)"
con.execute(new, (session, time.time())).fetchall()
written = 0
with open(request["report"], "w", buffering=1) as out:
    while not stop.exists():
        con.execute("BEGIN IMMEDIATE").fetchall()
        con.execute("INSERT INTO messages (session_id, role, content, timestamp, active) VALUES (?, 'user', ?, ?, 1)",
                    (session, f"gateway row {written} " + "lorem ipsum " * (written % 60), time.time())).fetchall()
        identity = con.last_insert_rowid()
        con.execute("COMMIT").fetchall()
        out.write(json.dumps({"id": identity}) + "\\n")
        written += 1
        if written % 50 == 0:
            con.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        time.sleep(request["pause"])
con.close()
"""


class Gateway:
    """One running writer. `kind` says what it is."""

    def __init__(self, db: Path, folder: Path, *, session: str, pause: float = 0.01) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.db = db
        self.stop_file = folder / "stop"
        self.report = folder / "committed.jsonl"
        self.errors = folder / "stderr"
        request = {
            "db": str(db),
            "stop": str(self.stop_file),
            "report": str(self.report),
            "session": session,
            "pause": pause,
        }
        peer = peers.find("0.19.0")
        self.kind = "plain APSW writer" if peer is None else f"hermes-agent {peer.version}"
        if peer is None:
            command = [sys.executable, "-c", _WRITER, json.dumps(request)]
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith(("HERMES", "PYTHON"))
            }
        else:
            command, environment = peer.command("gateway", **request), peer.environment(db.parent)
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)

    def wait_for_rows(self, count: int, seconds: float = 60.0) -> None:
        """Until that many rows were acknowledged since the start."""
        deadline = time.monotonic() + seconds
        while len(self.committed()) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the gateway wrote {len(self.committed())} rows: {self.errors.read_text()}")
            time.sleep(0.01)

    def committed(self) -> list[int]:
        """Ids of the rows whose commit was acknowledged so far."""
        if not self.report.exists():
            return []
        lines = self.report.read_text(encoding="utf-8").splitlines()
        return [record["id"] for line in lines if line.endswith("}") and "id" in (record := json.loads(line))]

    def refused(self) -> list[str]:
        """Error texts that the gateway met."""
        lines = self.report.read_text(encoding="utf-8").splitlines()
        return [record["error"] for line in lines if "error" in (record := json.loads(line))]

    def stop(self) -> list[int]:
        """End it in the ordinary way and return all acknowledged ids."""
        self.stop_file.touch()
        status = self.process.wait(timeout=120)
        if status != 0:
            raise AssertionError(f"the gateway ended with {status}: {self.errors.read_text()}")
        return self.committed()

    def kill(self) -> None:
        """kill -9, for teardown."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=60)
