"""The schema of a native store: `schema.sql` is its shape now, `migrations/*.sql` is how older files get there.

Another kind of file of this project has a `Layout` of its own, in the folder of whoever keeps it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_NAME = re.compile(r"(\d{4})_(pre|post)_[a-z0-9_]+\.sql")
_COMMENT = re.compile(r"--.*")
_TREE = re.compile(r"\b(?:CREATE TABLE|INDEX|UNIQUE|PRIMARY KEY)\b")


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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One kind of file that the engine opens."""

    # the mark in the file's header
    application_id: int
    # holds `schema.sql` and `migrations/`
    folder: Path

    @functools.cached_property
    def sql(self) -> str:
        """The statements that make an empty one."""
        return (self.folder / "schema.sql").read_text(encoding="utf-8")

    @functools.cached_property
    def most_pages(self) -> int:
        """At most about how many pages an empty one has.

        A tree of its own for each table and index; what has none of those that are counted here (a rowid that is the
        primary key, a table without one) makes up for the statements themselves: measured, 131 of 165.
        """
        return len(_TREE.findall(_COMMENT.sub("", self.sql)))

    @functools.cached_property
    def steps(self) -> tuple[Migration, ...]:
        """Every step that this release knows, in order. A file whose name does not follow the rule is an error."""
        found = []
        for path in sorted((self.folder / "migrations").glob("*.sql")):
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


HOST_APPLICATION_ID = 0x48534831  # "HSH1": the host's file (see `hermes_state.host`), told apart from a home's store
STATE = Layout(application_id=0x48535431, folder=Path(__file__).parent)  # "HST1": the store of a home


def schema_sql() -> str:
    """The statements that make an empty store of a home."""
    return STATE.sql


def known_migrations() -> tuple[Migration, ...]:
    """Every step of such a store that this release knows, in order."""
    return STATE.steps
