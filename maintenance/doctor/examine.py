"""All checks of a store, in the order in which their answers matter.

Invariant: nothing is written, and no check keeps another from running: what fails is a finding. Holders of a lost
generation come first, because everything else may look healthy beside them. The page verdict and the index verdicts
come from two connections, one without FTS5.

Not for: printing (`report`). Stopping at the first problem was rejected: a person then repairs one of three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.engine import NulRule, ReadStore, open_read
from hermes_state.errors import Corrupt, NotFound, StateError
from lockowners import LockOwnersError, LockReport, Scan, Watcher, holders
from maintenance.doctor import rows, surroundings
from maintenance.doctor.behind_backup import behind_findings
from maintenance.doctor.deep import deep_findings, index_content_findings
from maintenance.doctor.evidence import fresh_findings, with_evidence
from maintenance.doctor.findings import (
    NOT_UTF8,
    SKIPPED,
    Finding,
    Severity,
    exit_code,
    is_bad_text,
    next_command,
    recover_command,
    verdict,
)
from maintenance.doctor.identity import cut_finding, identity_findings, refused_finding
from maintenance.doctor.kept_waiting import with_holders
from maintenance.doctor.native import HOST_FILE, identity_of, native_findings
from maintenance.doctor.pages import page_findings
from maintenance.doctor.processes import census_finding, holder_findings, own_budget_finding, split_findings
from maintenance.doctor.schema_entries import schema_findings
from maintenance.doctor.search import search_findings
from maintenance.doctor.triggers import trigger_findings
from maintenance.doctor.unfinished import unfinished_findings, with_recovered, without_hopeless
from maintenance.doctor.waiting import waiting_findings
from maintenance.doctor.wal import wal_findings
from maintenance.doctor.wal_remains import remains_findings
from maintenance.output.progress import progress
from maintenance.output.text import human_bytes
from maintenance.space.sizes import ObjectSize, by_object, sizes

PROC = Path("/proc")
LARGE_BYTES = 1_000_000_000
DAMAGED = 65
# Findings that say that a check could not be made, and the result codes for pages that are not those of a search index.
NOT_CHECKED = frozenset({"not_checked", "foreign_keys_not_checked"})
# Findings that say which object that is not a search index is hit.
NAMED_DAMAGE = frozenset(
    {"index_damaged", "freelist_damaged", "pointer_map_damaged", "page_list_damaged", "schema_entry_damaged"}
)
CANONICAL_DAMAGE = frozenset({11, 523, 779})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run of the doctor does."""

    # Leave out what reads the whole file.
    quick: bool = False
    # Also what takes long: slow index checks, comparison on a private copy.
    deep: bool = False
    # Add up the pages of every table and index.
    sizes: bool = False


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Everything that one run found."""

    # The store.
    path: Path
    # All findings, in the order of the checks.
    findings: tuple[Finding, ...]
    # Bytes by table and index, largest first; empty when not asked for.
    objects: tuple[ObjectSize, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0, 3 or 65."""
        return exit_code(self.findings)

    @property
    def verdict(self) -> str:
        """One word: healthy, problems, damaged or unchecked."""
        return verdict(self.findings)

    @property
    def next_command(self) -> str:
        """The one command to run next, or ""."""
        return next_command(self.findings)


def examine(
    path: Path,
    home: Path,
    options: Options,
    *,
    clock: Clock,
    proc_root: Path = PROC,
    say: Callable[[str], None] = lambda _line: None,
) -> Examination:
    """Look at the store at `path` in every way. `say` gets a line before anything that takes long."""
    if not path.exists():
        raise NotFound(
            f"There is no store at {path}.", hint="Name the file with --db, or its folder with --home.", path=path
        )
    watcher = Watcher(path, proc_root=proc_root, now=clock.monotonic)
    found: list[Finding] = []
    who: list[Finding] = []
    scan: Scan | None = None
    try:
        scan = holders(path, proc_root=proc_root)
        watcher.look()
        found += split_findings(scan)
        who = [*holder_findings(scan, proc_root=proc_root, clock=clock), *census_finding(scan, proc_root=proc_root)]
    except LockOwnersError as problem:
        sentence = f"Holders could not be looked for: {problem.message}"
        who = [Finding(code="holders_unknown", severity=Severity.WARNING, object=str(path), sentence=sentence)]
    found += unfinished_findings(path)
    found += waiting_findings(path, clock=clock)
    found += identity_findings(path)
    found += own_budget_finding(path, proc_root=proc_root)
    mode: str | None = None
    objects: tuple[ObjectSize, ...] = ()
    try:
        with ExitStack() as stack:
            pages, refused = _open_for_pages(path, clock)
            stack.enter_context(pages)
            mode = pages.journal_mode
            found += _schema_findings(pages, refused)
            found += surroundings.journal_findings(pages, home)
            found += wal_findings(pages, lambda: _look(watcher, pages))
            found += remains_findings(pages, lambda: _look(watcher, pages))
            if options.quick:
                sentence = "Pages, foreign keys and search indexes were not checked (--quick)."
                found.append(Finding(code=SKIPPED, severity=Severity.INFO, object=str(path), sentence=sentence))
            inner, objects = _content_findings(path, pages, options, clock, say, whole_schema=refused is None)
            found += inner
            if refused is None and not any(finding.code == HOST_FILE for finding in found):
                found += _guarded("what the file once held", path, lambda: fresh_findings(pages, home))
                found += _guarded("the store against its backup", path, lambda: behind_findings(pages, clock))
    except StateError as problem:
        bad_text = is_bad_text(problem)
        found.append(_unchecked("the content", path, problem) if bad_text else refused_finding(path, problem))
    except UnicodeDecodeError as problem:
        found.append(_unchecked("the content", path, problem))
    found = keeping_older_text(with_met_damage(found, path), path)
    found = with_recovered(without_hopeless(with_evidence(found, path, home), path), path)
    found = with_holders(found, scan)
    found += who
    found.append(surroundings.file_system_finding(path, mode, proc_root=proc_root))
    found.append(surroundings.script_finding())
    return Examination(path=path, findings=tuple(found), objects=objects)


def _open_for_pages(path: Path, clock: Clock) -> tuple[ReadStore, Corrupt | None]:
    """A reader without search modules; when SQLite refuses the schema, one that shows what of it can be used.

    The second item is that refusal. Raises it when nothing of the schema can be shown.
    """
    try:
        return open_read(path, search_modules=False, clock=clock), None
    except Corrupt as problem:
        if problem.sqlite_code is None:
            raise
        refused = problem
    try:
        store = open_read(path, search_modules=False, tolerant=True, clock=clock)
    except StateError:
        raise refused from None
    try:
        if store.row("SELECT count(*) FROM sqlite_schema") == (0,):
            raise refused
        store.rows("PRAGMA table_list")
    except StateError:
        store.close()
        raise refused from None
    return store, refused


def _schema_findings(pages: ReadStore, refused: Corrupt | None) -> list[Finding]:
    """Why SQLite refused the schema: the file was cut, or entries of the schema are wrong."""
    if refused is None:
        return []
    cut = cut_finding(pages, refused)
    return [cut] if cut is not None else list(schema_findings(pages, refused))


def _content_findings(
    path: Path,
    pages: ReadStore,
    options: Options,
    clock: Clock,
    say: Callable[[str], None],
    *,
    whole_schema: bool,
) -> tuple[list[Finding], tuple[ObjectSize, ...]]:
    """What needs the tables: pages, indexes, foreign keys, space."""
    found: list[Finding] = []
    unreadable = False
    objects: tuple[ObjectSize, ...] = ()
    size = pages.page_count * pages.page_size

    def open_with(rule: NulRule) -> ReadStore:
        return open_read(path, nul_rule=rule, tolerant=not whole_schema, clock=clock)

    with open_with(NulRule.NATIVE) as modules, progress(None, "looking at the store") as bar:
        if not options.quick:
            if size >= LARGE_BYTES:
                say(f"Checking every page of {human_bytes(size)}; the WAL cannot be reset meanwhile.")
            bar.restart(None, "checking pages")
            found += page_findings(pages, modules, whole_schema=whole_schema)
            unreadable = any(finding.code == "table_damaged" and finding.object == "messages" for finding in found)
            if size >= LARGE_BYTES:
                say("Checking the search indexes.")
        found += _guarded("triggers", path, lambda: trigger_findings(modules))
        identity = identity_of(modules)
        if isinstance(identity, Finding):
            found.append(identity)
        elif identity is not None:
            found += native_findings(
                modules, identity, quick=options.quick, deep=options.deep, clock=clock, guarded=_guarded, bar=bar
            )
        else:
            bar.restart(None, "checking search indexes")
            searched = _guarded(
                "search indexes",
                path,
                lambda: search_findings(modules, open_with, quick=options.quick, deep=options.deep),
            )
            found += [_not_comparable(finding) if unreadable else finding for finding in searched]
        if options.deep:
            bar.restart(None, "comparing indexes with rows")
            found += _guarded("indexes against rows", path, lambda: index_content_findings(pages))
        if options.deep and identity is None:
            bar.restart(None, "comparing search indexes on a copy")
            found += _guarded("search indexes on a copy", path, lambda: deep_findings(modules))
        if not options.quick:
            bar.restart(None, "checking foreign keys")
            found += _guarded("foreign keys", path, lambda: rows.foreign_key_findings(modules))
        found += _guarded("free pages", path, lambda: [rows.space_finding(modules, sizes(modules))])
        if options.sizes:
            if size >= LARGE_BYTES:
                say("Adding up the pages of every table and index.")
            bar.restart(None, "adding up sizes")
            try:
                objects = by_object(modules)
            except (StateError, UnicodeDecodeError) as problem:
                found.append(_unchecked("sizes", path, problem))
        found.append(surroundings.sqlite_finding(modules))
    return found, objects


def _guarded(what: str, path: Path, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """A check that fails is a finding, and the next one still runs."""
    try:
        return list(check())
    except (StateError, UnicodeDecodeError) as problem:
        return [_unchecked(what, path, problem)]


def _not_comparable(finding: Finding) -> Finding:
    """Rows of `messages` that cannot be read are not gone: an index that still has their text must not be rebuilt."""
    if finding.code != "search_rows_differ":
        return finding
    sentence = (
        f"The search index {finding.object} cannot be compared with messages while that table is damaged; it may hold "
        "text of rows that cannot be read. Do not rebuild it."
    )
    return Finding(
        code="search_rows_not_compared",
        severity=Severity.WARNING,
        object=finding.object,
        sentence=sentence,
        facts=finding.facts,
    )


def _unchecked(what: str, path: Path, problem: StateError | UnicodeDecodeError) -> Finding:
    """A check that could not be made; one that met damage is damage, whatever the page check says of the rest."""
    if is_bad_text(problem) or isinstance(problem, UnicodeDecodeError):
        return Finding(
            code="schema_damaged",
            severity=Severity.DAMAGE,
            object="sqlite_schema",
            sentence=f"The check of {what} could not be made: {NOT_UTF8}.",
            facts={"what": what},
            next_command=recover_command(path),
        )
    return Finding(
        code="not_checked",
        severity=Severity.WARNING,
        object=str(path),
        sentence=f"The check of {what} could not be made. {problem.message}",
        facts={"what": what, "sqlite_code": problem.sqlite_code, "sqlite_extended": problem.sqlite_extended},
    )


def with_met_damage(found: list[Finding], path: Path) -> list[Finding]:
    """The same findings; a check that damage stopped is damage itself where nothing else says what is hit."""
    if exit_code(found) == DAMAGED or any(finding.code in NAMED_DAMAGE for finding in found):
        return found
    return [
        replace(finding, severity=Severity.DAMAGE, next_command=recover_command(path))
        if finding.code in NOT_CHECKED and finding.facts.get("sqlite_extended") in CANONICAL_DAMAGE
        else finding
        for finding in found
    ]


def keeping_older_text(found: list[Finding], path: Path) -> list[Finding]:
    """The same findings; when a damaged index alone keeps the older text of messages, repair is not what helps."""
    older = any(finding.code == "message_text_differs" for finding in found)
    if not older or not any(finding.code.startswith("search_") and finding.derived for finding in found):
        return found
    return [replace(one, next_command=recover_command(path)) if one.derived else one for one in found]


def _look(watcher: Watcher, store: ReadStore) -> LockReport:
    return watcher.look(descriptors=store.descriptors)
