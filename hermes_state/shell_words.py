"""Paths as words of a command that a person is told to run.

Invariant: whatever is printed behind `hermes-state …` can be pasted into a shell as it stands: a path with a space, a
quote or a line break is one word. A path that needs no quotes stays as it is. Not for: running commands; those take
lists. Quoting at each place by hand was rejected: most places forgot it. So was loading `shlex` when it is needed:
hints are made where no file can be opened any more.
"""

from __future__ import annotations

import os
import re

_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def shell_word(path: str | os.PathLike[str]) -> str:
    """`path` as one word of a POSIX shell's command line, as `shlex.quote` gives it."""
    word = os.fspath(path)
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "'\"'\"'") + "'"
