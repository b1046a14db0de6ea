"""The example in docs/cron-ticker.md: complete, and it says what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import PROJECT


@pytest.mark.slow
def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "cron-ticker.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    ran = subprocess.run(
        [sys.executable, "-c", example], env={"PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )
    assert (ran.stdout, ran.stderr) == (
        "report of default: Write the report.\n['The report.']\n", ""
    )
