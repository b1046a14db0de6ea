"""Threads that search, index and append through one store at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import SYSTEM
from tests.hermes_state.conversation.search.support import chat


@pytest.mark.slow
def test_threads_share_one_search_without_harm(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db", clock=SYSTEM) as store:
        session, numbers = chat(store, *[f"apple word{number}" for number in range(1000)])
        failures: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        def search() -> None:
            for number in range(40):
                result = store.search(f"word{number * 7}", budget_seconds=60.0)
                assert [hit.message_id for hit in result] == [numbers[number * 7]]
                assert result.complete

        def index() -> None:
            while store.search.index_idle(1).pending:
                pass
            store.search.optimize_index()

        def append() -> None:
            for number in range(40):
                store.messages.append(session, role="user", content=f"pear{number}")

        def disturb() -> None:
            for _ in range(5):
                store.search.rebuild()
                store.search.close()

        works = [search, search, search, index, index, append, disturb]
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        while store.search.index_idle(10).pending:
            pass
        check = store.search.verify()
        assert (check.sound, check.entries) == (True, 1040)
        assert len(store.search("apple", limit=1000)) == 1000
