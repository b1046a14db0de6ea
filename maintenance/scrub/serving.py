"""Gateway rows whose texts have something beside them that would give the text away: a key, a check, a digest.

Invariant: what decides who may connect, which turn runs and what is owed stays: ids, digests, states, times. A nickname
takes its key with it, a delivery the check of its payload; an operation whose outcome is replaced loses the check of
what was asked, so asking for it again is a conflict. Texts of other tables go cell by cell (`cells`).

Not for: ids. Replacing one was rejected: plugins, threads and obligations know it, and would be another's.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.instances.nicknames import nickname_key
from maintenance.dialects.native import serving
from maintenance.scrub.cells import still_json, unlocked

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

# By table, the texts that are replaced together with what belongs to them.
TEXTS: Mapping[str, tuple[str, ...]] = {
    "gateway_instances": ("nickname", "connector_url", "state_actor", "state_reason"),
    "home_deliveries": ("payload",),
    "gateway_operations": ("outcome", "why"),
}
# In tables that are searched cell by cell: what is no text of anybody, or says who and which.
FIXED: Mapping[str, frozenset[str]] = {
    "account_usage": frozenset({"provider", "account"}),
    "background_work": frozenset({
        "key", "sort", "home", "mode", "verbosity", "pid_scope", "identity", "owner", "boot_id", "time_namespace",
        "reason", "delivery", "described", "result",  # the last two in `working`
    }),
    "credentials": frozenset({
        "provider", "id", "home", "auth_type", "source", "status", "salt", "access_digest", "refresh_digest", "spent",
        "rotation", "rotation_digest",
    }),
    "dead_targets": frozenset({"platform", "transport_profile", "chat_id", "home", "failure"}),
    "enrollment_tokens": frozenset({"token_digest", "instance_id"}),
    "gateway_credentials": frozenset({"credential_digest", "instance_id"}),
    "gateway_digest_key": frozenset({"digest_key"}),
    "gateway_attention": frozenset({"instance_id", "code"}),
    "gateway_cursors": frozenset({"instance_id", "name", "position"}),
    "gateway_last_seen": frozenset({"instance_id"}),
    "gateway_links": frozenset({"instance_id", "boot_id"}),
    "home_threads": frozenset({"instance_id", "thread_id"}),
    "interactions": frozenset({
        "instance_id", "boot_id", "request_id", "thread_id", "session_id", "turn_id", "request_type", "decision",
    }),
    "lane_items": frozenset({"home", "lane", "item_key", "session_id", "content", "details"}),  # see `working`
    "login_attempts": frozenset({"attempt_id", "home", "platform", "chat_id", "user_id", "owner", "reason"}),
    "model_facts": frozenset({"provider", "layer", "model_key", "model"}),
    "provider_registrations": frozenset({"name", "origin"}),
    "reply_seals": frozenset({
        "turn_id", "home", "transport", "message_id", "sealed_digest", "final_digest", "shown_digest",
    }),
    "stops": frozenset({"stop_id", "instance_id", "thread_id", "session_id", "turn_id", "obligation"}),
    "thread_bindings": frozenset({"thread_id", "instance_id", "session_id"}),
    "thread_states": frozenset({"thread_id", "status", "active_turn_id", "boot_id"}),
    "topic_chats": frozenset({"platform", "chat_id", "home", "user_id"}),
    "turn_items": frozenset({"item_type"}),
    "turns": frozenset({"turn_id", "thread_id", "session_id", "generation"}),
}
# The same of rows about instances in tables of several kinds: without its key a tombstone keeps nobody out.
FIXED_OF_INSTANCES: Mapping[str, frozenset[str]] = {
    "tombstones": frozenset({"key"}),
    "tombstone_references": frozenset({"key", "holder_kind", "holder_key"}),
}
ROWS_A_STEP = 50
_NUMBER = {"gateway_instances": "no", "home_deliveries": "no", "gateway_operations": "id"}
_JSON = frozenset({"payload", "outcome"})


def rows(reader: Reader, redactor: Redactor, table: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table with secrets in them as they should become, in portions; nothing where it has no table."""
    if not serving.has_instances(reader.rows):
        return
    key, names = _NUMBER[table], TEXTS[table]
    last: Any = None
    while found := reader.rows(
        f"SELECT {key}, {', '.join(names)} FROM {table} WHERE ?1 IS NULL OR {key} > ?1 ORDER BY {key}"
        f" LIMIT {ROWS_A_STEP}", (last,)
    ):
        last = found[-1][0]
        portion = []
        for number, *values in found:
            new = {
                name: _json(redactor, value) if name in _JSON else redactor.cell(value)
                for name, value in zip(names, values, strict=True)
            }
            if list(new.values()) != values:
                portion.append({key: number} | new)
        if portion:
            yield portion


def replace(tx: Transaction, table: str, portion: list[dict[str, Any]], at: float) -> int:
    """Write rows with their new texts; returns how many. The triggers that keep what has ended are away."""
    key = _NUMBER[table]
    with unlocked(tx, table):
        for new in portion:
            said = {name: value for name, value in new.items() if name != key}
            if table == "gateway_instances":
                said["nickname_key"] = nickname_key(said["nickname"]) or said["nickname"]
            elif table == "home_deliveries":
                said["payload_check"] = hashlib.sha256(said["payload"].encode("utf-8", "surrogatepass")).hexdigest()
            else:
                said["request_check"] = secrets.token_hex(32)
            sets = ", ".join(f"{name} = ?" for name in said)
            tx.execute(f"UPDATE {table} SET {sets} WHERE {key} = ?", [*said.values(), new[key]])
            if table == "gateway_instances":
                (name,) = tx.rows("SELECT instance_id FROM gateway_instances WHERE no = ?", (new[key],))[0]
                changes.record(tx, table, name, "update", at)
    return len(portion)


def _json(redactor: Redactor, text: str | None) -> str | None:
    """JSON without secrets, which stays JSON."""
    if text is None or (new := redactor.text(text)) == text:
        return text
    return still_json(new)
