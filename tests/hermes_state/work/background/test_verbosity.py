"""The five words of verbosity: what is told at an end, at a failure, and while something runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Process, Tell
from hermes_state.work.notices import Notice
from hermes_state.work.verbosity import FORMS, Form, Moment, Verbosity, known
from tests.hermes_state.work.background.conftest import obligations

OUTPUT = "one\ntwo"
LINE = "Background process p (make) has ended with exit code {}."
#             while it runs   ended well        failed
TABLE = {
    "concise": (False, LINE, f"{LINE}\n{OUTPUT}"),
    "all": (True, f"{LINE}\n{OUTPUT}", f"{LINE}\n{OUTPUT}"),
    "result": (False, f"{LINE}\n{OUTPUT}", f"{LINE}\n{OUTPUT}"),
    "error": (False, None, f"{LINE}\n{OUTPUT}"),
    "off": (False, None, None),
}


def read(store: Store) -> list[Notice]:
    """What people are given to read now."""
    seen: list[Notice] = []

    def send(notice: Notice) -> None:
        seen.append(notice)

    store.work.notices.tell(send, ["telegram"])
    return seen


def test_every_word_has_its_form_at_every_moment() -> None:
    assert set(FORMS) == set(itertools.product(Verbosity, Moment))
    assert set(TABLE) == set(Verbosity)


@pytest.mark.parametrize("word", TABLE)
def test_what_a_person_is_told_by_the_word(
    store: Store, home: Home, begin: Callable[..., Process], word: str
) -> None:
    running, *ends = TABLE[word]
    for code, wanted in enumerate(ends):
        process = begin("p", Tell(mode="receipt", transport="telegram", verbosity=word))  # type: ignore[arg-type]
        assert store.work.processes.update(process, home, "half", 1) is running
        store.work.processes.exited(process, home, exit_code=code, output=OUTPUT)
        assert [notice.text for notice in read(store)] == ([] if wanted is None else [str(wanted).format(code)])
        said = obligations(store)
        assert (process.key in said) is (wanted is not None)
        for one in [one for one, state in said.items() if state == "pending"]:
            store.outbox.drop(one, reason="test")


def test_a_turn_begins_at_any_verbosity(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    process = begin("p", Tell(mode="turn", transport="telegram", verbosity="off"))  # type: ignore[arg-type]
    assert str(store.work.processes.exited(process, home, exit_code=0).delivery) == "pending"


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        known("loud")
    assert f"{caught.value} {caught.value.hint}" == (
        "'loud' is no verbosity of background work. It is one of concise, all, result, error, off."
    )


def test_a_long_output_is_cut_for_people_and_kept_whole(
    store: Store, home: Home, begin: Callable[..., Process]
) -> None:
    process = begin("p", Tell(mode="receipt", transport="telegram", verbosity="result"))  # type: ignore[arg-type]
    ended = store.work.processes.exited(process, home, exit_code=0, output="x" * 300_000)
    assert (len(ended.output), ended.result_chars) == (200_000, 300_000)
    assert read(store)[0].text == f"{LINE.format(0)}\n{'x' * 800}... (200,000 characters)"
    assert Form.OUTPUT in FORMS.values()
