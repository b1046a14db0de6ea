"""Whether a file is a native store, and which tables and columns it has.

Invariant: native means our application_id and an identity row, both; one without the other is refused in words, because
a file that lost half of its identity was cut, rebuilt or made by somebody else. Not for: opening files.

Going by table names was rejected: hermes-agent has `sessions` and `messages` too, and adopted files keep tables of
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.engine import APPLICATION_ID
from hermes_state.engine.schema import HOST_APPLICATION_ID
from hermes_state.errors import ForeignStore, NotAStore, Refused, SchemaTooNew, SchemaTooOld
from hermes_state.shell_words import shell_word
from maintenance.dialects.base import StoreShape
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# Every table of the schema now; what adopt kept of another program is under its own prefix.
KNOWN_TABLES = frozenset(
    {
        "account_usage",
        "background_work",
        "bodies",
        "changes",
        "compaction_clips",
        "compaction_heads",
        "compactions",
        "credentials",
        "cron_events",
        "cron_executions",
        "cron_home",
        "cron_incidents",
        "cron_jobs",
        "cron_occurrences",
        "cron_runtime",
        "cron_schedules",
        "daily_usage",
        "dead_targets",
        "deletions",
        "enrollment_tokens",
        "gateway_attention",
        "gateway_credentials",
        "gateway_cursors",
        "gateway_digest_key",
        "gateway_instances",
        "gateway_last_seen",
        "gateway_links",
        "gateway_operations",
        "home_deliveries",
        "home_horizon",
        "home_threads",
        "interactions",
        "lane_items",
        "leases",
        "login_attempts",
        "messages",
        "migrations",
        "model_facts",
        "model_windows",
        "outbox",
        "outbox_horizon",
        "pairing_failures",
        "pairing_requests",
        "pairing_users",
        "provider_registrations",
        "reply_seals",
        "routing_entries",
        "routing_home",
        "routing_unserved",
        "session_totals",
        "session_usage",
        "sessions",
        "shared_texts",
        "sqlite_sequence",
        "sqlite_stat1",
        "sqlite_stat4",
        "stops",
        "store",
        "stream_frames",
        "streams",
        "thread_bindings",
        "thread_states",
        "token_factors",
        "tombstone_references",
        "tombstones",
        "topic_chats",
        "turn_items",
        "turns",
        "view_edits",
    }
)
ADOPTED_PREFIX = "foreign_"
# What every statement here is built on; everything else may come and go with a step.
NEEDED = {
    "sessions": frozenset({"no", "id", "source", "state", "parent_no", "relation", "started_at", "active_at"}),
    "messages": frozenset({"id", "session_no", "seq", "role", "content_type", "content", "body_no", "created_at"}),
}


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity row of a native store."""

    store_id: str  # random, for life
    incarnation: str  # random, changed by every adopt, restore, install and repair
    created_at: float  # epoch seconds UTC


def native_identity(reader: Reader) -> Identity | None:
    """The identity of a native store, None for any other file.

    Raises NotAStore, ForeignStore for half of one, Refused for the file of a host.
    """
    mark = reader.row("PRAGMA application_id")
    ours = mark is not None and mark[0] == APPLICATION_ID
    found = _identity_row(reader)
    if ours and found is None:
        raise NotAStore(
            f"{reader.path} carries the mark of a native store (application_id) and has no identity row.",
            hint="It was cut short or emptied. Look for a copy of it before anything writes here, and run "
            f"`hermes-state doctor --db {shell_word(reader.path)}`.",
            path=reader.path,
        )
    if mark is not None and mark[0] == HOST_APPLICATION_ID:
        raise Refused(
            f"{reader.path} holds what arbitrates between the homes of one user; it is no home's store.",
            hint="`hermes-state host status` shows it. Whoever moves it away loses no conversation.", path=reader.path,
        )
    if found is not None and not ours:
        raise ForeignStore(
            f"{reader.path} has the identity row of a native store ({found.store_id}) and not its mark "
            "(application_id): another program rebuilt it.",
            hint="Nothing here writes to it. Use the file that it was made from, or a backup.",
            path=reader.path,
            store_id=found.store_id,
        )
    return found


def _identity_row(reader: Reader) -> Identity | None:
    """The row of the table `store`; any table of that name with other columns is somebody else's."""
    columns = {str(row[1]) for row in reader.rows("PRAGMA table_info(store)")}
    if not {"one", "store_id", "incarnation", "created_at"} <= columns:
        return None
    row = reader.row("SELECT store_id, incarnation, created_at FROM store WHERE one = 1")
    return None if row is None else Identity(store_id=str(row[0]), incarnation=str(row[1]), created_at=float(row[2]))


def read_native_shape(reader: Reader) -> StoreShape:
    """The shape of the native store behind `reader`. Raises SchemaTooOld, SchemaTooNew without the columns we need."""
    tables = [str(row[0]) for row in reader.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    step = reader.row("SELECT max(number) FROM migrations") if "migrations" in tables else None
    columns = {
        table: tuple(str(row[1]) for row in reader.rows(f"PRAGMA table_info({quoted(table)})")) for table in NEEDED
    }
    missing = [f"{table}.{name}" for table, needed in NEEDED.items() for name in sorted(needed - {*columns[table]})]
    version = None if step is None or step[0] is None else int(step[0])
    if missing:
        raise _unreadable(reader, version, missing)
    return StoreShape(
        schema_version=version,
        session_columns=columns["sessions"],
        message_columns=columns["messages"],
        tables=frozenset(tables),
        unknown_tables=tuple(
            sorted(name for name in tables if name not in KNOWN_TABLES and not name.startswith(ADOPTED_PREFIX))
        ),
        search_storage_version=None,
    )


def _unreadable(reader: Reader, version: int | None, missing: list[str]) -> SchemaTooNew | SchemaTooOld:
    from hermes_state.engine.schema import known_migrations

    newest = known_migrations()[-1].number
    listed = ", ".join(missing)
    if version is not None and version > newest:
        return SchemaTooNew(
            f"{reader.path} has schema step {version}; this release knows steps up to {newest}, and misses {listed}.",
            hint="Install the release that wrote it, or a newer one; nothing was changed.",
            path=reader.path,
            found=version,
            known=newest,
        )
    return SchemaTooOld(
        f"{reader.path} is a native store without {listed}.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.",
        path=reader.path,
        found=version,
        needed=newest,
    )
