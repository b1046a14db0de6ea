"""docs/testing.md is run, and names everything that the modules give."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.support.children import PROJECT

PAGE = (PROJECT / "docs" / "testing.md").read_text(encoding="utf-8")
MODULES = ("corruption", "faults", "power_loss")
# Parts of a result, or for the shims themselves.
NOT_SHOWN = {
    "Case", "Damage", "FtsDamage", "Action", "Operation", "Role", "Mode", "Injection", "Crash", "Event", "MODES",
    "PAGE_BYTES", "SECTOR_BYTES", "ROLES", "OPERATIONS",
}


@pytest.mark.slow
def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))  # as an installed package would be found
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)):
        exec(compile(block, f"docs/testing.md block {number + 1}", "exec"), names)


@pytest.mark.parametrize("module", MODULES)
def test_every_function_has_an_example(module: str) -> None:
    given = importlib.import_module(f"hermes_state.testing.{module}").__all__
    examples = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    told = set(re.findall(r"\w+", examples)) | {"wal_checksum"}
    assert sorted(set(given) - told - NOT_SHOWN) == []
