"""SQLite's errors become ours by result code, never by text."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.engine.translate import translate, translated

PATH = Path("/home/u/.hermes/state.db")


def raised(extended: int, text: str = "any text at all") -> apsw.Error:
    error = apsw.exception_for(extended)
    error.args = (text,)
    return error


@pytest.mark.parametrize(
    ("extended", "kind"),
    [
        (apsw.SQLITE_CORRUPT, errors.Corrupt), (267, errors.Corrupt), (apsw.SQLITE_NOTADB, errors.NotAStore),
        (apsw.SQLITE_FULL, errors.DiskFull), (apsw.SQLITE_IOERR_SHORT_READ, errors.IOFailure),
        (apsw.SQLITE_PROTOCOL, errors.IOFailure), (apsw.SQLITE_CANTOPEN, errors.CannotOpen),
        (apsw.SQLITE_READONLY, errors.ReadOnlyStore), (apsw.SQLITE_READONLY_DBMOVED, errors.GenerationLost),
        (apsw.SQLITE_READONLY_CANTINIT, errors.CannotOpen), (apsw.SQLITE_PERM, errors.ReadOnlyStore),
        (apsw.SQLITE_BUSY, errors.LockTimeout), (apsw.SQLITE_BUSY_SNAPSHOT, errors.LockTimeout),
        (apsw.SQLITE_CONSTRAINT_UNIQUE, errors.StatementFailed), (apsw.SQLITE_ERROR, errors.StatementFailed),
    ],
)
def test_class_follows_from_the_code_and_both_codes_are_kept(extended: int, kind: type[errors.StateError]) -> None:
    translation = translate(raised(extended), PATH, "reading")
    assert type(translation) is kind
    assert (translation.sqlite_code, translation.sqlite_extended) == (extended & 0xFF, extended)
    assert translation.path == PATH


def test_text_that_speaks_of_damage_does_not_make_damage() -> None:
    error = raised(apsw.SQLITE_CONSTRAINT_UNIQUE, "database disk image is malformed")
    assert type(translate(error, PATH, "writing")) is errors.StatementFailed


def test_damage_of_a_search_index_is_told_from_damage_of_the_file() -> None:
    index, file = (translate(raised(code), PATH, "reading") for code in (267, apsw.SQLITE_CORRUPT))
    assert (index.search_index, file.search_index) == (True, False)
    assert str(index) == (
        f"A search index of {PATH} is damaged: it failed while reading. "
        "SQLite said: any text at all (code 11, extended 267)."
    )
    assert str(file).startswith(f"The database file {PATH} is damaged: ")


def test_io_error_names_the_errno() -> None:
    failure = translate(raised(apsw.SQLITE_IOERR_WRITE), PATH, "writing", system_errno=24)
    assert str(failure) == (
        f"The operating system failed writing {PATH} (EMFILE: Too many open files). "
        "SQLite said: any text at all (code 10, extended 778)."
    )
    assert failure.errno == 24


def test_cause_is_kept() -> None:
    with pytest.raises(errors.Corrupt) as refused, translated(PATH, "reading"):
        raise raised(apsw.SQLITE_CORRUPT)
    assert isinstance(refused.value.__cause__, apsw.CorruptError)


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), translated(PATH, "reading"):
        raise KeyError("not SQLite's")
