"""T8.7: homes that share one login take their own lease before the shared one, and nobody ever waits for ever.

Three homes and the store that they share, one secret file, a provider that burns on reuse; processes of two threads
each ask through a home or the shared store itself, and every token that they were given is refused at once, so that
each run wants another one. 24 runs in the default suite, HERMES_STATE_ROUNDS (default 10,000) in the campaign.
"""

from __future__ import annotations

import collections
import json
import os
import time
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Grant, SecretFile, Secrets, Shared, Verdict
from tests.support.children import Children
from tests.support.token_server import TokenServer

SEED = int(os.environ.get("HERMES_STATE_SEED", "8700"))
RUNS = int(os.environ.get("HERMES_STATE_ROUNDS", "10000"))
HOMES = ("a", "b", "c")

WORKER = """
import collections, contextlib, json, random, sys, threading, time
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[5])))
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import SecretFile, Shared, verdict_of
from tests.support.token_server import post

root, port, runs, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
counts, longest, failed = collections.Counter(), [0.0], []

def exchange(grant):
    answer = post(port, grant.reveal())
    return verdict_of(answer.pop("status"), answer, now=time.time())

def work(number):
    chance, last = random.Random(seed * 10 + number), None
    for _ in range(runs):
        name = chance.choice(["a", "b", "c", "shared"])
        store, began = stores[name], time.monotonic()
        served = store.work.credentials.token(
            "nous", "main", home_of(store.core), secrets=file, exchange=exchange, rejected=last,
            shared=None if name == "shared" else shared,
        )
        assert served.access_token != last
        last = served.access_token
        counts[served.how] += 1
        longest[0] = max(longest[0], time.monotonic() - began)

def guarded(number):
    try:
        work(number)
    except BaseException as error:
        failed.append(repr(error))

with contextlib.ExitStack() as opened:
    stores = {name: opened.enter_context(open_store(root / name)) for name in ("a", "b", "c", "shared")}
    file = SecretFile(root / "secret.json")
    shared = Shared(credentials=stores["shared"].work.credentials, home=home_of(stores["shared"].core))
    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(json.dumps({"counts": counts, "longest": longest[0], "failed": failed}))
"""


def crowd(child: Children, root: Path, processes: int, runs: int) -> tuple[collections.Counter[str], float, int]:
    """Every process works through its runs; gives how tokens came, the longest wait, and the POSTs."""
    file = SecretFile(root / "secret.json")
    with TokenServer() as server:
        file.store(Secrets(access_token="first", refresh_token=server.log_in("account")))
        for name in (*HOMES, "shared"):
            with open_store(root / name) as store:
                store.work.credentials.log_in(
                    "nous", "main", home_of(store.core), secrets=file, auth_type="oauth",
                    source="shared" if name == "shared" else "manual",
                )
        project = Path(__file__).parents[2]
        workers = [
            child(WORKER, root, server.port, max(runs // (2 * processes), 1), SEED + number, project)
            for number in range(processes)
        ]
        said = [json.loads(worker.finish(3600)) for worker in workers]
        posts = server.posts_of("account")
        assert server.burned == set()
    assert [one["failed"] for one in said] == [[]] * processes
    assert len(posts) == len(set(posts))
    counts: collections.Counter[str] = collections.Counter()
    for one in said:
        counts.update(one["counts"])
    return counts, max(one["longest"] for one in said), len(posts)


@pytest.mark.slow
def test_t8_7_two_processes_through_three_homes_never_wait_for_each_other(child: Children, tmp_path: Path) -> None:
    counts, _, posts = crowd(child, tmp_path, 2, 24)
    assert counts.total() == 24
    assert posts >= 6  # each thread's runs want another token each, and one serves at most four


@pytest.mark.campaign
def test_t8_7_in_ten_thousand_runs(child: Children, tmp_path: Path) -> None:
    began = time.monotonic()
    counts, longest, posts = crowd(child, tmp_path, 4, RUNS)
    print(
        f"\n{counts.total()} runs from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(counts)}, {posts} POSTs,"
        f" longest {longest:.2f} s"
    )


def test_t8_7_the_other_order_is_refused(tmp_path: Path, fake_clock: FakeClock) -> None:
    """A row that is shared asks no other store, and a store is not shared with itself."""
    file = SecretFile(tmp_path / "secret.json")
    file.store(Secrets(access_token="one", refresh_token="two"))

    def never(grant: Grant) -> Verdict:
        raise AssertionError(grant)

    with open_store(tmp_path / "a") as own, open_store(tmp_path / "shared") as shared:
        for store, source in ((own, "manual"), (shared, "shared")):
            store.work.credentials.log_in(
                "nous", "main", home_of(store.core), secrets=file, auth_type="oauth", source=source
            )
        for store, other, message in (
            (shared, own, f"nous credential 'main' of {shared.path} is itself shared."),
            (own, own, f"The shared store is the home's own, {own.path}."),
        ):
            with pytest.raises(InvalidInput) as refused:
                store.work.credentials.token(
                    "nous", "main", home_of(store.core), secrets=file, exchange=never,
                    shared=Shared(credentials=other.work.credentials, home=home_of(other.core)),
                )
            assert str(refused.value) == message
