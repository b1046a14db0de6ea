"""Rows that refer to rows which are gone, and pages that hold nothing.

Invariant: only reads; counts, never lists of content. Not for: deleting what dangles (`sessions prune`). Stopping at
the first violation was rejected: the table that is hit says which program left it.
"""

from __future__ import annotations

from collections import Counter

from hermes_state.engine import Reader
from hermes_state.errors import StateError
from maintenance.doctor.findings import Finding, Severity, command, is_bad_text, recover_command
from maintenance.output.text import human_bytes, plural
from maintenance.space.sizes import Sizes

# Free pages are worth a rewrite from this share and this size on.
FREE_SHARE = 0.25
FREE_BYTES = 16 << 20


def foreign_key_findings(reader: Reader) -> list[Finding]:
    """Rows whose foreign key names a row that does not exist, by table."""
    dangling: Counter[tuple[str, str]] = Counter()
    try:
        for table, _rowid, parent, _key in reader.iterate("PRAGMA foreign_key_check"):
            dangling[(str(table), str(parent))] += 1
    except StateError as error:
        if is_bad_text(error):
            raise  # the caller says so, as for every other check
        sentence = f"Foreign keys could not be checked: SQLite failed with code {error.sqlite_extended}."
        return [
            Finding(
                code="foreign_keys_not_checked",
                severity=Severity.WARNING,
                object=str(reader.path),
                sentence=sentence,
                facts={"sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended},
            )
        ]
    found = [
        Finding(
            code="foreign_key_violated",
            severity=Severity.WARNING,
            object=table,
            sentence=f"{plural(number, 'row')} of {table} {'refers' if number == 1 else 'refer'} to rows of {parent} "
            "that do not exist.",
            facts={"rows": number, "parent": parent},
            # Nobody sees messages without their session; there the sessions come back as placeholders.
            next_command=recover_command(reader.path) if (table, parent) == ("messages", "sessions") else "",
        )
        for (table, parent), number in sorted(dangling.items())
    ]
    if found:
        return found
    sentence = "Every foreign key names a row that exists."
    return [Finding(code="foreign_keys", severity=Severity.OK, object=str(reader.path), sentence=sentence)]


def space_finding(reader: Reader, sizes: Sizes) -> Finding:
    """How much of the file holds nothing."""
    words = (
        f"{plural(sizes.free_pages, 'page')} of {sizes.page_count:,} {'is' if sizes.free_pages == 1 else 'are'} free "
        f"({human_bytes(sizes.free_bytes)}, {sizes.free_share:.0%})"
    )
    pays = sizes.free_share >= FREE_SHARE and sizes.free_bytes >= FREE_BYTES
    return Finding(
        code="free_pages" if pays else "space",
        severity=Severity.INFO if pays else Severity.OK,
        object=str(reader.path),
        sentence=f"{words}; a rewrite would return them." if pays else f"{words}.",
        facts=sizes.document(),
        next_command=command("sessions optimize", reader.path) if pays else "",
    )
