"""Search indexes of a foreign file, built again from the messages on the private copy.

Invariant: the NUL rule of the file is kept: the one that its whole trigram indexes show, and where none shows any, that
of SQLite 3.40, under which both kinds of SQLite find an index right. An index is first rebuilt from the text it names
or keeps; when that does not make it sound, its tables are taken out of the schema unread, made anew and filled the way
its own trigger fills it. Rows that a backfill of hermes-agent has yet to index are left to that backfill.

Not for: the index of a native store, a file of its own that the library builds.
"""

from __future__ import annotations

import re
from pathlib import Path

from hermes_state.engine import NulRule, Reader
from hermes_state.engine.private import open_private
from hermes_state.errors import RepairFailed, StateError
from maintenance.dialects.base import SearchIndex
from maintenance.doctor.findings import is_damage, recover_command
from maintenance.doctor.fulltext import fulltext_indexes, gate_of, is_of_messages, row_set, text_source
from maintenance.doctor.lookups import missed_words
from maintenance.doctor.nul_rule import Evidence, evidence_of, is_trigram
from maintenance.doctor.search import check_index, text_differs
from maintenance.quoting import quoted
from maintenance.repair.report import Step
from maintenance.repair.schema_step import raise_cookie
from maintenance.space.sizes import SHADOWS

_VALUES = re.compile(r"\bvalues\s*\(\s*new\.\w+\s*,(.*)\)\s*;?\s*end\s*;?\s*$", re.IGNORECASE | re.DOTALL)


def rule_to_write(copy: Path) -> NulRule:
    """The NUL rule under which the indexes of this file are written."""
    with open_private(copy, tolerant=True) as private:
        try:
            shown = [evidence_of(private, index) for index in fulltext_indexes(private) if is_trigram(index)]
        except StateError:
            return NulRule.CUT  # nothing to read it off
    total = Evidence(past_nul=sum(one.past_nul for one in shown), cut=sum(one.cut for one in shown))
    return total.rule if total.any else NulRule.CUT


def rebuild_search_index(copy: Path, store: Path, name: str, rule: NulRule) -> tuple[Step, bool]:
    """Build one search index again; the second item says whether old pages are left to a rewrite of the file."""
    if _rebuilt(copy, name, rule) and _is_sound(copy, name, rule):
        return Step(kind="search index", object=name, how="rebuilt in place"), False
    if not _of_messages(copy, name):
        raise RepairFailed(
            f"The search index {name} of {store} keeps a text that is nowhere else, and that text is damaged, so it "
            "cannot be built again. The store is as it was.",
            hint=f"Run `{recover_command(store)}`: it reads the rows that can be had into a new file.",
            path=store, step=f"search index {name}",
        )
    _make_anew(copy, name, rule)
    if not _is_sound(copy, name, rule):
        raise RepairFailed(
            f"The search index {name} of {store} did not become sound. The store is as it was.",
            hint=f"Run `{recover_command(store)}`: it reads the rows into a new file and indexes them there.",
            path=store, step=f"search index {name}",
        )
    return Step(kind="search index", object=name, how="made anew"), True


def _index_of(reader: Reader, name: str) -> SearchIndex:
    found = [index for index in fulltext_indexes(reader) if index.name == name]
    if not found:
        raise RepairFailed(f"{reader.path} has no search index {name}.", hint="", path=reader.path, step="search index")
    return found[0]


def _of_messages(copy: Path, name: str) -> bool:
    with open_private(copy, tolerant=True) as private:
        return is_of_messages(_index_of(private, name))


def _rebuilt(copy: Path, name: str, rule: NulRule) -> bool:
    """Whether FTS5 could build the index from its own text."""
    table = quoted(name)
    try:
        with open_private(copy, nul_rule=rule, tolerant=True) as private:
            if gate_of(private, _index_of(private, name)) is not None:
                return False  # FTS5 would index the rows of the backfill too, and those would be in it twice
            private.rows(f"INSERT INTO {table}({table}) VALUES ('rebuild')")
    except StateError as error:
        if not _is_of_index(error):
            raise
        return False
    return True


def _is_sound(copy: Path, name: str, rule: NulRule) -> bool:
    """FTS5's own check with the text it names (rank 1), the set of rows, and a sample of searches."""
    table = quoted(name)
    try:
        with open_private(copy, nul_rule=rule, tolerant=True) as private:
            index = _index_of(private, name)
            if not check_index(private, name).ok:
                return False
            if gate_of(private, index) is None:
                private.rows(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
            rows = row_set(private, index)
            return rows in (None, (0, 0)) and not missed_words(private, index)[1] and not text_differs(private, index)
    except StateError as error:
        if not _is_of_index(error):
            raise
        return False


def _make_anew(copy: Path, name: str, rule: NulRule) -> None:
    """Take the index and its tables out of the schema, make it again, and fill it."""
    with open_private(copy, search_modules=False, tolerant=True) as private:
        row = private.row("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
        if row is None or not row[0]:
            raise RepairFailed(f"{copy} has no definition of {name}.", hint="", path=copy, step="search index")
        sql = str(row[0])
        tables = [name, *(f"{name}_{shadow}" for shadow in SHADOWS)]
        marks = ", ".join("?" * len(tables))
        private.rows(f"DELETE FROM sqlite_schema WHERE tbl_name IN ({marks}) AND type <> 'trigger'", tuple(tables))
        raise_cookie(private)
    table = quoted(name)
    with open_private(copy, nul_rule=rule, tolerant=True) as private:
        private.rows(sql)
        index = _index_of(private, name)
        fill = _fill_statement(private, index)
        private.rows(fill or f"INSERT INTO {table}({table}) VALUES ('rebuild')")


def _fill_statement(reader: Reader, index: SearchIndex) -> str:
    """The INSERT that fills a new index; "" when FTS5 does it from the text that the index names."""
    names = ", ".join(map(quoted, index.columns))
    gate = gate_of(reader, index)
    if index.layout == "external":
        source = text_source(reader, index)
        if gate is None or source is None:
            return ""
        key = quoted(source.key)
        return (
            f"INSERT INTO {quoted(index.name)}(rowid, {names}) SELECT {key}, {names} FROM {quoted(source.table)} "
            f"WHERE {key} <= {gate.progress} OR {key} > {gate.high_water}"
        )
    row = reader.row(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", (f"{index.name}_insert",)
    )
    values = _VALUES.search(str(row[0])) if row else None
    # What the triggers of every release put into an inline index, for a file whose own trigger is gone.
    text = re.sub(r"\bnew\.", "m.", values.group(1), flags=re.IGNORECASE) if values else (
        "COALESCE(m.content, '') || ' ' || COALESCE(m.tool_name, '') || ' ' || COALESCE(m.tool_calls, '')"
    )
    return f"INSERT INTO {quoted(index.name)}(rowid, {names}) SELECT m.id, {text} FROM messages AS m"


def _is_of_index(error: StateError) -> bool:
    """Damage, or a constraint or error of the tables behind an index: what a broken index answers with."""
    return is_damage(error) or error.sqlite_code in (1, 19)
