"""Ways to damage a private copy of a store by hand, for the tests of the doctor.

Invariant: the file is closed while its bytes are changed. Not for: live stores; and kinds of damage that
`hermes_state.testing.corruption` has by name.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes_state.clock import SYSTEM
from hermes_state.engine import NulRule
from hermes_state.engine.tokenizers import register
from hermes_state.testing.pages import DatabaseFile
from maintenance.doctor.examine import Examination, Options, examine
from maintenance.doctor.findings import Finding, Severity

PAGE = 4096


def opened(path: Path, rule: NulRule = NulRule.CUT) -> apsw.Connection:
    """A writing connection that leaves its WAL as it is, with triggers off for what the tests change by hand."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    register(connection, rule)
    connection.wal_autocheckpoint(0)
    return connection


def change(path: Path, *statements: str, rule: NulRule = NulRule.CUT, triggers: bool = True) -> None:
    """Run statements and copy everything into the main file."""
    connection = opened(path, rule)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(triggers))
        for statement in statements:
            connection.execute(statement).fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def leaves(path: Path, tree: str) -> list[int]:
    """Leaf pages of a table or index, in order."""
    change(path)
    with DatabaseFile(path) as file:
        return list(file.tree(file.object(tree).root).leaves)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Put bytes over bytes of a closed file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def overwrite_page(path: Path, page: int, data: bytes = b"\0" * PAGE, *, at: int = 0) -> None:
    """Put bytes over a page."""
    with DatabaseFile(path, page_size=PAGE) as file:
        file.put(page, data, at=at)


def examined(path: Path, **options: bool) -> Examination:
    """What the doctor says about `path`."""
    return examine(path, path.parent, Options(**options), clock=SYSTEM)


def worse_than(examination: Examination, severity: Severity) -> list[Finding]:
    """The findings above a severity."""
    return [finding for finding in examination.findings if finding.severity > severity]


def only(examination: Examination, code: str) -> Finding:
    """The one finding with this code."""
    found = [finding for finding in examination.findings if finding.code == code]
    assert len(found) == 1, [finding.code for finding in examination.findings]
    return found[0]
