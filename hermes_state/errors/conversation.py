"""What sessions, messages, keys, leases, search and the spool refuse by name.

Invariant: see the package. Not for: files.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused, StateError


class SessionGuarded(Refused):
    """A live lease or a runtime ledger row protects a session. Facts: `session_id`, `guard`."""

    code = "session_guarded"


class SessionNotFound(NotFound):
    """No session of that id was ever here. Facts: `path`, `session_id`."""

    code = "session_not_found"


class SessionDeleted(Refused):
    """The caller holds on to a session that was removed. Facts: `path`, `session_id`, `deleted_at` (epoch seconds)."""

    code = "session_deleted"


class SessionReplaced(Refused):
    """A continuation took the session over; rows go there now. Facts: `path`, `session_id`, `tip_id`."""

    code = "session_replaced"


class SessionExists(Refused):
    """A session of that id is there already. Facts: `path`, `session_id`."""

    code = "session_exists"


class TitleTaken(Refused):
    """Another session has the title. Facts: `path`, `title`, `session_id` (of the other one)."""

    code = "title_taken"


class Entombed(Refused):
    """A deleted id may not come back before its horizon. Facts: `path`, `kind`, `key`, `horizon_at`, `references`."""

    code = "entombed"


class IdempotencyConflict(StateError):
    """The caller's fault: a key came again with other content, or after its message was taken back (`taken_back`).

    Facts: `path`, `session_id`, `key`, `existing_id`, `taken_back`.
    """

    code = "idempotency_conflict"


class LeaseHeld(StateError):
    """Another owner has the lease.

    Facts: `path`, `name`, `owner` (identity), `expires_in_seconds` (None: unknown), `note` (what the owner says).
    """

    code = "lease_held"
    retryable = True
    exit_code = 75


class LeaseLost(StateError):
    """The holder was away too long and its lease went on. Facts: `path`, `name`, `fence` (ours), `current` (theirs)."""

    code = "lease_lost"


class StaleFence(StateError):
    """A guarded write came with a fence that is no longer the lease's. Facts: `path`, `name`, `fence`, `current`."""

    code = "stale_fence"


class TooOld(StateError):
    """An idempotency key was made before what is still remembered: it cannot be told whether it was used.

    Facts: `path`, `dedupe_id`, `made_at`, `remembered_from` (epoch seconds UTC).
    """

    code = "too_old"


class SearchUnavailable(StateError):
    """The search index cannot be used now, and the caller asked for nothing less. Facts: `path`, `reason`."""

    code = "search_unavailable"
    retryable = True


class NotSaved(StateError):
    """Neither the store nor the spool took a turn. Facts: `session_id`, `store_error`, `spool_error`, `path`."""

    code = "not_saved"


class TornItem(StateError):
    """A line of the spool was not written to its end, or was altered afterwards. Facts: `path`."""

    code = "torn_item"


class PrefixTooLarge(Refused):
    """What precedes the conversation leaves less of the window than a compaction needs; nothing it does can help.

    Facts, in tokens: `window`, `fixed` (all of the prefix), `system` and `tools` (its parts: system rows, and what the
    caller declared), `reserve` (for the reply), `usable` (what is left; may be negative), `smallest`.
    """

    code = "prefix_too_large"


class CompactionRunning(StateError):
    """Somebody is compacting the session. Facts: `path`, `session_id`, `owner` (identity), `pid`, `started_at`."""

    code = "compaction_running"
    exit_code = 75


class CompactionLost(StateError):
    """A pass is no longer its maker's: its row has ended or is gone.

    Facts: `path`, `compaction_id`, `state`, `because` (the code of what ended it, such as message_deleted).
    """

    code = "compaction_lost"


class ViewMoved(StateError):
    """What was planned on is no longer how the session is seen. Facts: `path`, `session_id`, `because`."""

    code = "view_moved"


class CompactionInflated(StateError):
    """What a pass made would not free what makes a pass worth it, so it was thrown away. Nothing was changed.

    Facts: `path`, `session_id`, `tokens_before`, `tokens_after` (both of whole views, by one counter).
    """

    code = "inflation"


class EndpointUnreachable(StateError):
    """A model server does not answer, or not with what was asked for. Facts: `endpoint` (no key in it), `reason`."""

    code = "endpoint_unreachable"


class SummarizerFailed(StateError):
    """The caller's summariser gave no answer: nothing was changed.

    Facts: `summarizer`, `status` (exit or HTTP status, or None).
    """

    code = "summarizer_failed"
