"""Shapes read from CREATE statements.

Invariant: what cannot be understood gives None, never a guess and never an error. Not for: deciding whether SQL is
right; a statement that SQLite would refuse may well be read here, because its table's rows are still in the file.

Letting SQLite parse was rejected: a schema that it refuses is one of the cases that carving is for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from maintenance.recovery.carve.shapes import Affinity, ColumnShape, IndexShape, TableShape

_TOKEN = re.compile(
    r"""\s+ | --[^\n]*(?:\n|$) | /\*.*?(?:\*/|$)
    | (?P<blob>[xX]'[0-9a-fA-F]*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\])
    | (?P<number>0[xX][0-9a-fA-F]+ | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<sign>\|\||<<|>>|<=|>=|==|!=|<>|->>|->|.)""",
    re.VERBOSE | re.DOTALL,
)
_COLUMN_END = {
    "CONSTRAINT", "PRIMARY", "NOT", "NULL", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED", "AS",
}  # fmt: skip
_TABLE_CONSTRAINT = {"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"}
# Parentheses around a default that are looked into.
_MOST_DEPTH = 10
Token = tuple[str, str]
Default = int | float | str | bytes | None


@dataclass(kw_only=True)
class ParsedTable:
    """One CREATE TABLE statement."""

    shape: TableShape
    # column lists of the indexes that SQLite makes by itself, in the order of their numbers
    automatic: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(kw_only=True)
class _Column:
    name: str
    declared: str = ""
    not_null: bool = False
    default: Default = None
    virtual: bool = False
    primary: bool = False
    descending: bool = False


def tokens(sql: str) -> list[Token]:
    """(kind, text) of every token; text is unquoted."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        if kind is None:
            continue
        text = match.group()
        if kind == "quoted":
            mark = text[0]
            text = text[1:-1] if mark == "[" else text[1:-1].replace(mark * 2, mark)
        elif kind == "string":
            text = text[1:-1].replace("''", "'")
        found.append((kind, text))
    return found


def affinity_of(declared: str, *, strict: bool = False) -> Affinity:
    """SQLite's rules for the declared type of a column."""
    upper = declared.upper()
    if strict and upper == "ANY":
        return "BLOB"
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in upper or not upper:
        return "BLOB"
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"


def parse_table(sql: str, *, name: str | None = None, root: int | None = None) -> ParsedTable | None:
    """A CREATE TABLE statement; None when it is none, or names no columns. `name` overrides the statement's own."""
    words = tokens(sql)
    opening = _index(words, "(")
    if not _is(words, 0, "CREATE") or opening is None or opening < 2:
        return None
    head = [text.upper() for kind, text in words[1 : opening - 1] if kind == "word"]
    if "TABLE" not in head or "VIRTUAL" in head:
        return None
    closing = _closing(words, opening)
    options = [text.upper() for _, text in words[closing + 1 :]]
    strict, without_rowid = "STRICT" in options, "ROWID" in options
    columns: list[_Column] = []
    # (columns, is the primary key)
    keys: list[tuple[tuple[str, ...], bool]] = []
    for part in _parts(words[opening + 1 : closing]):
        if part[0][0] == "word" and part[0][1].upper() in _TABLE_CONSTRAINT:
            _table_constraint(part, keys)
        else:
            columns.append(_column(part, keys))
    if not columns:
        return None
    return _assemble(name or words[opening - 1][1], columns, keys, strict, without_rowid, root)


def _assemble(
    name: str, columns: list[_Column], keys: list[tuple[tuple[str, ...], bool]], strict: bool, without_rowid: bool,
    root: int | None,
) -> ParsedTable | None:
    stored = [column for column in columns if not column.virtual]
    if not stored:
        return None
    number_of = {column.name.lower(): number for number, column in reversed(list(enumerate(stored)))}
    primary = next((key for key, is_primary in keys if is_primary), None)
    alias = None
    if primary is not None and len(primary) == 1 and not without_rowid and primary[0].lower() in number_of:
        column = stored[number_of[primary[0].lower()]]
        if column.declared.upper() == "INTEGER" and not (column.primary and column.descending):
            alias = number_of[primary[0].lower()]
    key = None
    if without_rowid:
        if primary is None or any(text.lower() not in number_of for text in primary):
            return None
        key = tuple(dict.fromkeys(number_of[text.lower()] for text in primary))
    shapes = []
    for number, column in enumerate(stored):
        affinity = affinity_of(column.declared, strict=strict)
        not_null = column.not_null or (key is not None and number in key) or number == alias
        default = _with_affinity(column.default, affinity)
        shapes.append(ColumnShape(
            name=column.name, affinity=affinity, strict=strict and column.declared.upper() != "ANY",
            not_null=not_null, default=default,
        ))
    automatic: list[tuple[str, ...]] = []
    for names, is_primary in keys:
        # The key of a WITHOUT ROWID table is the table itself, and takes a number all the same.
        if is_primary and alias is not None:
            continue
        if tuple(text.lower() for text in names) not in [tuple(t.lower() for t in one) for one in automatic]:
            automatic.append(names)
    shape = TableShape(name=name, columns=tuple(shapes), rowid_column=alias, key=key, root=root)
    return ParsedTable(shape=shape, automatic=automatic)


def parse_index(sql: str, table: TableShape, *, name: str, root: int | None = None) -> IndexShape | None:
    """A CREATE INDEX statement on `table`."""
    words = tokens(sql)
    opening = _index(words, "(")
    if not _is(words, 0, "CREATE") or opening is None:
        return None
    closing = _closing(words, opening)
    columns: list[str | None] = []
    for part in _parts(words[opening + 1 : closing]):
        rest = [text.upper() for _, text in part[1:]]
        plain = part[0][0] in ("word", "quoted", "string") and (
            not rest or rest[0] in ("ASC", "DESC", "COLLATE")
        )
        columns.append(part[0][1] if plain else None)
    partial = any(text.upper() == "WHERE" for _, text in words[closing + 1 :])
    return index_shape(columns, table, name=name, root=root, partial=partial)


def index_shape(
    columns: list[str | None], table: TableShape, *, name: str, root: int | None, partial: bool = False
) -> IndexShape:
    """An index on these columns of `table`, its own or one that SQLite makes by itself."""
    known = {column.name.lower(): column for column in table.columns}
    key = [table.columns[number].name for number in table.key or ()]
    held = {text.lower() for text in columns if text is not None}
    affinities: list[Affinity] = [
        known[text.lower()].affinity if text is not None and text.lower() in known else "BLOB" for text in columns
    ]
    return IndexShape(
        name=name, table=table.name, columns=tuple(columns), affinities=tuple(affinities), partial=partial, root=root,
        key_columns=tuple(text for text in key if text.lower() not in held),
    )  # fmt: skip


def _column(part: list[Token], keys: list[tuple[tuple[str, ...], bool]]) -> _Column:
    column = _Column(name=part[0][1])
    at = 1
    declared: list[str] = []
    while at < len(part) and not (part[at][0] == "word" and part[at][1].upper() in _COLUMN_END):
        if part[at][1] == "(" and part[at][0] == "sign":
            at = _closing(part, at)
        else:
            declared.append(part[at][1])
        at += 1
    column.declared = " ".join(declared)
    while at < len(part):
        kind, text = part[at]
        word = text.upper() if kind == "word" else ""
        if kind == "sign" and text == "(":
            at = _closing(part, at)
        elif word == "PRIMARY":
            column.primary = True
            column.descending = _is(part, at + 2, "DESC")
            keys.append(((column.name,), True))
        elif word == "UNIQUE":
            keys.append(((column.name,), False))
        elif word == "NULL" and at and _is(part, at - 1, "NOT"):
            column.not_null = True
        elif word == "DEFAULT":
            column.default, at = _default(part, at + 1)
        elif word == "AS":
            column.virtual = True
        elif word == "STORED" and column.virtual:
            column.virtual = False
        at += 1
    return column


def _default(part: list[Token], at: int, depth: int = 0) -> tuple[Default, int]:
    """The literal behind DEFAULT and the place of its last token; None for an expression."""
    if at >= len(part) or depth > _MOST_DEPTH:
        return None, at
    kind, text = part[at]
    sign = 1
    while kind == "sign" and text in "+-" and at + 1 < len(part):
        sign = -sign if text == "-" else sign
        at += 1
        kind, text = part[at]
    if kind == "number":
        return _number(text, sign), at
    if kind in ("string", "quoted"):
        return text, at
    if kind == "blob":
        return bytes.fromhex(text[2:-1]) if len(text) % 2 else None, at
    if kind == "sign" and text == "(":
        inner, closing = part[at + 1 : _closing(part, at)], _closing(part, at)
        value, last = _default(inner, 0, depth + 1) if inner else (None, 0)
        return (value if last == len(inner) - 1 else None), closing
    word = text.upper()
    if word in ("TRUE", "FALSE"):
        return int(word == "TRUE"), at
    if word in ("NULL", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME"):
        return None, at
    return text, at


def _number(text: str, sign: int) -> int | float:
    if text[:2] in ("0x", "0X"):
        value = int(text, 16)
        return sign * (value - (1 << 64) if value >> 63 else value)
    # SQLite reads a number that is too long for an integer as a float, and Python refuses very long ones.
    if text.isdigit() and len(text) < 25:
        whole = sign * int(text)
        return whole if -(1 << 63) <= whole < 1 << 63 else float(whole)
    return sign * float(text)


def _with_affinity(value: Default, affinity: Affinity) -> Default:
    """A default as SQLite reads it from a row that does not have it."""
    if affinity == "TEXT" and isinstance(value, (int, float)):
        return str(value)
    if affinity in ("INTEGER", "REAL", "NUMERIC") and isinstance(value, str):
        match = re.fullmatch(r"\s*([+-]?)((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*", value)
        if match is None:
            return value
        value = _number(match[2], -1 if match[1] == "-" else 1)
    if affinity == "REAL" and isinstance(value, int):
        return float(value)
    if affinity in ("INTEGER", "NUMERIC") and isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value


def _table_constraint(part: list[Token], keys: list[tuple[tuple[str, ...], bool]]) -> None:
    at = 2 if part[0][1].upper() == "CONSTRAINT" else 0
    word = part[at][1].upper() if at < len(part) else ""
    opening = _index(part, "(")
    if word in ("PRIMARY", "UNIQUE") and opening is not None:
        inside = _parts(part[opening + 1 : _closing(part, opening)])
        keys.append((tuple(one[0][1] for one in inside), word == "PRIMARY"))


def _parts(words: list[Token]) -> list[list[Token]]:
    """Split at commas that are in no parenthesis; empty parts are left out."""
    found: list[list[Token]] = [[]]
    depth = 0
    for kind, text in words:
        if kind == "sign":
            depth += (text == "(") - (text == ")")
            if text == "," and depth == 0:
                found.append([])
                continue
        found[-1].append((kind, text))
    return [part for part in found if part]


def _closing(words: list[Token], opening: int) -> int:
    """The place of the parenthesis that closes the one at `opening`; the end when none does."""
    depth = 0
    for at in range(opening, len(words)):
        kind, text = words[at]
        if kind == "sign":
            depth += (text == "(") - (text == ")")
            if depth == 0:
                return at
    return len(words)


def _index(words: list[Token], sign: str) -> int | None:
    return next((at for at, word in enumerate(words) if word == ("sign", sign)), None)


def _is(words: list[Token], at: int, word: str) -> bool:
    return at < len(words) and words[at][0] == "word" and words[at][1].upper() == word
