"""The example of docs/routing.md does what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_state.routing import ProfileRoute, Transport, delivery
from tests.hermes_state.routing.conftest import source


@pytest.fixture(name="page")
def names_of_the_example(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The example, run, with what it takes for granted: a model, a log and a way to send."""
    page = (project / "docs" / "routing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "elsewhere"))
    names: dict[str, Any] = {"warnings": [], "sent": []}
    names |= {
        "log": SimpleNamespace(warning=names["warnings"].append), "ask_the_model": lambda here, turn: "hello",
        "send": lambda by, source, answer: names["sent"].append((by, answer)),
    }
    exec(compile(block, "docs/routing.md", "exec"), names)
    yield names
    names["store"].close()
    names["work"].close()


def said(page: dict[str, Any], session: str) -> list[object]:
    return [one["content"] for one in page["work"].messages.context(session)]


def test_the_example_takes_in_answers_and_drops(page: dict[str, Any]) -> None:
    work, warnings = page["work"], page["warnings"]
    page["received"](source(), page["bot"], "hi")
    assert page["sent"] == [(page["bot"], "hello")]
    (route,) = work.routing.page()
    assert route.session_key == "agent:work:telegram:group:-100:7"
    assert said(page, route.session_id) == ["hi", "hello"]
    work.routing.suspend(route, work.routing.home, reason="stuck")
    page["received"](source(), page["bot"], "again")
    (route,) = work.routing.page()
    assert (route.generation, route.reset_reason, route.fresh) == (2, "stuck", False)
    own = Transport(platform="telegram", profile="work", home=work.routing.home)
    page["live"].append(own)
    for receiver in (page["bot"], own):
        page["routes"][0] = ProfileRoute(profile="gone", platform="telegram")
        for _ in range(3):
            page["received"](source(), receiver, "lost")
    assert len(warnings) == 1
    assert page["store"].routing.page() == []


def test_the_example_keeps_the_bot_that_received_a_message_also_over_a_reset(page: dict[str, Any]) -> None:
    page["received"](source(), page["bot"], "hi")
    work = page["work"]
    own = Transport(platform="telegram", profile="work", home=work.routing.home)
    page["live"].append(own)
    (route,) = work.routing.page()
    work.routing.suspend(route, work.routing.home, reason="stuck")
    page["received"](source(), own, "to the other bot")
    (route,) = work.routing.page()
    assert delivery(route, page["live"]).transport is own


def test_the_example_loses_nothing_to_a_reset_a_compaction_or_a_deletion(page: dict[str, Any]) -> None:
    """Each of them happens while the model is asked, or before the next message."""
    work = page["work"]
    page["received"](source(), page["bot"], "one")
    (route,) = work.routing.page()
    tip = work.sessions.continue_as(route.session_id).id
    page["received"](source(), page["bot"], "two")
    assert said(page, tip)[-2:] == ["two", "hello"]
    work.sessions.delete([tip], actor="test", reason="test")
    page["received"](source(), page["bot"], "three")
    (route,) = work.routing.page()
    assert said(page, route.session_id) == ["three", "hello"]
    new = work.sessions.create(source="telegram").id

    def reset(here: Any, turn: Any) -> str:
        here.routing.reset(turn.route, here.routing.home, new, reason="/new")
        return "the old answer"

    page["ask_the_model"] = reset
    page["received"](source(), page["bot"], "four")
    assert said(page, route.session_id) == ["three", "hello", "four", "the old answer"]
    page["ask_the_model"] = lambda here, turn: "hello"
    page["received"](source(), page["bot"], "five")
    assert said(page, new) == ["five", "hello"]
