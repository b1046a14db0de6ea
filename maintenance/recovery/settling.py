"""What a native store says of messages that damage took: its counters agree with its rows, and the loss is on record.

Invariant: after this every session has as many messages as its numbers say, and a number or id of a lost message is not
given again. The record names the ids in its detail and not among its keys: those would count as deleted on purpose, and
a capture or a copy that still has the messages would be taken for done with.

Not for: sessions whose numbers were wrong in a store that was read whole: that is a finding, and stays one. Leaving the
counters as they were was rejected: doctor would name this recovery as the way out of what it had done, for ever.
"""

from __future__ import annotations

import json

from hermes_state.clock import Clock
from maintenance.recovery.filling import Filler, TableFiller

ACTOR = "hermes-state sessions recover"
REASON = "lost to damage"
MOST_NAMED = 1000
# Sessions with another number of rows than their numbers say, as doctor counts them: number, missing rows.
_HOLES = """
SELECT s.no, c.newest - s.deleted_messages - c.rows FROM sessions AS s JOIN (
    SELECT session_no, count(*) AS rows, max(seq) AS newest FROM messages GROUP BY session_no
) AS c ON c.session_no = s.no WHERE c.rows <> c.newest - s.deleted_messages
"""
# Lost messages behind the last one that is there, as an index lists them: session, highest number, how many.
_TAILS = """
SELECT s.no, max(l.seq), count(*) FROM (
    SELECT key, json_extract(said, '$.session_no') AS no, json_extract(said, '$.seq') AS seq
    FROM _recovery_listed WHERE tab = ?
) AS l JOIN sessions AS s ON s.no = l.no
WHERE typeof(l.seq) = 'integer' AND NOT EXISTS (SELECT 1 FROM messages WHERE id = l.key)
AND l.seq > max(s.seq_floor, coalesce((SELECT max(seq) FROM messages WHERE session_no = s.no), 0)) GROUP BY s.no
"""


def settle(filler: Filler, messages: TableFiller, *, whole: bool, clock: Clock) -> None:
    """Make the counters agree and note the loss. `whole`: the table of messages was read whole, as it was."""
    if whole and not filler.notes.count("_recovery_apart", messages.number):
        return
    db = filler.db
    with filler.mending("counters") as due:
        if not due:
            return
        holes = [(int(no), int(missing)) for no, missing in db.rows(_HOLES)]
        tails = [(int(no), int(seq), int(count)) for no, seq, count in db.rows(_TAILS, (messages.number,))]
        if not holes and not tails:
            return
        for no, _missing in holes:
            db.execute(
                "UPDATE sessions SET deleted_messages = (SELECT max(seq) - count(*) FROM messages WHERE session_no = "
                "?1) WHERE no = ?1", (no,),
            )
        # What is missing at the end counts as deleted with the next message, as after single deletes.
        for no, seq, _count in tails:
            db.execute("UPDATE sessions SET seq_floor = max(seq_floor, ?) WHERE no = ?", (seq, no))
        lost = sum(max(0, missing) for _no, missing in holes) + sum(count for _no, _seq, count in tails)
        named = [int(key) for (key,) in db.rows(
            "SELECT key FROM _recovery_listed WHERE tab = ? AND typeof(key) = 'integer' AND NOT EXISTS (SELECT 1 FROM "
            f"messages WHERE id = key) ORDER BY key LIMIT {MOST_NAMED}", (messages.number,),
        )]
        detail = {"sessions": len({one[0] for one in (*holes, *tails)}), "messages": lost, "message_ids": named}
        db.execute(
            "INSERT INTO deletions (made_at, actor, reason, kind, keys, rows, detail) VALUES (?, ?, ?, 'message', '[]',"
            " ?, ?)", (clock.now(), ACTOR, REASON, lost, json.dumps(detail, separators=(",", ":"))),
        )
        (entry,) = db.rows("SELECT max(id) FROM deletions")[0]
        settled = sorted({one[0] for one in (*holes, *tails)})
        filler.decisions += [{"what": "counters_settled", "table": "sessions", "key": no} for no in settled]
        filler.decisions.append({"what": "loss_recorded", "table": "deletions", "key": entry, "messages": lost})
