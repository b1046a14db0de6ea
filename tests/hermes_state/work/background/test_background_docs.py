"""The example of docs/background-work.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def test_the_example_tells_of_both_ends(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (project / "docs" / "background-work.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    names: dict[str, Any] = {}
    told: list[tuple[str, str]] = []
    block = block.replace("print(event)", "told.append((session_id, event))")
    names["told"] = told
    exec(compile(block, "docs/background-work.md", "exec"), names)
    session = names["session"].id
    assert told == [
        (session, "Background process proc_1 (make) has ended with exit code 2.\nERROR: no rule"),
        (
            session,
            "Background process proc_1 (make) has ended with exit code 2.\nmake: *** no rule\n\n"
            "Delegation deleg_1 (read the logs) is completed.\nnothing unusual",
        ),
    ]
