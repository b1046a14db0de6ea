"""Secrets in background work, lanes, replies and what else a gateway keeps: gone from every text, and from digests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted
from hermes_state.store import Store
from hermes_state.work import seals
from hermes_state.work.background import Tell
from hermes_state.work.states import Mode
from hermes_state.work.targets import SendFailure
from maintenance.scrub.patterns import Redactor, rules_for
from tests.maintenance.scrub.scrubbing import scrubbed

SECRET = 'hunt"er2'


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Store:
    return open_store(tmp_path, clock=fake_clock)


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql)


def test_a_secret_goes_from_every_text_and_what_it_is_known_by_stays(store: Store, fake_clock: FakeClock) -> None:
    home, work = store.routing.home, store.work
    tell = Tell(mode=Mode.TURN, transport="telegram", target="7")
    process = work.processes.register("p", home, command=f"login {SECRET}", epoch="e", tell=tell)
    work.processes.exited(process, home, exit_code=0, output=f"password {SECRET}")
    given = work.delegations.dispatch("d", home, task={"goal": f"use {SECRET}"}, tell=tell)
    work.delegations.completed(given, home, f"the password is {SECRET}")
    work.lanes.add("lane", "1", f"my password is {SECRET}", home, details={"user": SECRET})
    work.targets.failed("telegram", "8", home, SendFailure.FORBIDDEN, reason=f"no {SECRET}")
    store.routing.topics.set("telegram", "7", home, user_id="u", enabled=True, details={"note": SECRET})
    assert scrubbed(store, fake_clock, SECRET) == Counter({
        "background_work": 2, "lane_items": 1, "dead_targets": 1, "topic_chats": 1,
    })
    for table in ("background_work", "lane_items", "dead_targets", "topic_chats"):
        assert "er2" not in str(rows(store, f"SELECT * FROM {table}"))
    assert work.lanes.waiting("lane")[0].content.startswith("my password is ")
    found = work.delegations.get("d")
    assert found is not None and str(found.result).startswith("the password is ")
    assert found.delivery == "pending"


def test_a_reply_has_the_digest_of_what_its_obligation_says_now(store: Store, fake_clock: FakeClock) -> None:
    home, streams = store.routing.home, store.work.streams
    streams.finish("t", f"It is {SECRET}.", home, transport="telegram", target="7")
    old = seals.digest_of(f"It is {SECRET}.")
    assert scrubbed(store, fake_clock, SECRET) == Counter({"outbox": 1})
    text = f"It is {Redactor(rules_for([SECRET], None)).text(SECRET)[:9]}"
    sent: list[str | None] = []
    reply = streams.get("t")
    assert reply is not None and old not in (reply.sealed_digest, reply.final_digest)
    streams.deliver(lambda part: sent.append(part.text) or Accepted(), ["telegram"])
    assert sent[0] is not None and sent[0].startswith(text)
    reply = streams.get("t")
    assert reply is not None and reply.final_digest == reply.shown_digest == seals.digest_of(sent[0])


def test_digests_of_texts_that_nobody_can_read_are_random_once_anything_was_replaced(
    store: Store, fake_clock: FakeClock
) -> None:
    home, streams = store.routing.home, store.work.streams
    streams.finish("t", "Something old.", home, transport="telegram", target="7")
    streams.deliver(lambda part: Accepted(result={"message_id": "m"}), ["telegram"])
    before = rows(store, "SELECT final_digest, shown_digest FROM reply_seals")
    assert scrubbed(store, fake_clock, SECRET) == Counter()
    assert rows(store, "SELECT final_digest, shown_digest FROM reply_seals") == before
    fake_clock.advance(2 * 86_400)
    store.outbox.upkeep()
    session = store.sessions.create(source="cli")
    store.messages.append(session.id, role="user", content=SECRET)
    assert scrubbed(store, fake_clock, SECRET)["messages"] == 1
    ((final, shown),) = rows(store, "SELECT final_digest, shown_digest FROM reply_seals")
    assert final == shown != before[0][0]
    reply = streams.get("t")
    assert reply is not None and str(reply.state) == "sealed"
