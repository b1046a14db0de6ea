"""The measured accidents, with our engine on either side and a second real writer beside it.

Each scene is one accident with seeded choices (who, when, how many rows, which file). At its end every row that any
process was told is committed must be in the file, or in the capture that a named error points to; an accident that
endangers rows must end in a named error of ours.

Each is played in both ways of writing, a `with` block and `Store.write`. The default suite plays each scene once in
each way; `./dev accidents` plays 380 seeded rounds over all of them (HERMES_CAMPAIGN_ROUNDS, HERMES_CAMPAIGN_SEED) and
then 200 plays in which accidents come in any order (HERMES_CAMPAIGN_FREE_PLAYS).
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns import free_play, rarer_scenes
from tests.campaigns.scenes import SCENES
from tests.campaigns.stage import Stage, Verdict
from tests.support import stores

assert free_play and rarer_scenes  # they register their scenes


WAYS = ("block", "write")


def play(name: str, seed: int, folder: Path, way: str = "block") -> tuple[Verdict, list[str]]:
    """One scene; the second item says what is wrong, empty when all is well.

    `way`: whether the engine's transactions are `with` blocks or go through `Store.write`.
    """
    folder.mkdir(parents=True)
    stage = Stage(stores.unpack("0.19.0", folder / "state.db"), way=way)
    try:
        must_name = SCENES[name](stage, random.Random(seed))
        verdict = stage.close()
    finally:
        stage.abandon()
    problems = []
    if verdict.lost:
        problems.append(f"acknowledged and gone: {', '.join(verdict.lost)}")
    if verdict.unnamed:
        problems.append(f"errors without a name: {', '.join(verdict.unnamed)}")
    if must_name and not verdict.named:
        problems.append("no named error")
    if verdict.integrity != "ok":
        problems.append(f"pages: {verdict.integrity}")
    return verdict, problems


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A place for many stores."""
    yield tmp_path / "scenes"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(SCENES))
def test_an_accident_loses_no_acknowledged_row_silently(name: str, way: str, folder: Path) -> None:
    verdict, problems = play(name, 1, folder, way)

    assert problems == [], "\n".join([name, *problems, *verdict.script])


def play_rounds(names: list[str], rounds: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Rounds over these scenes in turn, each with the next seed; a table, and everything that is wrong."""
    first = int(os.environ.get("HERMES_CAMPAIGN_SEED", "1"))
    played: Counter[str] = Counter()
    captured: Counter[str] = Counter()
    named: dict[str, Counter[str]] = {name: Counter() for name in names}
    failures: list[str] = []
    started = time.monotonic()
    for number in range(rounds):
        name, seed, way = names[number % len(names)], first + number, WAYS[number // len(names) % 2]
        verdict, problems = play(name, seed, folder / str(number), way)
        played[name] += 1
        captured[name] += len(verdict.captured)
        named[name].update(set(verdict.named))
        if problems:
            script = ("  " + step for step in verdict.script)
            failures.append("\n".join([f"{name}, seed {seed}, {way}", *problems, *script]))
        shutil.rmtree(folder / str(number))
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(f"\naccidents: {rounds} rounds from seed {first}, {seconds:.0f} s, {len(failures)} failed")
        for name in names:
            errors = ", ".join(f"{error} {count}" for error, count in sorted(named[name].items())) or "none needed"
            print(f"  {name:<72} {played[name]:>3} rounds, {captured[name]:>3} rows in captures; {errors}")
    return failures


@pytest.mark.campaign
def test_hundreds_of_seeded_accidents_lose_no_acknowledged_row_silently(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = int(os.environ.get("HERMES_CAMPAIGN_ROUNDS", "380"))

    failures = play_rounds(sorted(SCENES), rounds, folder, capsys)

    assert failures == [], "\n\n".join(failures)


@pytest.mark.campaign
def test_hundreds_of_plays_in_any_order_lose_no_acknowledged_row_silently(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plays = int(os.environ.get("HERMES_CAMPAIGN_FREE_PLAYS", "200"))

    failures = play_rounds([free_play.any_accidents_in_any_order.__name__], plays, folder, capsys)

    assert failures == [], "\n\n".join(failures)
