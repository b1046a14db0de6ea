"""What of a store is damaged, sorted into what can be built again and what cannot, and what would be done.

Invariant: the doctor's findings are the only vocabulary; nothing is judged a second time here. What the doctor does not
call derived is never touched by a repair.

Not for: the doctor's other findings (holders, WAL, file system): they are no damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.errors import CannotOpen, Corrupt
from maintenance.doctor.examine import NOT_CHECKED, Options, examine
from maintenance.doctor.findings import Finding, Severity, recover_command
from maintenance.output.text import plural
from maintenance.repair.report import Step

INDEX = frozenset({"index_damaged", "index_content_differs"})
SCHEMA = frozenset({"schema_entry_damaged", "schema_object_missing"})
LISTS = frozenset({"freelist_damaged", "pointer_map_damaged", "page_list_damaged"})
# The index of a native store lies in a file of its own, and its findings come from a look at that file.
NATIVE_INDEX = frozenset({"search_index_unusable"})
# Findings that say that something could not be looked at.
UNCHECKED = NOT_CHECKED | {"cannot_open"}
# Bytes of the file header that every commit changes: change counter, version-valid-for, version number.
_VOLATILE = ((24, 28), (92, 100))
HEADER_BYTES = 100


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The damage of one store."""

    # what can be built again from the rows
    derived: tuple[Finding, ...]
    # what cannot
    canonical: tuple[Finding, ...]
    # checks that could not be made
    unchecked: tuple[Finding, ...] = ()

    @property
    def objects(self) -> tuple[str, ...]:
        """Names of the objects that a repair would build again, each once."""
        return tuple(dict.fromkeys(finding.object for finding in self.derived))

    def steps(self) -> tuple[Step, ...]:
        """What would be done, in the order in which it is done."""
        found = [Step(kind=kind_of(finding), object=finding.object) for finding in self.derived]
        order = ("schema", "search index", "index", "rebuild")
        return tuple(sorted(dict.fromkeys(found), key=lambda step: order.index(step.kind)))


def kind_of(finding: Finding) -> str:
    """Which kind of step puts a derived finding right."""
    if finding.code in SCHEMA:
        return "schema"
    if finding.code in INDEX:
        return "index"
    return "rebuild" if finding.code in LISTS else "search index"


def diagnose(path: Path, home: Path, clock: Clock, *, named: Path | None = None, deep: bool = True) -> Diagnosis:
    """Look at `path` in every way; `named` is the store whose private copy it is, for what the findings say."""
    seen = examine(path, home, Options(deep=deep), clock=clock).findings
    found = [
        finding
        for finding in seen
        if finding.severity is Severity.DAMAGE or (finding.derived and finding.severity is Severity.WARNING)
    ]
    # An index that is built anew loses the text that it alone keeps of a message.
    older = [one for one in seen if one.code == "message_text_differs"]
    if older and any(kind_of(one) == "search index" for one in found):
        found += older
    if named is not None:
        found = [_renamed(finding, str(path), str(named)) for finding in found]
    return Diagnosis(
        derived=tuple(finding for finding in found if finding.derived),
        canonical=tuple(finding for finding in found if not finding.derived),
        unchecked=tuple(finding for finding in seen if finding.code in UNCHECKED),
    )


def require_checked(path: Path, diagnosis: Diagnosis, known: Diagnosis | None = None) -> None:
    """Raise `CannotOpen` when a check could not be made: a store is not called sound because nobody could look.

    `known`: what could not be checked before either.
    """
    before = {_check(finding) for finding in known.unchecked} if known is not None else set()
    left = [finding for finding in diagnosis.unchecked if _check(finding) not in before]
    if left:
        raise CannotOpen(
            f"{path} could not be checked in full, so it is not known to be sound. {left[0].sentence} It is as it was.",
            hint="Check the disk and its free space, then run the same command again.", path=path, errno=0,
        )


def _check(finding: Finding) -> tuple[str, object]:
    return finding.code, finding.facts.get("what")


def require_derived(path: Path, diagnosis: Diagnosis) -> None:
    """Raise `Corrupt` when rows themselves are hit: nothing is repaired then, because it could be all that is left."""
    if not diagnosis.canonical:
        return
    first = diagnosis.canonical[0]
    others = len(diagnosis.canonical) - 1
    more = f" ({plural(others, 'other finding')} of this kind)" if others else ""
    raise Corrupt(
        f"{path} has damage that a repair cannot put right: {first.sentence}{more} Nothing was changed.",
        hint=f"Run `{recover_command(path)}`: it reads the rows into a new file and never writes to this one.",
        path=path, search_index=False, objects=tuple(finding.object for finding in diagnosis.canonical),
    )


def fingerprint(copy: Path, page_size: int, findings: Iterable[Finding]) -> str:
    """What tells one damage from another: the damaged objects, and the bytes of their damaged pages.

    The bytes come from the raw private copy, which nobody has open; what every commit changes in the header is left
    out. Objects without a list of pages count by their code and what was counted of them.
    """
    digest = hashlib.blake2b(digest_size=16)
    with open(copy, "rb") as file:
        for finding in sorted(findings, key=lambda one: (one.code, one.object)):
            pages = _pages(finding.facts)
            digest.update(f"{finding.code}|{finding.object}|{len(pages) * page_size}|".encode())
            if not pages:
                digest.update(repr(_counted(finding.facts)).encode())
            for number in pages:
                file.seek((number - 1) * page_size)
                page = bytearray(file.read(page_size))
                if number == 1:
                    for start, end in _VOLATILE:
                        page[start:end] = bytes(end - start)
                digest.update(page)
    return digest.hexdigest()


def _pages(facts: Mapping[str, object]) -> list[int]:
    pages = facts.get("pages")
    return [number for number in pages if isinstance(number, int)] if isinstance(pages, Sequence) else []


def _counted(facts: Mapping[str, object]) -> list[tuple[str, object]]:
    kept = ("missing_rows", "stale_rows", "rows", "fault", "kind", "table", "sqlite_extended")
    return [(name, facts[name]) for name in kept if name in facts]


def _renamed(finding: Finding, copy: str, store: str) -> Finding:
    return replace(
        finding,
        object=finding.object.replace(copy, store),
        sentence=finding.sentence.replace(copy, store),
        next_command=finding.next_command.replace(copy, store),
    )
