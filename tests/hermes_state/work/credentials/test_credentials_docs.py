"""The example in docs/credentials.md: complete, and it prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "credentials.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^prints\n\n```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "HERMES_HOME": str(tmp_path / "home"), "PYTHONPATH": str(PROJECT)},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, "")
