"""The schema of a native store: `schema.sql` is its shape now, `migrations/*.sql` is how older files get there."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"(\d{4})_(pre|post)_[a-z0-9_]+\.sql")


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One step."""

    # 1, 2, ...; never used twice, not even for a withdrawn step
    number: int
    # file name without ".sql"
    name: str
    # "pre" is safe while older code still runs and small enough for an open; "post" is applied by a command
    phase: Literal["pre", "post"]
    sql: str
    # of the file, in hexadecimal
    sha256: str


@functools.cache
def schema_sql() -> str:
    """The statements that make an empty store."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


@functools.cache
def known_migrations() -> tuple[Migration, ...]:
    """Every step that this release knows, in order. A file whose name does not follow the rule is an error."""
    found = []
    for path in sorted((_FOLDER / "migrations").glob("*.sql")):
        named = _NAME.fullmatch(path.name)
        if named is None:
            raise ValueError(f"{path.name} is not the name of a migration (NNNN_pre_verb_object.sql)")
        text = path.read_bytes()
        phase: Literal["pre", "post"] = "pre" if named[2] == "pre" else "post"
        found.append(Migration(
            number=int(named[1]), name=path.stem, phase=phase, sql=text.decode(),
            sha256=hashlib.sha256(text).hexdigest(),
        ))
    return tuple(found)
