"""How far a file is on its way to the smaller search layout, by what it holds.

Invariant: the state is read from the schema and from `state_meta`, so a run that was killed is seen by the next one,
ours or hermes-agent's, exactly as it was left.

Not for: changing anything (`convert`). A marker file beside the store was rejected: hermes-agent would not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_state.errors import NotAStore, Refused, SchemaTooNew, SchemaTooOld
from hermes_state.shell_words import shell_word
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.native.shape import native_identity
from maintenance.space.sizes import TRASH_PREFIX
from maintenance.space.storage.layout import (
    ALL_TRIGGERS,
    HIGH_WATER,
    NEWEST_SCHEMA,
    OLDEST_SCHEMA,
    OLDEST_SCHEMA_RELEASE,
    PROGRESS,
    STORAGE_VERSION,
    TRIGRAM,
    TRIGRAM_TRIGGERS_OFF,
    VERSION,
    VIEWS,
    WORDS,
)

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Layout = Literal["inline", "older external", "external", "none"]


@dataclass(frozen=True, kw_only=True)
class StorageState:
    """The search layout of a file."""

    # Number in `schema_version`.
    schema_version: int
    # "inline" (texts stored again in the index), "older external", "external" (the smaller layout), "none".
    layout: Layout
    # What `state_meta` says of the layout; None when it says nothing.
    stated_version: int | None
    # Highest id that the backfill covers, None when none is pending.
    high_water: int | None
    # Highest id that the backfill has done, None when none is pending.
    progress: int | None
    # Renamed tables of the old layout that still exist.
    trash: tuple[str, ...]
    # Whether the trigram index takes part; False when its triggers do nothing.
    trigram: bool
    # How many of the six triggers exist.
    triggers: int

    @property
    def pending(self) -> bool:
        """Whether a conversion was begun and not finished."""
        return self.high_water is not None or self.progress is not None or bool(self.trash)

    @property
    def done(self) -> bool:
        """Whether the file has the smaller layout completely."""
        return (
            self.layout == "external"
            and not self.pending
            and self.stated_version == STORAGE_VERSION
            and self.triggers == len(ALL_TRIGGERS)
        )

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "schema_version": self.schema_version,
            "layout": self.layout,
            "storage_version": self.stated_version,
            "pending": self.pending,
            "high_water": self.high_water,
            "progress": self.progress,
            "leftover_tables": list(self.trash),
            "trigram": self.trigram,
        }


def storage_state(reader: Reader) -> StorageState:
    """Read the state; raises NotAStore, SchemaTooOld or SchemaTooNew where the conversion is not defined."""
    refuse_native(reader)
    version = required_schema(reader)
    dialect_of(reader)
    objects = {
        str(name): str(sql)
        for name, sql in reader.rows("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND type <> 'index'")
    }
    keys = (HIGH_WATER, PROGRESS, VERSION)
    meta = dict(reader.rows("SELECT key, value FROM state_meta WHERE key IN (?, ?, ?)", keys))
    return StorageState(
        schema_version=version,
        layout=_layout(objects),
        stated_version=_number(meta.get(VERSION)),
        high_water=_number(meta.get(HIGH_WATER)),
        progress=_number(meta.get(PROGRESS)),
        trash=tuple(sorted(name for name in objects if name.startswith(TRASH_PREFIX))),
        trigram=not set(TRIGRAM_TRIGGERS_OFF) & set(objects.values()),
        triggers=sum(name in objects for name in ALL_TRIGGERS),
    )


def refuse_native(reader: Reader) -> None:
    """Raise Refused for a native store, which has no such index."""
    if native_identity(reader) is not None:
        raise Refused(
            f"{reader.path} is a native store: its search index is a file of its own, and there is no layout to "
            "convert.",
            hint=f"`hermes-state sessions optimize --db {shell_word(reader.path)}` merges it.",
            path=reader.path,
        )


def required_schema(reader: Reader) -> int:
    """The schema version, when the conversion is defined for it."""
    path = reader.path
    if reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'") is None:
        raise NotAStore(
            f"{path} is no store of hermes-agent: it has no table schema_version.",
            hint="Name the state.db of a home with --home or --db.",
            path=path,
        )
    found = reader.row("SELECT max(version) FROM schema_version")
    version = _number(found[0] if found else None) or 0
    if version < OLDEST_SCHEMA:
        raise SchemaTooOld(
            f"{path} has schema version {version}; the smaller search layout needs {OLDEST_SCHEMA} or later.",
            hint=f"Open it once with hermes-agent {OLDEST_SCHEMA_RELEASE} or a later release, then run this again.",
            path=path,
            found=version,
            needed=OLDEST_SCHEMA,
        )
    if version > NEWEST_SCHEMA:
        raise SchemaTooNew(
            f"{path} has schema version {version}; the search layout is known up to {NEWEST_SCHEMA}.",
            hint="Use `hermes sessions optimize-storage` of the hermes-agent that wrote it.",
            path=path,
            found=version,
            known=NEWEST_SCHEMA,
        )
    return version


def _layout(objects: dict[str, str]) -> Layout:
    sql = objects.get(WORDS)
    if sql is None:
        return "none"
    if "tool_name" not in sql:
        return "inline"
    current = all(VIEWS[index] in objects.get(index, "") and VIEWS[index] in objects for index in (WORDS, TRIGRAM))
    return "external" if current and "tool_calls" not in objects[TRIGRAM] else "older external"


def _number(value: object) -> int | None:
    try:
        return int(str(value)) if value is not None else None
    except ValueError:
        return None


