"""The example of docs/routing.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hermes_state.routing.conftest import source


def test_the_example_takes_in_answers_and_drops(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (project / "docs" / "routing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    warnings: list[str] = []
    names: dict[str, Any] = {"log": SimpleNamespace(warning=warnings.append), "text": "hi"}
    block = block.replace("    answer_by =", "    global answer_by\n    answer_by =")
    exec(compile(block, "docs/routing.md", "exec"), names)
    try:
        names["received"](source(), names["bot"])
        assert names["answer_by"] is names["bot"]
        (route,) = names["work"].routing.page()
        assert route.session_key == "agent:work:telegram:group:-100:7"
        assert names["work"].messages.count(route.session_id) == 1
        names["work"].routing.suspend(route, names["work"].routing.home, reason="stuck")
        names["received"](source(), names["bot"])
        (route,) = names["work"].routing.page()
        assert (route.generation, route.reset_reason) == (2, "stuck")
        names["received"](source(), names["bot"])
        names["routes"][0] = type(names["routes"][0])(profile="gone", platform="telegram")
        for _ in range(3):
            names["received"](source(), names["bot"])
        assert len(warnings) == 1
        assert names["store"].routing.page() == []
    finally:
        names["store"].close()
        names["work"].close()
