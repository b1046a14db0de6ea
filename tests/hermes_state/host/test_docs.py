"""The example of docs/host.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.children import Children


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path: Path, project: Path, child: Children) -> None:
    page = (project / "docs" / "host.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert "/tmp/hermes-example" in code
    ran = child(code.replace("/tmp/hermes-example", str(tmp_path)), env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert ran.finish() == ""
    assert (tmp_path / "state" / "hermes" / "host.db").exists()
