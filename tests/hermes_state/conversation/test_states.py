"""Any sequence of what is done to sessions keeps the states closed, the families sound and every promise about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from hermes_state import deletions
from hermes_state.conversation.lineage import chain_numbers, segments
from hermes_state.conversation.states import RECOVERABLE
from hermes_state.errors import Entombed, Refused, SessionDeleted, SessionReplaced, StatementFailed, TitleTaken
from hermes_state.store import Store
from hermes_state.testing import temporary_store

BY = {"actor": "test", "reason": "test"}
TITLES = st.sampled_from(["plan", "plan #2", "trip"])
REASONS = st.sampled_from(["cli_close", "agent_close", "daily"])


@pytest.fixture
def store(tmp_path: Any) -> Any:
    with temporary_store(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    "change",
    ["state = 'paused'", "state = 'ended'", "ended_at = 1", "relation = 'cousin'", "parent_no = no", "parent_no = 99",
     "title_source = 'cat'", "hidden = 2", "relation = NULL, parent_no = 2"],
)
def test_the_schema_refuses_a_state_that_is_none(store: Store, change: str) -> None:
    """Report 229 too: a session cannot be left under a parent that is not there."""
    for id_ in ("a", "b"):
        store.sessions.create(id=id_, source="cli")
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(f"UPDATE sessions SET {change} WHERE id = 'a'"))


@dataclass
class Known:
    """What the model knows of a session."""

    said: list[str]
    state: str = "open"
    reason: str | None = None
    continues: str | None = None
    continued_by: str | None = None
    delegate_of: str | None = None
    titles: list[str] = field(default_factory=list)


class Families(RuleBasedStateMachine):
    """Sessions are made, talked in, ended, continued, branched off and deleted, beside a model in plain Python."""

    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.opened = temporary_store(durability="process")
        self.store = self.opened.__enter__()
        self.known: dict[str, Known] = {}
        self.gone: set[str] = set()
        self.titles: dict[str, str] = {}
        self.messages = self.words = 0

    def teardown(self) -> None:
        self.opened.__exit__(None, None, None)

    def tip(self, id_: str) -> str:
        while (following := self.known[id_].continued_by) is not None:
            id_ = following
        return id_

    @rule(target=sessions)
    def create(self) -> str:
        id_ = self.store.sessions.create(source="cli").id
        self.known[id_] = Known([])
        return id_

    @rule(target=sessions, parent=sessions)
    def delegate(self, parent: str) -> str | Any:
        if parent in self.gone:
            with pytest.raises(SessionDeleted):
                self.store.sessions.create(source="cli", parent_id=parent, relation="delegate")
            return multiple()
        id_ = self.store.sessions.create(source="cli", parent_id=parent, relation="delegate").id
        self.known[id_] = Known([], delegate_of=parent)
        return id_

    @rule(id_=sessions, count=st.integers(1, 3))
    def say(self, id_: str, count: int) -> None:
        texts = [f"word {self.words + number}" for number in range(count)]
        rows = [{"role": "user", "content": text} for text in texts]
        if id_ in self.gone:
            with pytest.raises(SessionDeleted):
                self.store.messages.append_many(id_, rows)
        elif self.known[id_].state == "replaced":
            with pytest.raises(SessionReplaced) as replaced:
                self.store.messages.append_many(id_, rows)
            tip = self.tip(id_)
            assert replaced.value.facts["tip_id"] == (None if tip == id_ else tip)
        else:
            self.store.messages.append_many(id_, rows)
            self.known[id_].said += texts
            self.words += count
            self.messages += count

    @rule(target=sessions, id_=sessions)
    def branch(self, id_: str) -> str | Any:
        if id_ in self.gone:
            return multiple()
        child = self.store.sessions.branch(id_).id
        self.known[child] = Known(list(self.known[id_].said))
        return child

    @rule(target=sessions, id_=sessions)
    def continue_as(self, id_: str) -> str | Any:
        if id_ in self.gone or self.known[id_].state != "open":
            with pytest.raises((SessionDeleted, SessionReplaced, Refused)):
                self.store.sessions.continue_as(id_)
            return multiple()
        child = self.store.sessions.continue_as(id_).id
        self.known[id_].state, self.known[id_].reason, self.known[id_].continued_by = "replaced", "compression", child
        self.known[child] = Known([], continues=id_)
        for title, holder in self.titles.items():
            if holder == id_:
                self.titles[title] = child
        return child

    @rule(id_=sessions, reason=REASONS)
    def end(self, id_: str, reason: str) -> None:
        if id_ in self.gone:
            return
        open_before = self.known[id_].state == "open"
        assert self.store.sessions.end(id_, reason) is open_before
        if open_before:
            self.known[id_].state, self.known[id_].reason = "ended", reason

    @rule(id_=sessions)
    def reset(self, id_: str) -> None:
        if id_ in self.gone:
            return
        one = self.known[id_]
        allowed = one.state == "open" or (one.state == "ended" and one.reason in RECOVERABLE)
        assert self.store.sessions.promote_to_reset(id_) is allowed
        if allowed:
            one.state, one.reason = "ended", "session_reset"

    @rule(id_=sessions, by_recovery=st.booleans())
    def reopen(self, id_: str, by_recovery: bool) -> None:
        if id_ in self.gone:
            return
        one = self.known[id_]
        if one.state == "replaced" and one.continued_by is not None:
            with pytest.raises(SessionReplaced):
                self.store.sessions.reopen(id_, by_recovery=by_recovery)
        elif one.state != "open" and by_recovery and one.reason not in RECOVERABLE:
            with pytest.raises(Refused):
                self.store.sessions.reopen(id_, by_recovery=True)
        else:
            self.store.sessions.reopen(id_, by_recovery=by_recovery)
            one.state, one.reason = "open", None

    @rule(id_=sessions, title=TITLES)
    def rename(self, id_: str, title: str) -> None:
        if id_ in self.gone:
            return
        tip = self.tip(id_)
        holder = self.titles.get(title)
        if holder is not None and holder != tip:
            with pytest.raises(TitleTaken):
                self.store.sessions.rename(id_, title)
            return
        self.store.sessions.rename(id_, title)
        self.titles = {one: who for one, who in self.titles.items() if who != tip}
        self.titles[title] = tip

    @rule(id_=sessions, whole=st.booleans())
    def delete(self, id_: str, whole: bool) -> None:
        if id_ in self.gone:
            return
        seeds = [id_]
        if whole:
            seeds = [one for one in self.known if self.tip(one) == self.tip(id_)]
        goes = set(seeds)
        while True:
            more = {
                id_ for id_, one in self.known.items()
                if one.delegate_of in goes or (one.continues in goes - set(seeds))
            } - goes
            if not more:
                break
            goes |= more
        done = self.store.sessions.delete(id_, whole_conversations=whole, **BY)
        assert set(done.sessions) == goes
        for one in goes:
            del self.known[one]
        for one in self.known.values():
            one.continues = None if one.continues in goes else one.continues
            one.continued_by = None if one.continued_by in goes else one.continued_by
            one.delegate_of = None if one.delegate_of in goes else one.delegate_of
        self.titles = {title: who for title, who in self.titles.items() if who not in goes}
        self.gone |= goes
        with pytest.raises(Entombed):
            self.store.sessions.create(id=id_, source="cli")

    @invariant()
    def every_session_is_as_the_model_says(self) -> None:
        for id_, one in self.known.items():
            found = self.store.sessions.get(id_)
            assert (found.state, found.end_reason) == (one.state, one.reason)
            assert [message["content"] for message in self.store.messages.context(id_)] == one.said
            assert self.store.sessions.tip(id_).id == self.tip(id_)
        for id_ in self.gone:
            with pytest.raises(SessionDeleted):
                self.store.sessions.get(id_)
        entries = self.store.sessions.list(limit=99, include_children=True)
        assert {one.title: one.id for one in entries if one.title} == self.titles

    @invariant()
    def one_conversation_is_one_entry(self) -> None:
        tips = {id_ for id_ in self.known if self.tip(id_) == id_}
        assert {one.id for one in self.store.sessions.list(limit=99, include_children=True)} == tips
        assert self.store.sessions.count(include_children=True) == len(tips)
        assert self.store.sessions.count() == len(self.store.sessions.list(limit=99))

    @invariant()
    def nothing_is_left_that_nobody_sees_and_everything_gone_is_written_down(self) -> None:
        with self.store.core.reader() as reader, reader.snapshot():
            assert reader.rows("PRAGMA foreign_key_check") == []
            seen: set[tuple[int, int]] = set()
            for (no,) in reader.rows("SELECT no FROM sessions WHERE hidden = 0"):
                assert len(chain_numbers(reader, no)) == len(set(chain_numbers(reader, no)))
                for part in segments(reader, no):
                    seen |= {
                        (part.session_no, seq) for (seq,) in reader.rows(
                            "SELECT seq FROM messages WHERE session_no = ? AND seq <= ?",
                            (part.session_no, 2**62 if part.upto_seq is None else part.upto_seq),
                        )
                    }
            assert set(reader.rows("SELECT session_no, seq FROM messages")) == seen
            hidden = "SELECT count(*) FROM sessions s WHERE hidden = 1 AND NOT EXISTS"
            assert reader.rows(f"{hidden} (SELECT 1 FROM sessions c WHERE c.parent_no = s.no)") == [(0,)]
            deleted = sum(entry.detail["messages"] for entry in deletions.page(reader, limit=999))
            assert self.messages == len(seen) + deleted


Families.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
TestFamilies = pytest.mark.slow(Families.TestCase)


class LongFamilies(Families):
    """The same, many times over."""


LongFamilies.TestCase.settings = settings(
    max_examples=400, stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)
TestLongFamilies = pytest.mark.campaign(LongFamilies.TestCase)
