"""Obligations of one store in two files: which of two rows stands, and what must not be sent again.

Invariant: a verdict that either file has stands; of two rows without one the later claim does. What may have been sent
since is never due as if nothing had happened: at most once it is `unknown`, at least once it is due and marked as
recovered. No fence falls, no number is given twice, and an id that may have been forgotten is too old, never new.

Not for: sending or judging senders (`hermes_state.outbox`). Matching rows by their number was rejected: after a restore
both files may have given one number to different obligations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hermes_state.errors import InvalidInput
from hermes_state.outbox.append import check_of as check
from hermes_state.outbox.schedules import Schedule

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Row = dict[str, Any]
Ask = Callable[[str], list[tuple[Any, ...]]]
TABLES = frozenset({"outbox", "outbox_horizon"})
# Rows read at once: as many as their largest payload leaves room for.
MOST_ROWS, MOST_BYTES = 1000, 8 << 20
# What is recorded of an obligation, in the order in which its check covers it.
CHECKED = ("kind", "transport", "target", "lane", "batch", "priority", "policy", "payload")
# What a verdict says of a row that was judged here.
SINCE = "it may have been sent since the copy that it comes from was made"
CLAIMED = "its sender had it when the content of the store was replaced"
FORGOTTEN = "the store that was replaced had settled it, and remembered no more how"
_STANDING = (
    "state", "attempts", "recoveries", "refunds", "due_at", "due_within", "fence", "owner", "renewals", "boot_id",
    "time_namespace", "expires_boottime", "term_seconds", "claimed_at", "settled_at", "verdict", "target", "payload",
    "payload_bytes", "payload_check",
)


class Writer(Protocol):
    """What rows are put into: a transaction, or the file that a recovery fills."""

    def execute(self, sql: str, values: Any = ...) -> Any: ...

    def row(self, sql: str, values: Any = ...) -> tuple[Any, ...] | None: ...

    def rows(self, sql: str, values: Any = ...) -> list[tuple[Any, ...]]: ...


class Looking:
    """A reader in the place of a writer: what would be done is counted, and nothing is."""

    def __init__(self, reader: Reader) -> None:
        self.row, self.rows = reader.row, reader.rows

    def execute(self, _sql: str, _values: Any = ()) -> None:
        """Nothing."""


@dataclass(kw_only=True)
class Carried:
    """What became of obligations, in rows."""

    verdicts: int = 0  # settled in the other file, and so here
    brought: int = 0  # not settled in either, with what the other file knew of attempts and claims
    added: int = 0  # only in the other file
    unknown: int = 0  # at most once: they may have been sent, and never are again
    marked: int = 0  # at least once: they may have been sent, and are due again, marked
    ended: int = 0  # settled and forgotten in the other file: not sent again
    touched: list[str] = field(default_factory=list)  # their dedupe ids, for the feed of changes

    def document(self) -> dict[str, int]:
        """The counts."""
        return {name: count for name, count in asdict(self).items() if name != "touched"}


def has_outbox(ask: Ask) -> bool:
    """Whether a file has the tables."""
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= TABLES


def horizon_of(ask: Ask) -> float:
    """Ids made up to then may have been forgotten; 0 when none was."""
    return float(ask("SELECT coalesce(max(forgotten_to), 0) FROM outbox_horizon")[0][0])


def last_number(ask: Ask) -> int:
    """The highest number that was given out."""
    (given,) = ask("SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0),"
                   " coalesce((SELECT max(id) FROM outbox), 0))")[0]
    return int(given)


def out_of_order(ask: Ask, *, most: int = -1) -> list[tuple[int, str, int]]:
    """Obligations to be sent that wrongly come after another in their lane, or do not: number, id, what is right.

    `most`: how many rows of lanes are looked at, -1 for all.
    """
    found, last = [], None
    for number, name, lane, follows in ask(
        "SELECT id, dedupe_id, lane, follows FROM outbox WHERE settled_at IS NULL AND lane IS NOT NULL"
        f" ORDER BY lane, priority DESC, id LIMIT {most}"
    ):
        right = int(lane == last)
        if follows != right:
            found.append((int(number), str(name), right))
        last = lane
    alone = "SELECT id, dedupe_id FROM outbox WHERE state = 'pending' AND lane IS NULL AND follows <> 0"
    return found + [(int(number), str(name), 0) for number, name in ask(alone)]


def portions(ask: Ask) -> Iterator[list[Row]]:
    """All obligations, in the order in which they were recorded."""
    names = [str(name) for (name,) in ask("SELECT name FROM pragma_table_info('outbox')")]
    last = -1
    all_of = f"SELECT {', '.join(names)} FROM outbox NOT INDEXED"
    (largest,) = ask("SELECT coalesce(max(payload_bytes), 0) FROM outbox NOT INDEXED WHERE payload IS NOT NULL")[0]
    limit = max(1, min(MOST_ROWS, MOST_BYTES // max(1, int(largest))))
    while rows := ask(f"{all_of} WHERE id > {last} ORDER BY id LIMIT {limit}"):
        found = [dict(zip(names, row, strict=True)) for row in rows]
        yield found
        last = int(found[-1]["id"])


class Carrier:
    """Brings the obligations of another file of the same store into this one."""

    def __init__(self, tx: Writer, *, at: float, leap: int = 1) -> None:
        """`at` is now; `leap`: by how much the fence of a row rises of which later claims are not known."""
        self._tx, self._at, self._leap = tx, at, leap
        self.carried = Carried()
        self._names = [str(name) for (name,) in tx.rows("SELECT name FROM pragma_table_info('outbox')")]
        self._numbers: dict[int, int] = {}
        self._shifted = False
        self._seen: set[str] = set()
        self._doubted: set[str] = set()

    def take(self, rows: Iterable[Mapping[str, Any]], *, certain: bool) -> None:
        """Take rows of the other file, in its order, after `raise_numbers`.

        `certain`: it has everything that was known last, and nothing came after it.
        """
        rows = list(rows)
        here = {
            str(dedupe_id): rest for dedupe_id, *rest in self._tx.rows(
                "SELECT dedupe_id, id, fence, settled_at, policy FROM outbox"
                " WHERE dedupe_id IN (SELECT value FROM json_each(?))",
                (json.dumps([row["dedupe_id"] for row in rows]),),
            )
        }
        given = {number for (number,) in self._tx.rows(
            "SELECT id FROM outbox WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps([row["id"] for row in rows]),),
        )}
        for row in rows:
            self._seen.add(row["dedupe_id"])
            if row["dedupe_id"] not in here:
                # Once a number is given, later rows get new ones too: the order of recording is that of a lane.
                self._shifted = self._shifted or row["id"] in given
                self._add(row, certain)
                continue
            number, fence, settled_at, policy = here[row["dedupe_id"]]
            self._numbers[row["id"]] = number
            if settled_at is not None:
                continue
            if row["settled_at"] is not None:
                self._stand(number, row, fence=max(fence, row["fence"]))
                self._doubted.add(row["dedupe_id"])  # judged: also where it is only counted (`Looking`)
                self._count("verdicts", row["dedupe_id"])
            elif row["fence"] != fence and certain == (row["fence"] < fence):
                # It was claimed, and what is believed otherwise does not know of it.
                self.doubt(number, row["dedupe_id"], policy, SINCE, at_least=row["fence"])
            elif certain:
                self._stand(number, row, fence=row["fence"])
                if row["state"] == "claimed":
                    self.doubt(number, row["dedupe_id"], row["policy"], CLAIMED)
                elif row["fence"] > fence:
                    self._count("brought", row["dedupe_id"])

    def doubt(self, number: int, dedupe_id: str, policy: str, why: str, *, at_least: int = 0) -> None:
        """An obligation that is not settled and may have been sent: by its policy."""
        judge(self._tx, number, policy, why, at=self._at, at_least=at_least, leap=self._leap)
        self._doubted.add(dedupe_id)
        self._count("unknown" if policy == "at_most_once" else "marked", dedupe_id)

    def doubt_all(self) -> None:
        """Judge everything that is not settled: of the other file not all could be read."""
        for number, dedupe_id, policy, _made_at in self._not_settled():
            if dedupe_id not in self._doubted:
                self.doubt(number, dedupe_id, policy, SINCE)

    def doubt_the_rest(self, *, forgotten_to: float, given: int) -> None:
        """Judge what is not settled here and was not in the other file, of which all was taken.

        `forgotten_to`: its horizon, `given`: the last number that it gave. A number that it gave and that nothing has
        there is of something settled and forgotten, since nothing else is ever deleted.
        """
        for number, dedupe_id, policy, made_at in self._not_settled():
            if dedupe_id in self._seen:
                continue
            if made_at > forgotten_to or number > given or number in self._numbers:
                self.doubt(number, dedupe_id, policy, SINCE)
                continue
            self._tx.execute(
                "UPDATE outbox SET state = ?, owner = NULL, expires_boottime = NULL, fence = fence + ?, verdict = ?,"
                " settled_at = ? WHERE id = ?",
                (
                    "unknown" if policy == "at_most_once" else "suppressed", self._leap,
                    json.dumps({"verdict": "Forgotten", "why": FORGOTTEN, "at": self._at}), self._at, number,
                ),
            )
            self._count("ended", dedupe_id)

    def _not_settled(self) -> list[tuple[Any, ...]]:
        return self._tx.rows(
            "SELECT id, dedupe_id, policy, made_at FROM outbox WHERE settled_at IS NULL ORDER BY id"
        )

    def raise_horizon(self, to: float) -> None:
        """Refuse ids made at or before `to` whose row is not here."""
        if to > 0:
            raise_horizon(self._tx, to)

    def raise_numbers(self, to: int) -> None:
        """Give no number again that the other file gave."""
        raise_numbers(self._tx, to)

    def _add(self, row: Mapping[str, Any], certain: bool) -> None:
        repeats = row["retry_of"]
        if repeats is not None:
            repeats = self._numbers.get(repeats)
        said = {name: value for name, value in row.items() if name in self._names}
        said |= {"id": None if self._shifted else row["id"], "retry_of": repeats}
        self._tx.execute(
            f"INSERT INTO outbox ({', '.join(said)}) VALUES ({', '.join('?' * len(said))})", list(said.values())
        )
        self._count("added", row["dedupe_id"])
        number = row["id"]
        if self._shifted:
            found = self._tx.row("SELECT id FROM outbox WHERE dedupe_id = ?", (row["dedupe_id"],))
            number = row["id"] if found is None else found[0]  # None: only counted (`Looking`)
        self._numbers[row["id"]] = number
        if row["settled_at"] is None and (not certain or row["state"] == "claimed"):
            self.doubt(number, row["dedupe_id"], row["policy"], CLAIMED if certain else SINCE)

    def _stand(self, number: int, row: Mapping[str, Any], *, fence: int) -> None:
        # Its texts too: there they may have been blanked, or scrubbed of a secret.
        said = {name: row[name] for name in _STANDING} | {"fence": fence}
        sets = ", ".join(f"{name} = ?" for name in said)
        self._tx.execute(f"UPDATE outbox SET {sets} WHERE id = ?", [*said.values(), number])

    def _count(self, what: str, dedupe_id: str) -> None:
        setattr(self.carried, what, getattr(self.carried, what) + 1)
        self.carried.touched.append(dedupe_id)


def judge(
    tx: Writer, number: int, policy: str, why: str, *, at: float, at_least: int = 0, leap: int = 1
) -> None:
    """An obligation that is not settled and may have been sent: never again, or again and marked, by its policy.

    Its fence rises by `leap` above itself and `at_least`.
    """
    once = policy == "at_most_once"
    tx.execute(
        "UPDATE outbox SET state = ?, owner = NULL, expires_boottime = NULL, recoveries = recoveries + 1,"
        " fence = max(fence, ?) + ?, verdict = ?, settled_at = ? WHERE id = ? AND settled_at IS NULL",
        (
            "unknown" if once else "pending", at_least, leap,
            json.dumps({"verdict": "Lost", "why": why, "at": at}), at if once else None, number,
        ),
    )


def raise_horizon(tx: Writer, to: float) -> None:
    """Refuse ids made at or before `to` (epoch seconds UTC) whose row is not here."""
    tx.execute(
        "INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, ?)"
        " ON CONFLICT (one) DO UPDATE SET forgotten_to = max(forgotten_to, excluded.forgotten_to)", (to,),
    )


def raise_numbers(tx: Writer, to: int) -> None:
    """Give no number up to `to`."""
    raise_sequence(tx, "outbox", to)


def raise_sequence(tx: Writer, table: str, to: int) -> None:
    """Give no number of a table up to `to`."""
    if tx.row("SELECT 1 FROM sqlite_sequence WHERE name = ?", (table,)) is None:
        tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, to))
    else:
        tx.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (to, table))


def obligations_lacking(copy: Reader, live: Reader) -> int:
    """How many obligations of a copy the store lacks and cannot have forgotten, or still owes with a verdict there."""
    if not has_outbox(copy.rows):
        return 0
    here = has_outbox(live.rows)
    forgotten = horizon_of(live.rows) if here else 0.0
    count = 0
    for name, made_at, settled_at in copy.iterate("SELECT dedupe_id, made_at, settled_at FROM outbox"):
        kept = live.row("SELECT settled_at FROM outbox WHERE dedupe_id = ?", (name,)) if here else None
        count += made_at > forgotten if kept is None else settled_at is not None and kept[0] is None
    return count


def is_json(text: Any) -> bool:
    """Whether a payload or a verdict can be read."""
    try:
        json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_schedule(text: Any) -> bool:
    """Whether a schedule can be read."""
    try:
        Schedule.from_json(text)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return True


def check_of(row: Mapping[str, Any]) -> str:
    """The check of what a row says, as it was written when the obligation was recorded."""
    return check(*(row[name] for name in CHECKED))


def is_as_recorded(row: Mapping[str, Any]) -> bool:
    """Whether a row whose payload is there says what was recorded."""
    return bool(row["payload_check"] == check_of(row))
