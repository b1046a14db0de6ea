"""Homes of hermes-agent with cron jobs, made by hermes-agent itself; the import is tested with the committed one.

Invariant: every byte of jobs.json and executions.db is written by the release's own `cron.jobs` and `cron.executions`,
in a process of its environment and a home of its own. Run again with

    HERMES_PEERS=/opt/peers python tests/support/cron_peer.py 0.19.0

Not for: running jobs: the release is never let loose on them. Writing the files by hand was rejected: what they look
like is the question.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "hermes-agent-cron"
CONFIG = "model: a-model\ntimezone: Europe/Berlin  # where the jobs are meant\n"

# What a person of the release would have after a while: of each kind, run and not, paused, finite, failed, half run.
_PROGRAM = """
import json, sys
from datetime import timedelta
from cron import executions, jobs
from hermes_time import now

made = {}
def make(name, *args, **kw):
    made[name] = jobs.create_job(*args, name=name, **kw)["id"]

origin = {"platform": "telegram", "chat_id": "42", "thread_id": None}
make("brief", "What is new?", "0 9 * * 1-5", origin=origin, model="a-model", provider="custom",
     base_url="http://localhost:9/v1/", skills=["news"], enabled_toolsets=["web"])
make("half hourly", "Look at the queue.", "every 30m", deliver="local")
make("three times", "Say it thrice.", "every 2h", repeat=3)
make("on holiday", "Water the plants.", "0 18 * * *")
make("in summer", "Happy birthday!", "2031-07-01T08:00")
make("soon", "Look at the oven.", "30m")
make("backup", None, "15 3 * * *", script="backup.sh", no_agent=True)
make("with seconds", "Too often.", "0 9 * * * 30")
make("late", "It was for yesterday.", (now() + timedelta(minutes=1)).replace(tzinfo=None).isoformat())

for _ in range(2):
    jobs.mark_job_run(made["half hourly"], True)
jobs.mark_job_run(made["half hourly"], False, "rate limit")
jobs.mark_job_run(made["three times"], True)
jobs.mark_job_run(made["brief"], True, delivery_error="telegram is down")
jobs.pause_job(made["on holiday"], "holiday until May")
jobs.update_job(made["brief"], {"x_of_a_later_release": {"kept": True}})
jobs.claim_dispatch(made["late"])

for number in range(4):
    row = executions.create_execution(made["half hourly"], source="builtin")
    executions.mark_execution_running(row["id"])
    if number < 2:
        executions.finish_execution(row["id"], success=True)
    elif number == 2:
        executions.finish_execution(row["id"], success=False, error="rate limit")
executions.create_execution(made["brief"], source="manual")
print(json.dumps(made))
"""


def make_home(python: Path, home: Path, program: str = _PROGRAM, *, config: str = CONFIG) -> Any:
    """Run a program in a release's environment with its home at `home`; gives the JSON that it prints last."""
    home.mkdir(parents=True, exist_ok=True)
    if config:
        (home / "config.yaml").write_text(config, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES", "PYTHON"))}
    done = subprocess.run(
        [str(python), "-c", program], env={**kept, "HERMES_HOME": str(home), "HOME": str(home)}, capture_output=True,
        text=True, timeout=120, check=True, cwd=home,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def fixture(version: str, home: Path) -> Path:
    """A private copy of the committed home of a release; gives `home`."""
    (home / "cron").mkdir(parents=True)
    for name in ("config.yaml", "cron/jobs.json", "cron/executions.db"):
        packed = FIXTURES / version / f"{Path(name).name}.gz"
        (home / name).write_bytes(gzip.decompress(packed.read_bytes()))
    return home


def main(version: str) -> None:
    """Make the committed home of a release anew."""
    python = Path(os.environ["HERMES_PEERS"]) / version / "bin" / "python"
    folder = Path(tempfile.mkdtemp(prefix="cron-peer-"))
    try:
        make_home(python, folder)
        target = FIXTURES / version
        target.mkdir(parents=True, exist_ok=True)
        for name in ("config.yaml", "cron/jobs.json", "cron/executions.db"):
            content = (folder / name).read_bytes().replace(str(folder).encode(), b"/home/user/.hermes")
            (target / f"{Path(name).name}.gz").write_bytes(gzip.compress(content, mtime=0))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
