"""`inspect`: what a recovery would have to do with, without recovering anything.

Invariant: the source is copied raw first, like for a recovery, and only the copy is opened; nothing is left behind.
Findings use the doctor's codes. Not for: counting what the carver would find; that is the recovery itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_state.engine import open_read
from hermes_state.engine.salvage import Salvage
from hermes_state.errors import StateError
from maintenance.doctor.findings import Finding, Severity, recover_command
from maintenance.doctor.pages import page_findings
from maintenance.quoting import literal, quoted
from maintenance.recovery.carving import open_image, unread_commits
from maintenance.recovery.copying import NAMES, copy_source
from maintenance.recovery.header import mend_header
from maintenance.recovery.ladder import said_ok
from maintenance.recovery.records import Cancel, Findings, Progress, Source, TableFacts
from maintenance.recovery.run import default_output, space_needed
from maintenance.recovery.schema import Schema
from maintenance.recovery.source_schema import find_schema, try_open
from maintenance.recovery.sources import find_source


def inspect(path: Path | str, *, progress: Progress | None = None, cancel: Cancel | None = None) -> Findings:
    """Look at a damaged store, a bare file, a folder of quarantined files, or a capture. Changes nothing.

    Raises `NotFound`, `NotAStore` (nothing in it can be recovered), `InsufficientSpace` (for a copy of it),
    `LockTimeout` (it is being written to).
    """
    source = find_source(Path(path))
    needed, free = space_needed(source, default_output(source))
    with _folder(source) as folder:
        files = copy_source(source, folder, progress=progress, cancel=cancel)
        copy, wal = folder / NAMES["main"], folder / NAMES["wal"]
        mended = mend_header(copy, wal)
        found = list(_of_bytes(source, copy, wal, mended=mended))
        schema = find_schema(copy, wal, name=source.name)
        tables = _tables(copy, schema)
        if schema.origin == "file":
            found += _of_pages(source, copy)
    return Findings(
        source=source, files=files, dialect="native" if schema.native else "foreign", schema=schema.origin,
        tables=tables, findings=tuple(found), needed_bytes=needed, free_bytes=free,
    )


@contextmanager
def _folder(source: Source) -> Iterator[Path]:
    """A private folder, beside the source where that can be written."""
    beside = source.name.parent
    folder = Path(tempfile.mkdtemp(
        prefix=".hermes-state-inspecting-", dir=beside if os.access(beside, os.W_OK) else None
    ))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _of_bytes(source: Source, copy: Path, wal: Path, *, mended: bool) -> Iterator[Finding]:
    if mended:
        yield _damage(
            "zeroed_header", source, source.name,
            "The first 100 bytes of the file are no header of SQLite; the pages behind them are.",
        )
    with open_image(copy, wal) as image:
        unread = unread_commits(image)
        whole = image.wal.header_whole
    if unread:
        code = "wal_end_damaged" if whole else "wal_header_damaged"
        yield _damage(
            code, source, source.wal or source.name,
            f"{len(unread)} commits in the WAL are not read by SQLite, and their frames can be.",
            commits=len(unread),
        )


def _of_pages(source: Source, copy: Path) -> list[Finding]:
    """What the doctor says about the pages of the copy, about the source."""
    try:
        with open_read(copy, search_modules=False) as pages, open_read(copy) as modules:
            found = page_findings(pages, modules)
    except StateError as error:
        if error.retryable:
            raise
        return [_damage("schema_damaged", source, "sqlite_schema", "SQLite refuses to read the file's schema.",
                        why=str(error.__cause__ or error))]
    return [
        Finding(
            code=one.code, severity=one.severity, object=one.object.replace(str(copy), str(source.name)),
            sentence=one.sentence, facts=one.facts, derived=one.derived,
            next_command=recover_command(source.given) if one.severity is Severity.DAMAGE else "",
        )
        for one in found
    ]


def _tables(copy: Path, schema: Schema) -> tuple[TableFacts, ...]:
    salvage = try_open(copy) if schema.origin == "file" else None
    if salvage is None:
        return tuple(TableFacts(name=name, state="unreachable", rows=None) for name in schema.tables)
    with salvage:
        sound = said_ok(salvage, "PRAGMA quick_check(1)")
        return tuple(_table(salvage, name, sound=sound) for name in schema.tables)


def _table(salvage: Salvage, name: str, *, sound: bool) -> TableFacts:
    whole = sound or said_ok(salvage, f"PRAGMA quick_check({literal(name)})")
    try:
        rows = salvage.rows(f"SELECT count(*) FROM {quoted(name)} NOT INDEXED")
    except StateError as error:
        if error.retryable:
            raise
        reached = 0
        try:
            for _row in salvage.iterate(f"SELECT 1 FROM {quoted(name)} NOT INDEXED"):
                reached += 1
        except StateError as stopped:
            if stopped.retryable:
                raise
        return TableFacts(name=name, state="damaged" if reached else "unreachable", rows=reached or None)
    return TableFacts(name=name, state="whole" if whole else "damaged", rows=int(rows[0][0]))


def _damage(code: str, source: Source, of: object, sentence: str, **facts: object) -> Finding:
    return Finding(
        code=code, severity=Severity.DAMAGE, object=str(of), sentence=sentence, facts=facts,
        next_command=recover_command(source.given),
    )
