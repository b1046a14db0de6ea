"""The outbox of a native store: what is owed, who is sending it, and rows that would stop or mislead a sender.

Invariant: only reads, and every look is bounded or goes by an index: a store that has settled a million obligations is
looked at as fast as one that owes three. What waits, whose sender died, or which nobody knows the end of is told and is
no problem of the store; content that is not what was recorded, texts that cannot be read and a horizon that has not
come yet, and a place in a lane that is not the row's are.

Not for: settling anything (the next claim does). Checking every payload each time was rejected: it reads all of them;
those that are still to be sent are checked, all with --deep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes_state.shell_words import shell_word
from maintenance.dialects.native import owed
from maintenance.dialects.native.guards import judge, owner_of
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, ReadStore
    from hermes_state.leases.states import Standing

# What is due for so long is called overdue: longer than any schedule rests before it tries again.
OVERDUE_SECONDS = 3600.0
# What is asked to be due later than so is told: reminders are rarer than wrong clocks.
FAR_SECONDS = 30 * 86_400.0
# How far a horizon may be in the future: as much as clocks of one machine are set by.
AHEAD_SECONDS = 60.0
MOST = 1000  # rows that a check looks at, the newest first, unless all are asked for
NAMED = 100  # in facts


def outbox_findings(store: ReadStore, clock: Clock, *, deep: bool) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if not owed.has_outbox(store.rows):
            yield _told("outbox", Severity.OK, "Nothing is owed: the tables come with the next schema step.", {})
            return
        problems = [*_content(store, deep=deep), *_order(store, deep=deep), *_horizon(store, clock)]
        yield from problems
        yield _counts(store, problems)
        yield from _waiting(store, clock)


def _counts(store: Reader, problems: list[Finding]) -> Finding:
    (settled,) = store.rows("SELECT count(*) FROM outbox WHERE settled_at IS NOT NULL")[0]
    (claimed,) = store.rows("SELECT count(*) FROM outbox WHERE state = 'claimed'")[0]
    (pending,) = store.rows("SELECT count(*) FROM outbox WHERE state = 'pending'")[0]
    sentence = f"{plural(pending, 'obligation')} to be sent, {claimed} being sent, {settled} settled." if (
        pending or claimed or settled
    ) else "Nothing is owed."
    facts = {"pending": pending, "claimed": claimed, "settled": settled, "problems": len(problems)}
    return _told("outbox", Severity.OK, sentence, facts)


def _waiting(store: Reader, clock: Clock) -> Iterator[Finding]:
    """What is late, what lost its sender, and what a person has to decide."""
    late = store.rows(
        "SELECT transport, count(*), min(due_at) FROM outbox WHERE state = 'pending' AND due_at <= ?"
        " GROUP BY transport ORDER BY transport", (clock.now() - OVERDUE_SECONDS,),
    )
    if late:
        count = sum(int(one[1]) for one in late)
        where = ", ".join(str(one[0]) for one in late[:5]) + (", …" if len(late) > 5 else "")
        yield _told(
            "outbox_overdue", Severity.INFO,
            f"{plural(count, 'obligation is', 'obligations are')} due for more than an hour, for {where}: no sender "
            "that is up for it takes them.",
            {"obligations": count, "transports": {str(name): int(rows) for name, rows, _due in late[:NAMED]},
             "due_at": min(float(one[2]) for one in late)},
            command("outbox list", store.path, "--state", "pending"),
        )
    (ahead, furthest) = store.rows(
        "SELECT count(*), max(due_at) FROM outbox WHERE state = 'pending' AND due_at - due_within > ?", (clock.now(),)
    )[0]
    if ahead:
        yield _told(
            "outbox_due_ahead", Severity.INFO,
            f"{plural(ahead, 'obligation is', 'obligations are')} due far ahead, by a clock that was wrong: further "
            "than the schedule can put off. The next claim makes them due; nothing has to be done.",
            {"obligations": ahead, "due_at": float(furthest)},
        )
    asked = store.rows(
        "SELECT count(*), max(due_at) FROM outbox WHERE state = 'pending' AND due_within IS NULL AND due_at > ?",
        (clock.now() + FAR_SECONDS,),
    )[0]
    if asked[0]:
        yield _told(
            "outbox_asked_ahead", Severity.INFO,
            f"{plural(int(asked[0]), 'obligation was', 'obligations were')} recorded to be due more than 30 days from "
            "now, and they wait until then. If the clock was wrong when they were recorded, retry them.",
            {"obligations": int(asked[0]), "due_at": float(asked[1])},
            command("outbox list", store.path, "--state", "pending"),
        )
    left = [name for name, seen in _claims(store, clock) if seen.name in ("RUN_OUT", "DEAD")]
    if left:
        yield _told(
            "outbox_claims_left", Severity.INFO,
            f"{plural(len(left), 'obligation was', 'obligations were')} being sent by processes that are gone or late "
            f"({_some(left)}): the next claim settles them, by their policy; nothing has to be done.",
            {"obligations": left[:NAMED]},
        )
    unknown = [str(name) for (name,) in store.rows(
        "SELECT dedupe_id FROM (SELECT dedupe_id, state FROM outbox WHERE settled_at IS NOT NULL"
        " ORDER BY settled_at DESC LIMIT ?) WHERE state = 'unknown'", (MOST,),
    )]
    if unknown:
        yield _told(
            "outbox_unknown", Severity.INFO,
            f"Of {plural(len(unknown), 'obligation')} nobody knows whether it went out ({_some(unknown)}): a person "
            "decides, by what the receiver shows.",
            {"obligations": unknown[:NAMED]}, command("outbox list", store.path, "--state", "unknown"),
        )


def _claims(store: Reader, clock: Clock) -> list[tuple[str, Standing]]:
    """Claims as a contender sees them."""
    from hermes_state.clock import ClockDomain
    from hermes_state.leases.rows import LeaseRow
    from hermes_state.leases.states import standing

    found = []
    for name, fence, renewals, text, boot_id, namespace, expires, term, at in store.rows(
        "SELECT dedupe_id, fence, renewals, owner, boot_id, time_namespace, expires_boottime, term_seconds, claimed_at"
        " FROM outbox WHERE state = 'claimed' ORDER BY owner LIMIT ?", (MOST,),
    ):
        owner = owner_of(text)
        row = LeaseRow(
            name=str(name), fence=fence, renewals=renewals, owner=text,
            domain=ClockDomain(boot_id=boot_id or "", time_namespace=namespace or ""),
            acquired_boottime=expires - (term or 0.0), expires_boottime=expires, term_seconds=term or 0.0,
            acquired_at=at or 0.0,
        )
        found.append((str(name), standing(
            row, now=clock.boottime(), domain=clock.domain(), sighting=None,
            judge=lambda owner=owner: judge(store, owner, clock),  # type: ignore[misc]
        )))
    return found


def _content(store: Reader, *, deep: bool) -> Iterator[Finding]:
    """Rows that say something else than what was recorded, or that no program can read."""
    names = [*owed.CHECKED, "payload_check", "schedule", "verdict", "id", "dedupe_id", "settled_at"]
    sql = f"SELECT {', '.join(names)} FROM outbox"
    if not deep:
        # By the two indexes of what is not settled: without them all that ever was settled would be read.
        unsettled = " UNION ALL ".join(f"SELECT id FROM outbox WHERE state = '{one}'" for one in ("pending", "claimed"))
        sql += f" WHERE id IN ({unsettled}) ORDER BY id DESC LIMIT {MOST}"
    altered: list[str] = []
    unread: list[str] = []
    for values in store.iterate(sql):
        row = dict(zip(names, values, strict=True))
        if row["payload"] is not None and not owed.is_as_recorded(row):
            altered.append(str(row["dedupe_id"]))
        if not all(row[name] is None or owed.is_json(row[name]) for name in ("payload", "verdict")) or (
            not owed.is_schedule(row["schedule"])
        ):
            unread.append(str(row["dedupe_id"]))
    if altered:
        yield _told(
            "outbox_altered", Severity.WARNING,
            f"{plural(len(altered), 'obligation says', 'obligations say')} something else than what was recorded "
            f"({_some(altered)}): another program or damage changed it, and it would be sent so.",
            {"obligations": altered[:NAMED]}, command("outbox show", store.path, shell_word(altered[0])),
        )
    if unread:
        yield _told(
            "outbox_unreadable", Severity.WARNING,
            f"Texts of {plural(len(unread), 'obligation')} cannot be read ({_some(unread)}): nobody is given one "
            "whose payload or schedule it is, and what comes after it in its lane waits until it is dropped.",
            {"obligations": unread[:NAMED]}, command("outbox show", store.path, shell_word(unread[0])),
        )


def _order(store: Reader, *, deep: bool) -> Iterator[Finding]:
    wrong = owed.out_of_order(store.rows, most=-1 if deep else MOST)
    if wrong:
        early, never = ([name for _number, name, right in wrong if right is one] for one in (1, 0))
        yield _told(
            "outbox_out_of_order", Severity.WARNING,
            f"{plural(len(wrong), 'obligation has', 'obligations have')} another place in the lane than the rows say "
            f"({_some(early + never)}): {len(early)} would be sent before what comes first, {len(never)} never. "
            "Another program or damage changed them.",
            {"early": early[:NAMED], "never": never[:NAMED]}, recover_command(store.path),
        )


def _horizon(store: Reader, clock: Clock) -> Iterator[Finding]:
    ahead = owed.horizon_of(store.rows) - clock.now()
    if ahead > AHEAD_SECONDS:
        yield _told(
            "outbox_horizon_ahead", Severity.WARNING,
            f"Ids of obligations count as forgotten up to {ahead:.0f} s from now, as after a clock that was ahead: "
            "what says that it was made before then is refused as too old.",
            {"seconds": ahead},
        )


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")


def _told(code: str, severity: Severity, sentence: str, facts: dict[str, Any], next_command: str = "") -> Finding:
    return Finding(
        code=code, severity=severity, object="outbox", sentence=sentence, facts=facts, next_command=next_command
    )
