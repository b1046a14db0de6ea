"""One empty and one filled native store of every release, kept as fixtures: what later releases must be able to open.

Run as a program it makes the two files of the present release: `python -m tests.support.native_release`. It is run once
a release, by hand, and never over a file that is there.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

import hermes_state
from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.store import Store
from tests.support.beside import jobs, work_beside
from tests.support.gateways import serve
from tests.support.routes import route

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "native"
BEGAN = 1_795_953_600.0  # 2026-11-29 12:00 UTC


def fill(store: Store) -> None:
    """Something of everything that a store holds; tests/migrations/test_releases_kept.py asserts what is in it."""
    sessions, messages = store.sessions, store.messages
    sessions.create(id="talk", source="telegram", title="Moon", model="model-a", system_prompt="Be brief.")
    messages.append("talk", role="user", content="How large is the moon? \u6708\u4eae", client_key="k1")
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    messages.append("talk", role="assistant", tool_calls=calls)
    messages.append("talk", role="tool", content="x" * 20_000, tool_call_id="call_1", tool_name="look")
    answer = [{"type": "text", "text": "3,474 km"}]
    messages.append("talk", role="assistant", content=answer, extra={"api_content": "3"})
    sessions.branch("talk", new_id="side")
    again = messages.append("talk", role="user", content="And the sun?", platform_message_id="p1")
    messages.rewind("talk", again, reason="typo")
    sessions.continue_as("talk", new_id="talk-2")
    messages.append("talk-2", role="user", content="Go on.", durability="power")
    store.usage.record("talk-2", model="model-a", input_tokens=10, output_tokens=5, actual_cost_usd=0.25)
    sessions.create(id="gone", source="cron")
    messages.append("gone", role="user", content="tick")
    sessions.delete("gone", actor="test", reason="to leave a tombstone")
    store.leases.acquire("turn:talk-2", term_seconds=60).release()
    stream = messages.stream("talk-2")
    stream.append("half an answer")
    stream.flush()
    compact(store)
    owe(store)
    serve(store)
    route(store)
    work_beside(store)
    jobs(store)


def compact(store: Store) -> None:
    """A session with generations of every state, a branch that inherits one, and what is known of a model."""
    from tests.support.generations import SHORT, compacted, failed, started, superseded

    store.sessions.create(id="long", source="cli", model="model-a")
    for number in range(1, 13):
        role, text = ("user", "assistant")[number % 2 == 0], f"row {number} " + "of many words " * 40
        store.messages.append("long", role=role, content=text)
    compacted(store, "long", cut_at=5, anchors=(1,), summary="Summary: rows 2 to 4.")
    store.sessions.branch("long", new_id="long-side")
    compacted(store, "long", cut_at=7, anchors=(1,), clips={8: SHORT}, summary="Summary: rows 2 to 6.")
    failed(store, "long", cut_at=9)
    superseded(store, "long", cut_at=9)
    compacted(store, "long", cut_at=7, anchors=(1,), clips={10: SHORT}, summary=None)
    started(store, "long", cut_at=11)
    store.core.write(_known_of_a_model)


def _known_of_a_model(tx: Transaction) -> None:
    for kind, tokens in (("declared", 131_072), ("served", 8192), ("trained", 32_768), ("learned", 8000)):
        tx.execute(
            "INSERT INTO model_windows (model, endpoint, kind, tokens, evidence, observed_at)"
            " VALUES ('model-a', 'http://localhost:8080', ?, ?, '{}', ?)", (kind, tokens, BEGAN),
        )
    tx.execute(
        "INSERT INTO token_factors (model, endpoint, tokenizer, factor, samples, updated_at)"
        " VALUES ('model-a', 'http://localhost:8080', 'estimate', 1.25, 9, ?)", (BEGAN,),
    )


def owe(store: Store) -> None:
    """An obligation in each state, and a horizon."""
    from hermes_state.outbox import Accepted, Failed, NotAdmitted, Refused, Suppressed
    from hermes_state.outbox.verdicts import Lost

    box = store.outbox
    for number, verdict in enumerate(
        (
            Accepted(), Refused(why="gone"), Failed(why="no", for_good=True), Lost(why="reset"),
            Suppressed(why="old"), NotAdmitted(why="busy"), Failed(why="no"),
        )
    ):
        box.append(
            dedupe_id=f"owed {number}", kind="final", transport="telegram", payload={"n": number},
            policy="at_most_once", lane="talk",
        )
        (claim,) = box.claim(["telegram"])
        box.settle(claim, verdict)
        if number == 5:
            box.drop("owed 5", reason="a person")
    box.append(dedupe_id="claimed", kind="stop", transport="gateway", payload=1, policy="at_least_once")
    box.claim(["gateway"])
    store.core.write(lambda tx: tx.execute("INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, 7.0)"))


def make(folder: Path) -> list[Path]:
    """The two files of this release in `folder`."""
    made = []
    for name in ("empty", "filled"):
        target = folder / f"{hermes_state.__version__}-{name}.db.gz"
        if target.exists():
            sys.exit(f"{target} is there already")
        with tempfile.TemporaryDirectory() as home:
            clock = FakeClock(Path(home) / "clock.json", now=BEGAN)
            db = Path(home) / "state.db"
            with open_store(path=db, clock=clock) as store:
                if name == "filled":
                    fill(store)
                store.core.writer.checkpoint()
            target.write_bytes(gzip.compress(db.read_bytes(), mtime=0))
        made.append(target)
    return made


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(*make(FOLDER), sep="\n")
