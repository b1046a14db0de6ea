"""What a recovered store says of its compactions: none runs in it, and a summary whose messages are lost says so.

Invariant: no summary and no clip is thrown away; of messages that are lost a summary may be all that is left, so its
generation stays done and notes in `error` how many of them are there. A row that another program's pass still works on
in the damaged store ends here: its owner has another file. A session whose head is lost is seen through its newest
finished generation, which is what it was seen through unless a person had gone back.

Not for: references to generations that are lost (`parents` clears them: an older view, or the whole history). Making
the digest anew was rejected: it would say that the summary was made of what happens to be left.
"""

from __future__ import annotations

import json

from hermes_state.clock import Clock
from maintenance.dialects.native.compaction_source import source_of
from maintenance.dialects.native.compactions import SOURCE_LOST
from maintenance.recovery.filling import Filler

_WAS_RUNNING = {"code": "recovered", "message": "It was running when its store was recovered."}
# A commit makes the head with the generation, and going back leaves the row: without one it was lost.
_WITHOUT_HEAD = (
    "SELECT session_no, max(id) FROM compactions AS c WHERE state = 'done' AND NOT EXISTS (SELECT 1 FROM"
    " compaction_heads AS h WHERE h.session_no = c.session_no) GROUP BY session_no"
)


def settle_compactions(filler: Filler, clock: Clock) -> None:
    """End what ran, and note what is lost. One transaction: nothing or everything of it is done."""
    db = filler.db
    with filler.mending("compactions") as due:
        if not due:
            return
        found = db.rows("SELECT id FROM compactions WHERE state = 'running' ORDER BY id")
        running = [int(number) for (number,) in found]
        for number in running:
            db.execute(
                "UPDATE compactions SET state = 'failed', error = ?, ended_at = ? WHERE id = ?",
                (json.dumps(_WAS_RUNNING, separators=(",", ":")), clock.now(), number),
            )
        for number, digest, wanted in db.rows(
            "SELECT id, source_digest, source_rows FROM compactions WHERE state = 'done' AND error IS NULL ORDER BY id"
        ):
            source = source_of(db, int(number))
            if source is None or source.digest == digest:
                continue
            said = f"{source.rows} of the {wanted} messages that it stands for were found as they were."
            note = {"code": SOURCE_LOST, "message": said, "found": source.rows}
            db.execute(
                "UPDATE compactions SET error = ? WHERE id = ?", (json.dumps(note, separators=(",", ":")), number)
            )
            filler.decisions.append({"what": "source_lost", "table": "compactions", "key": int(number), **note})
        made = db.rows(_WITHOUT_HEAD)
        db.executemany("INSERT INTO compaction_heads (session_no, compaction_id) VALUES (?, ?)", made)
        filler.decisions += [
            {"what": "head_made", "table": "compaction_heads", "key": int(no), "compaction": int(number)}
            for no, number in made
        ]
        filler.decisions += [{"what": "compaction_ended", "table": "compactions", "key": number} for number in running]
