"""What tables a damaged file has: from the file itself, else carved, else from knowledge of the releases.

Invariant: every entry of the schema that can be read is kept word for word; a statement that SQLite refuses is replaced
by the one that a release is known to use for a table of that name, and the replacement is said. Tables behind search
indexes are known as such and not recovered as tables: search is built anew.

Not for: reading rows. Trusting the version number of the file was rejected: files carry columns of several releases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hermes_state.engine import APPLICATION_ID
from hermes_state.engine.salvage import Salvage, TableInfo, describe_table
from hermes_state.errors import StateError
from maintenance.recovery.known import known_statement, nearly_known
from maintenance.recovery.search import own_texts
from maintenance.space.sizes import SHADOWS, TRASH_PREFIX, is_fulltext

# Tables that SQLite keeps for itself; what of them matters is set again by filling.
_OWN = ("sqlite_stat1", "sqlite_stat4", "sqlite_sequence")
# Where a statement came from that no release has.
MADE_OF_ROWS = "its rows"
# Tables that only a native store has; some of them are enough, when a page of the schema is gone.
NATIVE_MARKS = frozenset({
    "view_edits", "bodies", "shared_texts", "session_totals", "stream_frames", "tombstone_references", "daily_usage",
    "compaction_heads", "compaction_clips", "token_factors",
})
ENOUGH_MARKS = 3


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of a schema."""

    kind: str
    name: str
    table: str
    # root page, 0 when there is none or it cannot be right
    root: int
    # None for what SQLite makes by itself, and for what could not be read
    sql: str | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table to recover."""

    name: str
    sql: str
    info: TableInfo
    # root page, None when it is not known
    root: int | None
    # whether `sql` is the file's own statement
    own: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Stored columns in order."""
        return tuple(column.name for column in self.info.columns)

    @property
    def rowid(self) -> str | None:
        """A name by which the rowid can be asked for; None when rows have none, or columns hide it."""
        if self.info.without_rowid:
            return None
        taken = {name.lower() for name in self.names}
        return next((word for word in ("rowid", "oid", "_rowid_") if word not in taken), None)

    @property
    def key(self) -> tuple[int, ...]:
        """Places of the primary key's columns, for a table without rowid."""
        places = [(column.key, place) for place, column in enumerate(self.info.columns) if column.key]
        return tuple(place for _number, place in sorted(places))

    def has(self, columns: Sequence[str]) -> bool:
        """Whether all of these columns are there."""
        return set(columns) <= set(self.names)

    @property
    def alias(self) -> int | None:
        """Place of the column that is the rowid."""
        return None if self.info.rowid_column is None else self.names.index(self.info.rowid_column)


@dataclass(kw_only=True)
class Schema:
    """The schema of the source, as far as it is known."""

    # "file", "carved", a release such as "0.19.0", "native", or "none"
    origin: str
    entries: list[Entry] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    # tables whose statement was replaced, with the release that it came from
    replaced: dict[str, str] = field(default_factory=dict)
    # names of tables whose statement cannot be understood and that no release knows
    lost: list[str] = field(default_factory=list)
    application_id: int = 0
    user_version: int = 0
    # tables of text behind search indexes that nothing else fills, with the index
    texts: dict[str, str] = field(default_factory=dict)
    page_size: int = 4096

    @property
    def native(self) -> bool:
        """Whether it is a store of this library."""
        return self.application_id == APPLICATION_ID or len(NATIVE_MARKS & set(self.tables)) >= ENOUGH_MARKS

    @property
    def search(self) -> tuple[str, ...]:
        """Search indexes."""
        return tuple(entry.name for entry in self.entries if entry.kind == "table" and is_fulltext(entry.sql))


def schema_of_rows(salvage: Salvage) -> list[Entry]:
    """The schema as SQLite reads it, as many rows of it as can be read."""
    cells = ", ".join(f"CAST({name} AS BLOB)" for name in ("type", "name", "tbl_name", "sql"))
    sql = f"SELECT {cells}, rootpage, rowid FROM sqlite_schema NOT INDEXED"
    found: dict[int, Entry] = {}
    for order in ("", " ORDER BY rowid DESC"):
        try:
            for kind, name, table, text, root, rowid in salvage.iterate(sql + order):
                found[rowid] = Entry(
                    kind=_text(kind) or "", name=_text(name) or "", table=_text(table) or "",
                    root=root if isinstance(root, int) and root > 0 else 0, sql=_text(text),
                )
            break  # from one end to the other without an error
        except StateError as error:
            if error.retryable:
                raise
    return [found[rowid] for rowid in sorted(found)]


def build_schema(entries: Sequence[Entry], origin: str) -> Schema:
    """A schema of entries: the first of two equal names counts, and statements that make no sense are replaced."""
    schema = Schema(origin=origin)
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if entry.kind not in ("table", "index", "trigger", "view") or not entry.name or "\0" in entry.name:
            continue
        if entry.sql is not None and "\0" in entry.sql:
            entry = replace(entry, sql=None)  # zeroed in part: no statement ends like that
        if (entry.kind, entry.name) not in seen:
            seen.add((entry.kind, entry.name))
            schema.entries.append(entry)
    search = [entry.name for entry in schema.entries if is_fulltext(entry.sql)]
    shadows = {f"{name}_{part}" for name in search for part in SHADOWS}
    names = {entry.name for entry in schema.entries}
    # A search index whose own entry is gone: its tables are still no tables of rows.
    shadows |= {
        f"{base}_{part}" for base in {name.removesuffix("_docsize") for name in names if name.endswith("_docsize")}
        if {f"{base}_idx", f"{base}_data"} & names for part in SHADOWS
    }
    schema.texts = own_texts(schema.entries)
    shadows -= set(schema.texts)
    broken = []
    for entry in schema.entries:
        if entry.kind != "table" or entry.name in shadows or entry.name in search or entry.name in _OWN:
            continue
        if entry.name.startswith(("sqlite_", TRASH_PREFIX)) or _is_virtual(entry.sql):
            continue
        if not add_table(schema, entry):
            broken.append(entry)
    schema.lost = [entry.name for entry in broken]
    return schema


def virtual_tables_left_out(schema: Schema) -> list[dict[str, str]]:
    """What is said of virtual tables that are no search index: their rows are in the tables behind them."""
    return [
        {
            "what": "virtual_table_left_out", "table": entry.name, "statement": entry.sql or "",
            "sentence": f"The virtual table {entry.name} was left out; what it stores is in the tables behind it.",
        }
        for entry in schema.entries
        if entry.kind == "table" and _is_virtual(entry.sql) and not is_fulltext(entry.sql)
    ]


def add_table(schema: Schema, entry: Entry) -> bool:
    """Add a table by its own statement; False when SQLite refuses that."""
    info = describe_table(entry.name, entry.sql) if entry.sql else None
    if info is None or entry.sql is None:
        return False
    schema.tables[entry.name] = Table(name=entry.name, sql=entry.sql, info=info, root=entry.root or None, own=True)
    return True


def replace_statements(
    schema: Schema, width_of: Callable[[int], int], plain: Callable[[str, int], str | None]
) -> None:
    """Find statements for tables whose own cannot be understood: a release's, or one made of their rows.

    `width_of(root)`: columns of the widest row of a tree; `plain(name, root)`: a statement made of its rows.
    """
    lost, schema.lost = schema.lost, []
    for name in lost:
        entry = next(entry for entry in schema.entries if entry.kind == "table" and entry.name == name)
        beside = {other: table.names for other, table in schema.tables.items()}
        known = known_statement(name, beside, width_of(entry.root) if entry.root else 0)
        sql = known[1] if known else plain(name, entry.root) if entry.root else None
        info = describe_table(name, sql) if sql else None
        if sql is None or info is None:
            schema.lost.append(name)
            continue
        schema.tables[name] = Table(name=name, sql=sql, info=info, root=entry.root or None, own=False)
        schema.replaced[name] = known[0] if known else MADE_OF_ROWS
    # In the order of the file, as they were made.
    order = {entry.name: number for number, entry in enumerate(schema.entries) if entry.kind == "table"}
    schema.tables = dict(sorted(schema.tables.items(), key=lambda item: order[item[0]]))


def mend_statements(schema: Schema) -> None:
    """Replace statements of a damaged file that differ from a release's in a name or two."""
    for name, table in list(schema.tables.items()):
        near = nearly_known(name, table.names)
        info = describe_table(name, near[1]) if near else None
        if near is not None and info is not None:
            schema.tables[name] = Table(name=name, sql=near[1], info=info, root=table.root, own=False)
            schema.replaced[name] = near[0]


def single(salvage: Salvage, pragma: str) -> int:
    """A number from the file's header; 0 when it cannot be had."""
    try:
        row = salvage.row(f"PRAGMA {pragma}")
    except StateError as error:
        if error.retryable:
            raise
        return 0
    return int(row[0]) if row and isinstance(row[0], int) else 0


def _is_virtual(sql: str | None) -> bool:
    return sql is not None and sql.lower().split()[1:2] == ["virtual"]


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", errors="replace")
