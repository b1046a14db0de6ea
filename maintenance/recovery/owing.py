"""What a recovered store owes: nothing is sent because its row was found without what came after it.

Invariant: of two versions of an obligation the settled one stands, else the one that was claimed later; one that is not
settled and not certain, or that a sender had, is judged by its policy; one whose content is not what was recorded is
sent by nobody. Where obligations may be lost, every id made until now is too old unless its row is here. No row is
thrown away: what of a row is no JSON any more is kept as a text.

Not for: a store that takes recovered content (`maintenance.replacement.owing`). Leaving rows as they were found was
rejected: an older version of a page shows a message as owed that has been sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.outbox.schedules import Schedule
from hermes_state.outbox.states import Event
from maintenance.dialects.native import owed

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.interop.typed import Cell
    from maintenance.recovery.filling import Filler, TableFiller
    from maintenance.recovery.ladder import Fate

TABLE, HORIZON = "outbox", "outbox_horizon"
STEP = 3  # the schema step that made the tables
HAD = "a sender had it when its store was damaged"
NOT_SURE = "its row was recovered and is not certain; it may have been sent"
HIDDEN = "commits of its store may be lost; it may have been sent"
ALTERED = "its content is not what was recorded"
NOT_READ = "its content cannot be read"
RAISED = "raised to the time of the recovery"
UNREADABLE = "what was said of it cannot be read"


def later_of(names: Sequence[str], there: Sequence[Cell], other: Sequence[Cell]) -> bool | None:
    """Whether `other` comes after `there`, two versions of one obligation; None: they do not say."""
    one, two = dict(zip(names, there, strict=True)), dict(zip(names, other, strict=True))
    if one["dedupe_id"] != two["dedupe_id"]:
        return None
    if (one["settled_at"] is None) != (two["settled_at"] is None):
        return two["settled_at"] is not None
    if isinstance(one["fence"], int) and isinstance(two["fence"], int) and one["fence"] != two["fence"]:
        return two["fence"] > one["fence"]
    return None


def settle_owed(
    filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], *, hidden: bool, clock: Clock
) -> None:
    """Judge every obligation of a native result. `hidden`: commits were found that SQLite does not see.

    One transaction, before the list of schema steps is completed: it says whether there was an outbox at all.
    """
    if TABLE not in fillers:
        return
    db, one, at = filler.db, fillers[TABLE], clock.now()
    with filler.mending("obligations") as due:
        steps = {int(number) for (number,) in db.rows("SELECT number FROM migrations")}
        if not due or (steps and max(steps) < STEP):
            return
        for (number,) in db.rows("SELECT id FROM outbox ORDER BY id"):
            _judge(filler, one, int(number), hidden, at)
        _order_lanes(filler)
        lost = [name for name in sorted(owed.TABLES) if name in fates and not fates[name].whole]
        apart = filler.notes.count("_recovery_apart", one.number)
        if lost or apart or hidden:
            if (there := fillers.get(HORIZON)) is not None:
                if db.row("SELECT 1 FROM outbox_horizon") is None:
                    filler.notes.made(there.number, 1)
                else:
                    filler.notes.uncertain(there.number, 1, RAISED, 0)
            owed.raise_horizon(db, at)
            filler.decisions.append({
                "what": "horizon_raised", "table": HORIZON, "key": 1, "to": at,
                "sentence": "Obligations may be lost: ids made before this recovery whose row is not here are refused"
                " as too old.",
            })
        _raise_numbers(filler, one)


def _judge(filler: Filler, one: TableFiller, number: int, hidden: bool, at: float) -> None:
    db = filler.db
    cells = one.current(number)
    if cells is None:
        return
    row: dict[str, Any] = dict(zip(one.table.names, cells, strict=True)) | {"id": number}
    altered = row["payload"] is not None and not owed.is_as_recorded(row)
    if altered:
        filler.notes.uncertain(one.number, number, ALTERED, 0)
    mended = {}
    for name in ("payload", "verdict"):
        if row[name] is not None and not owed.is_json(row[name]):
            mended[name] = json.dumps(str(row[name]), ensure_ascii=False)
    if "verdict" in mended:
        mended["verdict"] = json.dumps({"verdict": "Lost", "why": UNREADABLE, "was": str(row["verdict"]), "at": at})
    # What stands in its place now is not what was recorded, though the text it was made of may be.
    unread = "payload" in mended
    if not owed.is_schedule(row["schedule"]):
        mended["schedule"], altered = Schedule(delays=()).to_json(), True
    if mended:
        sets = ", ".join(f"{name} = ?" for name in mended)
        db.execute(f"UPDATE outbox SET {sets} WHERE id = ?", [*mended.values(), number])
        filler.decisions.append({"what": "obligation_mended", "table": TABLE, "key": number, "columns": [*mended]})
    if row["settled_at"] is not None:
        return
    doubt = filler.notes.doubt(one.number, number) is not None
    why = ALTERED if altered else NOT_READ if unread else HAD if row["state"] == "claimed" else ""
    why = why or (NOT_SURE if doubt else HIDDEN if hidden else "")
    if not why:
        return
    # What is not what was recorded must not go out, however often it may be sent.
    policy = "at_most_once" if altered or unread else row["policy"]
    owed.judge(db, number, policy, why, at=at)
    filler.decisions.append({
        "what": "obligation_unknown" if policy == "at_most_once" else "obligation_marked", "table": TABLE,
        "key": number, "dedupe_id": str(row["dedupe_id"]), "why": why,
    })


def suppress(filler: Filler, ended: Mapping[str, str], *, but: str, at: float) -> None:
    """End what waits for transports that will not be up, all but obligations of the kind `but`. `ended`: why, by
    transport. One pass for all of them: there is no index yet."""
    if not ended:
        return
    for number, name, transport in filler.db.rows(
        "SELECT id, dedupe_id, transport FROM outbox WHERE state = 'pending' AND kind <> ? ORDER BY id", (but,)
    ):
        if (why := ended.get(transport)) is None:
            continue
        filler.db.execute(
            "UPDATE outbox SET state = 'suppressed', verdict = ?, settled_at = ? WHERE id = ?",
            (json.dumps({"verdict": str(Event.SUPPRESS), "why": why, "at": at}), at, number),
        )
        filler.decisions.append({
            "what": "obligation_ended", "table": TABLE, "key": number, "dedupe_id": str(name), "why": why,
        })
    _order_lanes(filler)


def _order_lanes(filler: Filler) -> None:
    """Say anew which rows follow another in their lane: the first of it may be lost or settled, and indexes and the
    triggers that keep it come later."""
    for number, _dedupe_id, right in owed.out_of_order(filler.db.rows):
        filler.db.execute("UPDATE outbox SET follows = ? WHERE id = ?", (right, number))


def _raise_numbers(filler: Filler, one: TableFiller) -> None:
    """Numbers of what is lost or was kept apart are never given again."""
    if (highest := filler.notes.highest(one.number)) > 0:
        owed.raise_numbers(filler.db, highest)
