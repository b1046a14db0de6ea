"""The index verdicts: does each search index agree with its text, and does it hold the rows that it should.

Invariant: an index is damaged only when it fails under both NUL rules; one that is right under the rule it was built
with is right. Four looks, because each misses what the others see: SQLite's own check of the index, the set of rows,
the text that the index keeps against the text of the messages, and searches for words that must be found. Damage here
never says anything about messages.

Not for: rebuilding. Classifying by message text was rejected: the same words come with SQLITE_CORRUPT for the store
and with SQLITE_CORRUPT_VTAB or SQLITE_CONSTRAINT for an index; the codes are kept as facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from hermes_state.engine import NulRule, Reader, ReadStore
from hermes_state.errors import StateError
from maintenance.dialects.base import SearchIndex
from maintenance.doctor.findings import Finding, Severity, recover_command, repair_command
from maintenance.doctor.fulltext import fulltext_indexes, gate_of, is_of_messages, row_set, text_source
from maintenance.doctor.lookups import missed_words
from maintenance.doctor.nul_rule import NO_EVIDENCE, Evidence, evidence_of, has_nul, is_trigram
from maintenance.output.text import human_bytes, plural
from maintenance.quoting import literal, quoted

# Under the CUT rule text passes through Python: about 9 MB a second (measured). Above this only with --deep.
CUT_CHECK_BYTES = 200_000_000

WORDS = {
    NulRule.NATIVE: "reads past NUL bytes, as SQLite 3.54 builds it",
    NulRule.CUT: "stops at the first NUL of a text, as SQLite 3.40 builds it",
}

# What the triggers of the inline layout put into an index.
INDEXED_TEXT = "COALESCE(m.content, '') || ' ' || COALESCE(m.tool_name, '') || ' ' || COALESCE(m.tool_calls, '')"

OpenWith = Callable[[NulRule], AbstractContextManager[ReadStore]]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What SQLite's check of one index answered under one rule."""

    # Whether it was "ok".
    ok: bool
    # What it said otherwise.
    said: str = ""
    # Result codes when it raised.
    sqlite_code: int | None = None
    sqlite_extended: int | None = None


def search_findings(reader: ReadStore, open_with: OpenWith, *, quick: bool, deep: bool) -> list[Finding]:
    """Judge every search index. `reader` is open under the NATIVE rule; `open_with` gives one under another.

    What is compared with each other is read in one snapshot: a writer may be at work.
    """
    indexes = fulltext_indexes(reader)
    if not indexes:
        sentence = "The file has no search index."
        return [Finding(code="no_search_index", severity=Severity.INFO, object=str(reader.path), sentence=sentence)]
    found = []
    for index in indexes:
        found.extend(_trigger_findings(reader, index))
        if quick:
            found.append(_undecided(index, "was not checked (--quick)", code="search_index_skipped"))
            continue
        with reader.snapshot():
            evidence = evidence_of(reader, index) if is_trigram(index) else NO_EVIDENCE
        judged = _index_finding(reader, index, evidence, open_with, deep=deep)
        found.append(judged)
        with reader.snapshot():
            found.extend(_row_findings(reader, index))
            if not judged.derived:
                found.extend(_lookup_findings(reader, index))
    if not quick:
        with reader.snapshot():
            found.extend(_text_findings(reader, indexes))
    return found


def check_index(reader: Reader, name: str) -> Answer:
    """SQLite's check of one index against the text it keeps or names."""
    try:
        said = [str(row[0]) for row in reader.rows(f"PRAGMA quick_check({literal(name)})")]
    except StateError as error:
        if error.retryable:
            raise  # a lock that was not obtained says nothing about the index
        return Answer(
            ok=False, said=error.message, sqlite_code=error.sqlite_code, sqlite_extended=error.sqlite_extended
        )
    return Answer(ok=said == ["ok"], said="" if said == ["ok"] else "; ".join(said))


def _index_finding(
    reader: Reader, index: SearchIndex, evidence: Evidence, open_with: OpenWith, *, deep: bool
) -> Finding:
    if evidence.mixed:
        return _damaged(
            index,
            f"The search index {index.name} was written under both NUL rules: {plural(evidence.cut, 'row')} of those "
            f"looked at {'stops' if evidence.cut == 1 else 'stop'} at the first NUL, "
            f"{evidence.past_nul:,} {'does' if evidence.past_nul == 1 else 'do'} not.",
            reader,
            {"rows_cut": evidence.cut, "rows_past_nul": evidence.past_nul},
            code="search_index_mixed_rules",
        )
    answers: dict[NulRule, Answer] = {}
    for rule in (evidence.rule, *(rule for rule in NulRule if rule is not evidence.rule)):
        # Rows with a NUL may tell nothing (the same words before and behind it): then either rule may be the right one.
        if answers and not (evidence.any or (is_trigram(index) and has_nul(reader, index))):
            break
        if rule is NulRule.CUT and not deep and (size := _text_bytes(reader, index)) > CUT_CHECK_BYTES:
            why = f"was not decided: its {human_bytes(size)} of text take a slow check, which --deep makes"
            return _undecided(index, why, code="search_index_undecided")
        answers[rule] = _check_under(rule, reader, index, open_with)
        if answers[rule].ok:
            return _healthy(index, rule, evidence)
    rules = list(answers)
    worst = answers[rules[0]]
    facts = {
        "rule": rules[0].value,
        "rules_tried": [rule.value for rule in rules],
        "said": worst.said,
        "sqlite_code": worst.sqlite_code,
        "sqlite_extended": worst.sqlite_extended,
    }
    tried = "under both NUL rules" if len(rules) == 2 else "with its text"
    sentence = f"The search index {index.name} does not agree {tried}; no conversation is affected."
    return _damaged(index, sentence, reader, facts)


def _check_under(rule: NulRule, reader: Reader, index: SearchIndex, open_with: OpenWith) -> Answer:
    if rule is NulRule.NATIVE:
        return check_index(reader, index.name)
    with open_with(rule) as other:
        return check_index(other, index.name)


def _healthy(index: SearchIndex, rule: NulRule, evidence: Evidence) -> Finding:
    why = f" It {WORDS[rule]}." if evidence.any else ""
    scope = "agrees with its text" if index.layout == "inline" else "is whole; --deep compares it with the messages"
    return Finding(
        code="search_index",
        severity=Severity.OK,
        object=index.name,
        sentence=f"The search index {index.name} {scope}.{why}",
        facts={
            "layout": index.layout,
            "tokenizer": index.tokenizer,
            "rule": rule.value if evidence.any else None,
            "rows_with_nul_looked_at": evidence.cut + evidence.past_nul,
        },
    )


def _damaged(
    index: SearchIndex,
    sentence: str,
    reader: Reader,
    facts: Mapping[str, object],
    *,
    code: str = "search_index_damaged",
) -> Finding:
    return Finding(
        code=code,
        severity=Severity.DAMAGE,
        object=index.name,
        sentence=sentence,
        facts={"layout": index.layout, **facts},
        next_command=repair_command(reader.path),
        derived=True,
    )


def _undecided(index: SearchIndex, why: str, *, code: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.INFO,
        object=index.name,
        sentence=f"The search index {index.name} {why}.",
        facts={"layout": index.layout},
    )


def _lookup_findings(reader: Reader, index: SearchIndex) -> list[Finding]:
    """Whether the index finds some words of its own text."""
    try:
        looked_up, missed = missed_words(reader, index)
    except StateError as error:
        facts = {"sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended}
        return [_damaged(index, f"A search in {index.name} fails.", reader, facts, code="search_fails")]
    if not missed:
        return []
    sentence = (
        f"The search index {index.name} does not find {plural(len(missed), 'message')} by words of "
        f"{'its' if len(missed) == 1 else 'their'} text, although its own check is ok."
    )
    looked = {"words_looked_up": looked_up, "ids": missed}
    return [_damaged(index, sentence, reader, looked, code="search_misses")]


def _row_findings(reader: Reader, index: SearchIndex) -> list[Finding]:
    """Messages that the index lacks, and entries for messages that are gone."""
    try:
        rows = row_set(reader, index)
    except StateError as error:
        return [_uncompared(index, error)]
    if rows is None:
        sentence = f"The search index {index.name} keeps no list of its rows, so they were not compared."
        return [Finding(code="search_rows_not_compared", severity=Severity.INFO, object=index.name, sentence=sentence)]
    missing, stale = rows
    gate = gate_of(reader, index)
    if gate is not None:
        sentence = (
            f"The search index {index.name} is still being filled: done up to message {gate.progress:,} of "
            f"{gate.high_water:,}."
        )
        facts = {"progress": gate.progress, "high_water": gate.high_water}
        backfill = Finding(
            code="search_backfill", severity=Severity.INFO, object=index.name, sentence=sentence, facts=facts
        )
        found = [backfill]
    else:
        found = []
    if missing or stale:
        parts = []
        if missing:
            parts.append(f"lacks {plural(missing, 'message')}")
        if stale:
            parts.append(f"still holds {plural(stale, 'message')} that {'is' if stale == 1 else 'are'} gone")
        sentence = f"The search index {index.name} {' and '.join(parts)}; searches miss or show them wrongly."
        found.append(
            _damaged(index, sentence, reader, {"missing_rows": missing, "stale_rows": stale}, code="search_rows_differ")
        )
    return found


def _differing(reader: Reader, index: SearchIndex) -> frozenset[int] | None:
    """Messages for which an inline index keeps another text; None when it keeps no text of that form."""
    if index.layout != "inline" or len(index.columns) != 1 or not is_of_messages(index):
        return None
    copy = quoted(index.name + "_content")
    rows = reader.rows(
        f"SELECT c.id FROM {copy} AS c JOIN messages AS m ON m.id = c.id WHERE c.c0 IS NOT {INDEXED_TEXT} LIMIT 100000"
    )
    return frozenset(int(row[0]) for row in rows)


def text_differs(reader: Reader, index: SearchIndex) -> bool:
    """Whether an inline index keeps another text than the messages have."""
    return bool(_differing(reader, index))


def _text_findings(reader: Reader, indexes: Sequence[SearchIndex]) -> list[Finding]:
    """An inline index is checked against its own copy of the text, so the copy is compared with the messages as well.

    When every index keeps the same other text, it is the message that changed and not the indexes.
    """
    try:
        differing = {index.name: ids for index in indexes if (ids := _differing(reader, index))}
        shared = frozenset.intersection(*differing.values()) if len(differing) > 1 else frozenset()
        changed = frozenset(key for key in shared if _copies_agree(reader, list(differing), key))
    except StateError:
        return []  # a damaged table: the page verdict and the comparison of rows have said so
    found = []
    if changed:
        some = ", ".join(map(str, sorted(changed)[:5]))
        sentence = (
            f"{plural(len(changed), 'message')} ({'id' if len(changed) == 1 else 'ids'} {some}) "
            f"{'has' if len(changed) == 1 else 'have'} another text than all search indexes keep: changed while the "
            "triggers were off, or overwritten by damage. The indexes hold the older text."
        )
        found.append(
            Finding(
                code="message_text_differs",
                severity=Severity.WARNING,
                object="messages",
                sentence=sentence,
                facts={"rows": len(changed), "ids": sorted(changed)[:100]},
                next_command=recover_command(reader.path),
            )
        )
    for index in indexes:
        number = len(differing.get(index.name, frozenset()) - changed)
        if number:
            sentence = (
                f"The search index {index.name} keeps another text than the messages for {plural(number, 'row')}; "
                "its own check cannot see that."
            )
            found.append(_damaged(index, sentence, reader, {"rows": number}, code="search_text_differs"))
    return found


def _copies_agree(reader: Reader, names: Sequence[str], key: int) -> bool:
    copies = [quoted(name + "_content") for name in names]
    texts = [reader.row(f"SELECT CAST(c0 AS BLOB) FROM {copy} WHERE id = ?", (key,)) for copy in copies]
    return texts[0] is not None and all(text == texts[0] for text in texts)


def _trigger_findings(reader: Reader, index: SearchIndex) -> list[Finding]:
    """Triggers that keep the index up to date."""
    if not is_of_messages(index):
        return []
    missing = [trigger for trigger, state in index.triggers.items() if state == "missing"]
    idle = [trigger for trigger, state in index.triggers.items() if state == "noop"]
    found = []
    if missing:
        sentence = (
            f"The search index {index.name} lacks {plural(len(missing), 'trigger')} ({', '.join(missing)}): new "
            "messages are not indexed, and hermes-agent 0.19 would rebuild the index at its next start."
        )
        found.append(
            Finding(
                code="search_triggers_missing",
                severity=Severity.WARNING,
                object=index.name,
                sentence=sentence,
                facts={"missing": missing},
            )
        )
    if idle:
        sentence = (
            f"The search index {index.name} is switched off: its triggers do nothing, so new messages are not in it."
        )
        found.append(
            Finding(
                code="search_index_off",
                severity=Severity.INFO,
                object=index.name,
                sentence=sentence,
                facts={"idle": idle},
            )
        )
    return found


def _uncompared(index: SearchIndex, error: StateError) -> Finding:
    return Finding(
        code="search_rows_not_compared",
        severity=Severity.WARNING,
        object=index.name,
        sentence=f"The rows of the search index {index.name} could not be compared: SQLite failed with code "
        f"{error.sqlite_extended}.",
        facts={"sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended},
    )


def _text_bytes(reader: Reader, index: SearchIndex) -> int:
    """Bytes of the indexed text, an upper bound where that is cheaper."""
    row = reader.row("SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)")
    whole = int(row[0]) if row else 0
    source = text_source(reader, index)
    if whole <= CUT_CHECK_BYTES or source is None:
        return whole
    row = reader.row("SELECT payload FROM dbstat WHERE name = ? AND aggregate = TRUE", (source.table,))
    return int(row[0]) if row and row[0] is not None else whole
