"""Whatever reads a whole store shows a bar that says what it is at; `test_cli` has when and where it is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from maintenance.cli import root_command
from maintenance.output import progress as output
from maintenance.output.progress import Progress
from tests.maintenance.removal_stores import add_session
from tests.support.stores import StoreCopy


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every bar that is made says it is at, in order."""
    said: list[str] = []

    class Noted(Progress):
        def __init__(self, total: int | None, label: str) -> None:
            said.append(label)
            super().__init__(total, label)

        def restart(self, total: int | None, label: str) -> None:
            said.append(label)
            super().restart(total, label)

    monkeypatch.setattr(output, "Progress", Noted)
    return said


INDEXES = ["checking messages_fts", "checking messages_fts_trigram"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "doctor --sizes",
            [
                "looking at the store", "checking pages", "checking search indexes", "checking foreign keys",
                "adding up sizes",
            ],
        ),
        ("sessions stats --sizes", ["adding up sizes"]),
        ("sessions optimize-storage --dry-run", ["adding up what the new indexes need"]),
        ("sessions prune --dry-run", ["choosing sessions"]),
        ("sessions archive --dry-run --older-than 1d", ["choosing sessions"]),
        ("sessions delete --dry-run old", ["looking up what goes along"]),
        ("sessions prune --yes --allow-large", ["choosing sessions", "checking pages", "deleting"]),
        ("sessions optimize --online", ["checking pages", *INDEXES]),
        ("sessions optimize", ["checking pages", *INDEXES]),
    ],
)
def test_every_step_that_reads_the_whole_store_says_what_it_is_at(
    store_copy: StoreCopy, labels: list[str], words: str, said: list[str]
) -> None:
    db: Path = store_copy("0.19.0")
    add_session(db, "old")
    arguments = [*words.split(), "--db", str(db)]
    result = CliRunner().invoke(root_command(), arguments)
    assert result.exit_code in (0, 3), result.output
    assert [label for label in labels if not label.startswith(("merging", "returning"))][: len(said)] == said
