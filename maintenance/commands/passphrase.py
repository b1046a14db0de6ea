"""Where the passphrase of an encrypted backup comes from.

Invariant: never from the command line, which other users can read, and never echoed: from a file, from the environment,
or from a question on the terminal, in this order. Not for: judging how good it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes_state.errors import InvalidInput, Refused

VARIABLE = "HERMES_BACKUP_PASSPHRASE"


def passphrase_for(file: str | None, *, twice: bool) -> str:
    """The passphrase. `twice`: asked again when it is typed, for one that will be needed later."""
    if file is not None:
        return _from_file(Path(file).expanduser().absolute())
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        raise Refused(
            "The backup needs a passphrase, and there is no terminal to ask on.",
            hint=f"Give it with --passphrase-file, or in the environment as {VARIABLE}.",
        )
    from getpass import getpass

    said = getpass("Passphrase: ")
    if twice and getpass("The same again: ") != said:
        raise InvalidInput("The two passphrases differ. Nothing was made.")
    return _not_empty(said, "The passphrase")


def _from_file(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"The passphrase file {path} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint="Name a file that can be read, whose first line is the passphrase.", path=path,
        ) from error
    return _not_empty(lines[0] if lines else "", f"The first line of {path}")


def _not_empty(said: str, what: str) -> str:
    if not said:
        raise InvalidInput(f"{what} is empty, so it would protect nothing.")
    return said
