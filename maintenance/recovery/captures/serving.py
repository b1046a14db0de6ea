"""Gateways of a native capture: what a lost WAL ended stays ended, and nobody is let in by it.

Invariant: a revocation, a removal, a new enrollment that only the lost WAL has takes effect in the store: the instance
may not connect until it is enrolled again, since its new credential went to a plugin and may be anybody's by now.
Turns, questions, stops and operations that ended there have ended. An instance that only the capture has comes back
revoked. What the store knows later stays, and merging again changes nothing.

Not for: turns that only the capture has: their gateways say what goes on when they connect. Taking credentials over was
rejected: the store cannot know what came after the capture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.turns.ending import end_of_instance
from maintenance.dialects.native import owed, serving

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.recovery.captures.view import View

ACTOR = "hermes-state sessions captures"
ENDED = "a WAL that was lost had revoked it, or enrolled it again"
ONLY_THERE = "only a WAL that was lost had it"


def merge_serving(core: Core, view: View, *, at: float, write: bool) -> int:
    """Bring in what only the capture holds of gateways; returns how many rows it changes or adds. `at` is now."""
    with view.opened(serving.has_instances) as both:
        if both is None:
            return 0
        whole, before = both
        if not write:
            with core.reader() as reader:
                if not serving.has_instances(reader.rows):
                    return int(whole.rows("SELECT count(*) FROM gateway_instances")[0][0])
                return _Merge(owed.Looking(reader), whole, before, at).run()

        def work(tx: Transaction) -> int:
            one = _Merge(tx, whole, before, at)
            with serving.unguarded(tx, sorted(serving.TABLES)):
                done = one.run()
                serving.match_threads(tx)
            for instance_id in one.ended:
                state = tx.rows("SELECT state FROM gateway_instances WHERE instance_id = ?", (instance_id,))[0][0]
                end_of_instance(tx, instance_id, ENDED, for_good=state == "removed", at=at)
                record(tx, "gateway_instances", instance_id, "update", at)
            return done

        return core.write(work, durability="power", deadline_seconds=60.0)


class _Merge:
    def __init__(self, tx: owed.Writer, whole: Reader, before: Reader | None, at: float) -> None:
        self._tx, self._whole, self._before, self._at = tx, whole, before, at
        self.ended: list[str] = []  # instances that may not connect any more, or came

    def run(self) -> int:
        """Everything, in the order in which rows refer to each other; how many rows."""
        done = self._instances() + self._tokens() + self._tombstones() + self._bindings() + self._deliveries()
        serving.hold_bindings(self._tx)
        return done + self._endings()

    def _instances(self) -> int:
        tx, done = self._tx, 0
        into = serving.columns(tx.rows, "gateway_instances")
        for row in serving.rows_of(self._whole.rows, "gateway_instances"):
            name = row["instance_id"]
            there = self._here("gateway_instances", row)
            if there is None:
                if self._was_before("gateway_instances", row):
                    continue  # the store had it, and freed its id
                new = {key: value for key, value in serving.free_nickname(tx, row).items() if key != "no"}
                if new["state"] == "enrolled":
                    new |= {
                        "state": "revoked", "state_at": self._at, "state_actor": ACTOR, "state_reason": ONLY_THERE,
                    }
                serving.put(tx, "gateway_instances", new, into=into)
            elif row["state"] in ("revoked", "removed") and serving.later_of("gateway_instances", there, row):
                tx.execute("DELETE FROM gateway_credentials WHERE instance_id = ?", (name,))
                serving.put(tx, "gateway_instances", serving.free_nickname(tx, row), into=into)
            elif there["state"] == "enrolled" and self._credential_ended(name):
                serving.revoke(tx, name, ENDED, actor=ACTOR, at=self._at)
            else:
                continue
            self.ended.append(name)
            done += 1
        return done

    def _credential_ended(self, instance_id: str) -> bool:
        """Whether the WAL ended the credential that the store still has."""
        sql = "SELECT credential_digest, issued_at FROM gateway_credentials WHERE instance_id = ?"
        here = self._tx.row(sql, (instance_id,))
        there = self._whole.row(sql, (instance_id,))
        if here is None or (there is not None and there[0] == here[0]):
            return False
        if self._before is not None:
            was = self._before.row(sql, (instance_id,))
            return was is not None and was[0] == here[0]
        later = [one[1] for one in (there,) if one is not None] + [at for (at,) in self._whole.rows(
            "SELECT created_at FROM enrollment_tokens WHERE instance_id = ?", (instance_id,)
        )]
        return any(at > here[1] for at in later)

    def _tokens(self) -> int:
        done = 0
        for row in serving.rows_of(self._tx.rows, "enrollment_tokens", "state = 'pending'"):
            there = self._whole.row(
                "SELECT state FROM enrollment_tokens WHERE token_digest = ?", (row["token_digest"],)
            )
            swept = there is None and self._before is not None and self._was_before("enrollment_tokens", row)
            if swept or (there is not None and there[0] != "pending"):
                done += serving.forget_tokens(
                    self._tx, at=self._at, which="token_digest = ?", values=(row["token_digest"],)
                )
        return done

    def _tombstones(self) -> int:
        done = 0
        for row in serving.rows_of(self._whole.rows, "tombstones", f"kind = '{serving.KIND}'"):
            here = self._tx.row("SELECT state FROM gateway_instances WHERE instance_id = ?", (row["key"],))
            freed = here is None and self._was_before("tombstones", row, keys=("kind", "key"))
            if not freed and (here is None or here[0] == "removed" or row["key"] in self.ended):
                done += serving.keep_tombstone(self._tx, row)
        return done

    def _bindings(self) -> int:
        done, into = 0, serving.columns(self._tx.rows, "thread_bindings")
        for row in serving.rows_of(self._whole.rows, "thread_bindings"):
            if self._here("thread_bindings", row) is None and not self._was_before("thread_bindings", row) and (
                row["instance_id"] in self.ended or self._here("gateway_instances", row) is not None
            ):
                serving.put(self._tx, "thread_bindings", row, into=into)
                done += 1
        return done

    def _deliveries(self) -> int:
        done, into = 0, serving.columns(self._tx.rows, "home_deliveries")
        (forgotten,) = self._tx.rows("SELECT coalesce(max(forgotten_to), 0) FROM home_horizon")[0]
        for row in serving.rows_of(self._whole.rows, "home_deliveries"):
            if row["received_at"] > forgotten and self._here("home_deliveries", row) is None and (
                not self._was_before("home_deliveries", row)
            ):
                new = {key: value for key, value in row.items() if key != "no"}
                serving.put(self._tx, "home_deliveries", new, into=into)
                done += 1
        return done

    def _endings(self) -> int:
        return serving.take_endings(self._tx, self._whole.rows)

    def _here(self, table: str, row: owed.Row) -> dict[str, Any] | None:
        return serving.find(self._tx, table, row)

    def _was_before(self, table: str, row: owed.Row, *, keys: tuple[str, ...] = ()) -> bool:
        """Whether the store had this row before the WAL that was lost, so that it is gone there on purpose."""
        return self._before is not None and serving.find(self._before, table, row, keys) is not None
