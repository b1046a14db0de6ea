"""Sessions and messages of a native store against what the schema cannot enforce.

Invariant: only reads, in one snapshot a check; counts and a few ids, never content. A message whose check differs is
damage of the store; a figure that can be computed again is a problem.

Not for: pages and foreign keys, which are checked for any file. Checking every message each time was rejected: it reads
and unpacks the whole store; a sample spread over all of it is read by default, everything with --deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from maintenance.dialects.native.checks import failed_rows
from maintenance.dialects.native.sample import spread
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore

SAMPLE = 2_000  # messages checked without --deep: some tens of milliseconds
AT_ONCE = 500
SHOWN = 5

_GONE = "(s.hidden = 1 AND s.active_at = 0)"
_NEWEST = "messages AS n ON n.session_no = s.no AND n.seq = (SELECT max(seq) FROM messages WHERE session_no = s.no)"


def row_findings(
    store: ReadStore, *, deep: bool, advance: Callable[[int], None] = lambda _rows: None
) -> Iterator[Finding]:
    """Everything here, in order."""
    yield check_finding(store, deep=deep, advance=advance)
    with store.snapshot():
        yield from number_findings(store)
        yield from floor_findings(store)
        yield from activity_findings(store)
        yield from body_findings(store)
        if deep:
            yield from order_findings(store)


def check_finding(store: ReadStore, *, deep: bool, advance: Callable[[int], None]) -> Finding:
    """The check that every message carries."""
    total = _number(store, "SELECT count(*) FROM messages")
    failed: list[int] = []
    checked = 0
    for ids in _every_id(store) if deep or total <= SAMPLE else _sampled_ids(store):
        with store.snapshot():
            failed += failed_rows(store, ids)
        checked += len(ids)
        advance(len(ids))
    if failed:
        which = ", ".join(map(str, failed[:SHOWN])) + (", …" if len(failed) > SHOWN else "")
        differ = "does not match its check" if len(failed) == 1 else "do not match their check"
        return Finding(
            code="message_check_failed",
            severity=Severity.DAMAGE,
            object="messages",
            sentence=f"{plural(len(failed), 'message')} of {checked:,} looked at {differ} ({which}): the content is "
            "not "
            "what was written. A copy made now carries the same damage; keep older backups.",
            facts={"failed": len(failed), "checked": checked, "messages": failed[:100]},
            next_command=recover_command(store.path),
        )
    part = "" if checked >= total else f", a sample of {total:,}; --deep checks all"
    return Finding(
        code="message_checks",
        severity=Severity.OK,
        object="messages",
        sentence=f"{plural(checked, 'message')} {'matches its' if checked == 1 else 'match their'} check{part}.",
        facts={"failed": 0, "checked": checked, "messages": []},
    )


def number_findings(store: Reader) -> list[Finding]:
    """Messages of a session are numbered 1, 2, ... without holes but for those that were deleted singly."""
    rows = store.rows(
        "SELECT s.id, c.rows, c.newest, s.deleted_messages FROM (SELECT session_no, count(*) AS rows, max(seq) AS "
        "newest"
        f" FROM messages GROUP BY session_no) AS c JOIN sessions AS s ON s.no = c.session_no WHERE NOT {_GONE}"
        " AND c.rows <> c.newest - s.deleted_messages"
    )
    if not rows:
        sentence = "The messages of every session are numbered without holes."
        return [Finding(code="message_numbers", severity=Severity.OK, object="messages", sentence=sentence)]
    return [
        _problem(
            "messages_missing", "messages",
            f"{plural(len(rows), 'session')} {'has' if len(rows) == 1 else 'have'} another number of messages than "
            "their "
            f"numbers say, the first {rows[0][0]} ({rows[0][1]} of {rows[0][2] - rows[0][3]}): rows were taken out "
            "or put "
            "in by another program.",
            {"sessions": [str(row[0]) for row in rows[:100]]},
            recover_command(store.path),
        )
    ]


def floor_findings(store: Reader) -> list[Finding]:
    """Ids are never given twice: the floors are not below what was deleted or trimmed."""
    floor, newest, deleted = store.rows(
        "SELECT message_floor, coalesce((SELECT max(id) FROM messages), 0), coalesce((SELECT max(CAST(k.value AS "
        "INTEGER))"
        " FROM deletions AS d, json_each(d.keys) AS k WHERE d.kind = 'message'), 0) FROM store"
    )[0]
    if max(floor, newest) >= deleted:
        sentence = f"The next message gets id {max(floor, newest) + 1}, above every id that was ever used."
        return [Finding(code="message_ids", severity=Severity.OK, object="store", sentence=sentence)]
    return [
        _problem(
            "message_floor_low", "store",
            f"Message {deleted} was deleted, and the next message would get an id below it: what refers to deleted "
            "messages could come to mean new ones.",
            {"message_floor": floor, "newest": newest, "deleted": deleted}, recover_command(store.path),
        )
    ]


def activity_findings(store: Reader) -> list[Finding]:
    """`active_at` is at most a minute behind the newest message; lists go by it."""
    rows = store.rows(
        f"SELECT s.id FROM sessions AS s JOIN {_NEWEST} WHERE NOT {_GONE} AND s.state = 'open'"
        " AND n.created_at >= s.active_at + 60 LIMIT 100"
    )
    if not rows:
        sentence = "The last activity of every session is what its newest message says."
        return [Finding(code="activity", severity=Severity.OK, object="sessions", sentence=sentence)]
    return [
        _problem(
            "activity_behind", "sessions",
            f"{plural(len(rows), 'session')} {'was' if len(rows) == 1 else 'were'} active later than the list knows, "
            "the "
            f"first {rows[0][0]}: it is listed too far down.",
            {"sessions": [str(row[0]) for row in rows]}, "",
        )
    ]


def body_findings(store: Reader) -> list[Finding]:
    """Bodies and shared texts that nothing uses, or that are gone."""
    unused = _number(store, "SELECT count(*) FROM bodies AS b WHERE NOT EXISTS"
                            " (SELECT 1 FROM messages AS m WHERE m.body_no = b.no)")
    missing = _number(store, "SELECT count(*) FROM messages AS m WHERE m.body_no IS NOT NULL AND NOT EXISTS"
                             " (SELECT 1 FROM bodies AS b WHERE b.no = m.body_no)")
    texts = _number(store, "SELECT count(*) FROM shared_texts AS t WHERE NOT EXISTS (SELECT 1 FROM sessions AS s WHERE"
                           " s.prompt_no = t.no) AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.tools_no = t.no)"
                           " AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.model_config_no = t.no)")
    facts = {"unused_bodies": unused, "missing_bodies": missing, "unused_texts": texts}
    found = []
    if missing:
        found.append(
            Finding(
                code="bodies_missing",
                severity=Severity.DAMAGE,
                object="bodies",
                sentence=f"The bodies of {plural(missing, 'message')} are gone; what is left of each is its first "
                "240 characters.",
                facts=facts,
                next_command=recover_command(store.path),
            )
        )
    if unused or texts:
        found.append(
            Finding(
                code="bodies_unused",
                severity=Severity.INFO,
                object="bodies",
                sentence=f"{plural(unused, 'body', 'bodies')} and {plural(texts, 'shared text')} are used by nothing "
                "and "
                "only take room.",
                facts=facts,
            )
        )
    if not found:
        sentence = "Every body and shared text is used, and none is missing."
        found.append(Finding(code="bodies", severity=Severity.OK, object="bodies", sentence=sentence, facts=facts))
    return found


def order_findings(store: Reader) -> list[Finding]:
    """Within a session ids and tool-call counts rise with the numbers, and an edit is undone in its own session."""
    disorder = store.rows(
        "SELECT DISTINCT s.id FROM (SELECT session_no, id < lag(id) OVER w AS falls, calls < lag(calls) OVER w AS drops"
        " FROM messages WINDOW w AS (PARTITION BY session_no ORDER BY seq)) AS o JOIN sessions AS s ON s.no = "
        "o.session_no"
        " WHERE o.falls OR o.drops LIMIT 100"
    )
    strange = _number(store, "SELECT count(*) FROM view_edits AS r JOIN view_edits AS e ON e.id = r.undoes"
                             " WHERE r.session_no <> e.session_no OR e.action = 'restore'")
    if not disorder and not strange:
        sentence = "Messages and edits of every session are in order."
        return [Finding(code="order", severity=Severity.OK, object="messages", sentence=sentence)]
    found = []
    if disorder:
        found.append(
            _problem(
                "messages_out_of_order", "messages",
                f"The messages of {plural(len(disorder), 'session')} are out of order, the first {disorder[0][0]}.",
                {"sessions": [str(row[0]) for row in disorder]}, command("sessions export", store.path, "-"),
            )
        )
    if strange:
        found.append(
            _problem(
                "edits_strange", "view_edits",
                f"{plural(strange, 'edit undoes', 'edits undo')} one of another session, or another undoing.", {}, "",
            )
        )
    return found


def _problem(code: str, what: str, sentence: str, facts: dict[str, object], next_command: str) -> Finding:
    return Finding(
        code=code, severity=Severity.WARNING, object=what, sentence=sentence, facts=facts, next_command=next_command
    )


def _every_id(store: Reader) -> Iterator[list[int]]:
    after = 0
    while ids := [int(row[0]) for row in store.rows("SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?",
                                                    (after, AT_ONCE))]:
        rising = [one for one in ids if one > after]
        yield rising
        if len(rising) < len(ids) or ids != sorted(ids):
            return  # a damaged tree: to go on from here could be to go round for ever; its pages are a finding anyway
        after = ids[-1]


def _sampled_ids(store: Reader) -> Iterator[list[int]]:
    """Ids spread over all of them: the same each time, so that a finding can be looked at again."""
    low, high = store.rows("SELECT min(id), max(id) FROM messages")[0]
    found: dict[int, None] = {}
    for start in spread(low, high, SAMPLE):
        row = store.row("SELECT id FROM messages WHERE id >= ? ORDER BY id LIMIT 1", (start,))
        if row is not None:
            found[int(row[0])] = None
    ids = list(found)
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]


def _number(store: Reader, sql: str) -> int:
    row = store.row(sql)
    return 0 if row is None else int(row[0])
