"""Everything that changes what a session shows, in any order, against a model that knows nothing of positions.

The model of a view: what was not taken back, less what the generation stands for; of head, parent, parent's parent, ...
the first counts that stands for nothing that was taken back or is not shared.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_state import open_store
from hermes_state.compaction.generations import commit, generations_of, rollback, rotate, verify
from hermes_state.compaction.generations.rows import head_of
from tests.support.compacting import begun, contents, made, view_of


@dataclass
class Made:
    """A generation: the ids of all messages that it and its parents stand for."""

    covers: frozenset[int]
    parent: int | None
    summary: str | None
    done: bool = True


@dataclass
class Talk:
    """A session: the ids of its messages in order, what is its own of them, and which sets of ids are taken back."""

    ids: list[int]
    own: set[int]
    inherited: list[frozenset[int]] = field(default_factory=list)
    rewinds: dict[int, frozenset[int]] = field(default_factory=dict)
    restored: set[int] = field(default_factory=set)
    head: int | None = None

    def taken_back(self) -> set[int]:
        own = [ids for edit, ids in self.rewinds.items() if edit not in self.restored]
        return set().union(*self.inherited, *own)


class Conversations(RuleBasedStateMachine):
    """Sessions, generations and a naive copy of them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="generations-"))
        self.store = open_store(path=self.folder / "state.db")
        self.text: dict[int, tuple[str, str]] = {}
        self.talks: dict[str, Talk] = {}
        self.replaced: dict[str, Talk] = {}
        self.made: dict[int, Made] = {}
        self.count = 0

    def teardown(self) -> None:
        with self.store.core.reader() as reader, reader.snapshot():
            for name in self.talks:
                no = reader.rows("SELECT no FROM sessions WHERE id = ?", (name,))[0][0]
                for one in generations_of(reader, no):
                    if one.state == "done" and one.id in self.made:
                        checked = verify(reader, no, one.generation)
                        assert checked.ok, checked
        self.store.close()
        shutil.rmtree(self.folder)

    # --- the model -----------------------------------------------------------------------------------------------

    def effective(self, talk: Talk) -> int | None:
        current = talk.head
        while current is not None:
            one = self.made[current]
            if one.done and one.covers <= set(talk.ids) and not one.covers & talk.taken_back():
                return current
            current = one.parent
        return None

    def visible(self, talk: Talk) -> list[int]:
        current = self.effective(talk)
        gone = talk.taken_back() | (self.made[current].covers if current is not None else frozenset())
        return [one for one in talk.ids if one not in gone]

    def expected(self, talk: Talk) -> list[str]:
        shown = self.visible(talk)
        out = [self.text[one][1] for one in shown]
        current = self.effective(talk)
        summary = None if current is None else self.made[current].summary
        if summary is None:
            return out
        if shown and self.text[shown[0]][0] == "user":
            return [f"{summary}\n\n{out[0]}", *out[1:]]
        return [summary, *out]

    def some(self, data: Any) -> tuple[str, Talk]:
        name = data.draw(st.sampled_from(sorted(self.talks)))
        return name, self.talks[name]

    # --- what happens ---------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.store.sessions.create(id="0", source="cli")
        self.talks["0"] = Talk(ids=[], own=set())
        self.say("0", 6)

    def say(self, name: str, count: int) -> None:
        for _ in range(count):
            role = "user" if self.count % 2 == 0 else "assistant"
            self.count += 1
            said = self.store.messages.append(name, role=role, content=f"m{self.count}")
            self.text[said] = role, f"m{self.count}"
            self.talks[name].ids.append(said)
            self.talks[name].own.add(said)

    @precondition(lambda self: self.talks)
    @rule(data=st.data(), count=st.integers(1, 4))
    def append(self, data: Any, count: int) -> None:
        self.say(self.some(data)[0], count)

    @precondition(lambda self: self.talks)
    @rule(data=st.data())
    def rewind(self, data: Any) -> None:
        name, talk = self.some(data)
        users = [one for one in talk.ids if self.text[one][0] == "user"]
        if users:
            self.take_back(name, talk, data.draw(st.sampled_from(users)))

    def take_back(self, name: str, talk: Talk, target: int) -> bool:
        done = self.store.messages.rewind(name, target)
        if done.edit_id is not None:
            talk.rewinds[done.edit_id] = frozenset(talk.ids[talk.ids.index(target) :])
        return done.edit_id is not None

    @precondition(lambda self: self.talks)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        name, talk = self.some(data)
        self.store.messages.restore(name)
        left = [edit for edit in talk.rewinds if edit not in talk.restored]
        talk.restored.update(left[-1:])

    @precondition(lambda self: self.talks and len(self.talks) < 5)
    @rule(data=st.data())
    def branch(self, data: Any) -> None:
        _name, talk = name_talk = self.some(data)
        if not talk.ids:
            return
        at = data.draw(st.sampled_from(talk.ids))
        made_of = self.store.sessions.branch(name_talk[0], at_message_id=at)
        shared = talk.ids[: talk.ids.index(at) + 1]
        new = Talk(ids=list(shared), own=set(), inherited=[frozenset(talk.taken_back())])
        (parent,) = self.store.core.writer.rows(
            "SELECT p.id FROM sessions s JOIN sessions p ON p.no = s.parent_no WHERE s.id = ?", (made_of.id,)
        )[0]
        self.talks[made_of.id] = new
        above = self.talks.get(parent) or self.replaced.get(parent)
        if above is not None:
            new.head = above.head
            new.head = self.effective(new)

    @precondition(lambda self: self.talks)
    @rule(data=st.data(), meanwhile=st.sampled_from(["", "", "", "append", "rewind", "rollback"]))
    def compact(self, data: Any, meanwhile: str) -> None:
        name, talk = self.some(data)
        view = view_of(self.store, name)
        lowest = view.generation.cut_at if view.generation is not None else min(view.row_positions, default=1)
        cut = data.draw(st.integers(lowest, max(view.watermark + 1, lowest)))
        below = [one for one in view.row_positions if one < cut]
        anchors = data.draw(st.sets(st.sampled_from(below), max_size=2)) if below else set()
        summary = f"S{len(self.made) + 1}"
        running = begun(self.store, name, min(cut, view.watermark + 1), sorted(anchors), view=view)
        shown, parent = self.visible(talk), self.effective(talk)
        disturbed = False
        if meanwhile == "append":
            self.say(name, 2)
        elif meanwhile == "rewind" and shown and self.text[shown[-1]][0] == "user":
            disturbed = self.take_back(name, talk, shown[-1])
        elif meanwhile == "rollback" and talk.head is not None:
            rollback(self.store.core, name, 0)
            talk.head, disturbed = None, True
        done = commit(self.store.core, running, made(summary if running.source else None))
        assert done.state == ("superseded" if disturbed else "done")
        if not disturbed:
            places = dict(zip(view.row_positions, view.row_ids, strict=True))
            assert [places[one] for one in sorted(places)] == shown
            before = self.made[parent] if parent is not None else Made(covers=frozenset(), parent=None, summary=None)
            self.made[done.id] = Made(
                covers=before.covers | {places[one] for one in running.source}, parent=parent,
                summary=summary if running.source else before.summary,
            )
            talk.head = done.id

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def roll_back(self, data: Any) -> None:
        name, talk = self.some(data)
        with self.store.core.reader() as reader, reader.snapshot():
            no = reader.rows("SELECT no FROM sessions WHERE id = ?", (name,))[0][0]
            known = {one.generation: one.id for one in generations_of(reader, no) if one.state == "done"}
        chosen = data.draw(st.sampled_from([0, *sorted(known)]))
        rollback(self.store.core, name, chosen)
        with self.store.core.reader() as reader:
            talk.head = head_of(reader, no).id
        assert talk.head is None if chosen == 0 else talk.head in known.values()

    @precondition(lambda self: self.talks)
    @rule(data=st.data())
    def delete_message(self, data: Any) -> None:
        name, talk = self.some(data)
        if not talk.own:
            return
        target = data.draw(st.sampled_from(sorted(talk.own)))
        self.store.messages.delete(name, [target], actor="test", reason="a test")
        for other in (*self.talks.values(), *self.replaced.values()):
            other.ids = [one for one in other.ids if one != target]
            other.own.discard(target)
        # A parent has the lower number.
        for number in sorted(self.made):
            one = self.made[number]
            parent_gone = one.parent is not None and not self.made[one.parent].done
            one.done = one.done and target not in one.covers and not parent_gone

    @precondition(lambda self: len(self.talks) > 1)
    @rule(data=st.data())
    def delete_session(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.talks | self.replaced)))
        self.store.sessions.delete(name, actor="test", reason="a test")
        (self.talks if name in self.talks else self.replaced).pop(name)

    @precondition(lambda self: self.talks and len(self.talks) < 5)
    @rule(data=st.data())
    def go_on_in_a_child(self, data: Any) -> None:
        name, talk = self.some(data)
        child = rotate(self.store.core, name)
        new = Talk(ids=list(talk.ids), own=set(), inherited=[frozenset(talk.taken_back())], head=talk.head)
        new.head = self.effective(new)
        self.talks[child] = new
        assert contents(self.store, child) == contents(self.store, name)
        self.replaced[name] = self.talks.pop(name)

    # --- what holds -----------------------------------------------------------------------------------------------

    @invariant()
    def every_view_is_what_the_model_says(self) -> None:
        for name, talk in (self.talks | self.replaced).items():
            assert contents(self.store, name) == self.expected(talk)


Conversations.TestCase.settings = settings(
    max_examples=12, stateful_step_count=15, suppress_health_check=list(HealthCheck),
)
TestConversations = pytest.mark.slow(Conversations.TestCase)


@pytest.mark.campaign
def test_many_more_conversations_agree_with_the_model() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Conversations,
        settings=settings(max_examples=1500, stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )
