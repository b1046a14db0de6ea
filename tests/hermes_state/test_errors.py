"""The error tree: stable codes, exits, facts, and survival across processes."""

from __future__ import annotations

import pickle

import pytest

from hermes_state import errors


def tree(kind: type[errors.StateError] = errors.StateError) -> list[type[errors.StateError]]:
    return [kind] + [below for sub in kind.__subclasses__() for below in tree(sub)]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in tree()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", tree())
def test_error_survives_pickling_with_its_facts(kind: type[errors.StateError]) -> None:
    error = kind("what happened", hint="what to do", path="/x/state.db", sqlite_code=11, sqlite_extended=267)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.hint, copy.path) == ("what happened", "what to do", "/x/state.db")
    assert (copy.sqlite_code, copy.sqlite_extended) == (11, 267)
    assert copy.facts == {"path": "/x/state.db"}


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.InvalidInput, 2), (errors.Refused, 1), (errors.StoreHeld, 1), (errors.NotFound, 1),
        (errors.LockTimeout, 75), (errors.Corrupt, 65), (errors.NotAStore, 65), (errors.GenerationLost, 1),
        (errors.SecondSQLite, 1), (errors.InsufficientSpace, 1), (errors.SchemaTooOld, 1),
    ],
)
def test_exit_codes_are_those_of_the_command_line(kind: type[errors.StateError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_only_lock_trouble_may_be_retried_as_it_is() -> None:
    assert {kind for kind in tree() if kind.retryable} == {
        errors.LockTimeout, errors.WriteLockLost, errors.LeaseHeld, errors.SearchUnavailable,
    }


def test_every_class_of_the_tree_is_drawn_in_the_module() -> None:
    assert errors.__doc__ is not None
    missing = [kind.__name__ for kind in tree() if kind.__name__ not in errors.__doc__]
    assert missing == []
