"""Errors as people and programs read them: `Error:` / `Why:` / `Try:`, or one JSON object, on stderr.

Invariant: what is printed comes from the error itself: its message, its hint, its facts; an error of the tree always
has a code and an exit status. An error that is not of the tree is a defect of this program and keeps its traceback.

Not for: deciding what to do about an error. Classifying by message text was rejected; see `hermes_state.errors`.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress
from typing import Any, TextIO

from hermes_state.errors import StateError
from maintenance.output.text import safe_text

USAGE_CODE = "usage"


def print_problem(error: BaseException, *, as_json: bool, out: TextIO | None = None) -> int:
    """Write `error` to stderr and give the exit status it stands for."""
    record = describe(error)
    if as_json:
        from maintenance.output.documents import plain

        return print_record(plain(record), as_json=True, out=out)
    return print_record(record, as_json=False, out=out)


def describe(error: BaseException) -> dict[str, Any]:
    """The parts of an error, as the JSON object shows them."""
    if isinstance(error, StateError):
        message, _, rest = error.message.partition("\n")
        return {
            "code": error.code, "message": message, "why": rest or _cause(error) or _meaning(type(error)),
            "try": error.hint, "retryable": error.retryable, "exit_code": error.exit_code,
            "sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended,
            "facts": {name: _sayable(value) for name, value in error.facts.items()},
        }
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{error.filename}: "
        return _outside("os_error", f"{name}{error.strerror or error}.", "The operating system refused it.")
    text = f"{type(error).__name__}: {error}"
    record = _outside("defect", text, "This is a defect of hermes-state, not of the store.")
    record["try"] = "Report it with the lines above; `hermes-state doctor` says whether the store is sound."
    record["traceback"] = "".join(traceback.format_exception(error))
    return record


def usage_problem(message: str, advice: str) -> dict[str, Any]:
    """The parts of a wrong call of the program."""
    record = _outside(USAGE_CODE, message, "The command was called in a way it does not know.")
    return record | {"try": advice, "exit_code": 2}


def lost_output(error: OSError, *, work_done: bool) -> dict[str, Any]:
    """The parts of a failure to write to standard output, apart from whether the work was done."""
    reason = error.strerror or type(error).__name__
    what = "The work was done; its report" if work_done else "The result"
    record = _outside("os_error", f"{what} could not be written: {reason}.", "Standard output did not take it.")
    repeat = "Run it again with another standard output"
    return record | {"try": f"{repeat}; what is done already is not done twice." if work_done else f"{repeat}."}


def print_record(record: dict[str, Any], *, as_json: bool, out: TextIO | None = None) -> int:
    """Write the parts of an error, and give the exit status it stands for."""
    stream = out or sys.stderr
    # A stderr that takes nothing leaves the exit status as the only word, so that must stay right.
    with suppress(OSError):
        if as_json:
            stream.write(json.dumps({"error": record}, default=repr) + "\n")
        else:
            stream.write(record.get("traceback", ""))
            for heading, key in (("Error", "message"), ("Why", "why"), ("Try", "try")):
                _write(stream, heading, record[key])
    return int(record["exit_code"])


def _outside(code: str, message: str, why: str) -> dict[str, Any]:
    return {
        "code": code, "message": message, "why": why, "try": "", "retryable": False, "exit_code": 1,
        "sqlite_code": None, "sqlite_extended": None, "facts": {},
    }


def _write(stream: TextIO, heading: str, text: str) -> None:
    for number, line in enumerate(text.splitlines()):
        lead = f"{heading}: " if number == 0 else " " * (len(heading) + 2)
        stream.write(lead + safe_text(line) + "\n")


def _cause(error: StateError) -> str:
    cause = error.__cause__
    if cause is None or error.sqlite_extended is None:
        return ""
    return f"SQLite said: {cause} (result code {error.sqlite_extended})."


def _meaning(kind: type[StateError]) -> str:
    """The first sentence of the class's docstring: it says whose fault such an error is."""
    text = " ".join((kind.__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".") + "." if text else ""


def _sayable(value: Any) -> Any:
    from maintenance.output.documents import plain

    try:
        return plain(value)
    except TypeError:
        return repr(value)
