"""What `sessions export` writes is what hermes-agent 0.19.0 imports: its own import gives the same rows back.

Needs HERMES_PEERS (see `tests/support/peers.py`).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.campaign

IMPORT = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[2]))
lines = [json.loads(line) for line in open(sys.argv[1])]
answer = db.import_sessions(lines)
db.close()
print(json.dumps(answer))
"""
# Live messages of each session as hermes-agent reads them, and the columns that its import keeps.
DUMP = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
kept = ("id source user_id model model_config system_prompt parent_session_id started_at ended_at end_reason"
        " input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens cwd git_branch git_repo_root"
        " billing_provider billing_base_url billing_mode estimated_cost_usd actual_cost_usd cost_status cost_source"
        " pricing_version title api_call_count archived").split()
found = {}
for record in db.export_all():
    messages = [{key: value for key, value in row.items() if key not in ("id",)} for row in record["messages"]]
    found[record["id"]] = [{key: record[key] for key in kept}, messages]
db.close()
print(json.dumps(found, sort_keys=True))
"""


def ask(peer: peers.Peer, home: Path, script: str, *args: object) -> Any:
    done = subprocess.run(
        [str(peer.python), "-c", script, *map(str, args)],
        env=peer.environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("version", peers.VERSIONS)
def test_the_import_of_an_export_gives_the_same_rows(
    version: str, store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path
) -> None:
    peer = peers.find("0.19.0")
    if peer is None:
        pytest.skip("hermes-agent 0.19.0 is not installed (HERMES_PEERS)")
    db = store_copy(version)
    target = tmp_path / "export.jsonl"
    result = run_cli("sessions", "export", target, "--include-archived")
    assert result.exit_code == 0, result.stderr
    new = tmp_path / "new" / "state.db"
    new.parent.mkdir()
    answer = ask(peer, new.parent, IMPORT, target, new)
    assert answer["errors"] == [] and (answer["imported"], answer["detached"]) == (12, 0)
    # The old file is read last: 0.19.0 migrates it when it opens it, and puts delegate marks on some sessions of
    # files older than schema 16. An import does not.
    imported, original = ask(peer, new.parent, DUMP, new), ask(peer, db.parent, DUMP, db)
    for session, _ in [*imported.values(), *original.values()] if version < "0.17" else []:
        assert session.pop("model_config") in (None, '{"_delegate_from":"__orphaned__"}')
    assert imported == original
