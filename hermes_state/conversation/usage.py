"""`store.usage`: tokens and money, by session, model, task and day.

Invariant: one model call is one transaction that adds to three places: the session's own total (only for the
conversation itself, not for tasks done beside it), the session's share by model, route and task, and the store's share
by day. The last names no session, so what was spent stays known after sessions are deleted.

Not for: prices. Adding up sessions when asked was rejected: the answer would change with every prune.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.session_rows import (
    optional_text,
    required_text,
    session_no,
    valid_time,
    wall_time,
)
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

_COUNTS = (
    "api_calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)
# Of a count and of an amount in one call; more is a mistake of the caller. A million such calls can still be added up.
_LARGEST = 2**43
_LARGEST_USD = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Sums over some calls. Money in US dollars; tokens as the provider counted them."""

    # what the sums are of; None where the question did not tell them apart
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    billing_mode: str | None = None
    # "" is the conversation itself; others are done beside it: vision, compression, title_generation, ...
    task: str | None = None
    # UTC, YYYY-MM-DD
    day: str | None = None
    api_calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    # None: nobody said
    estimated_cost_usd: float | None
    actual_cost_usd: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionUsage:
    """What one session used."""

    # of the conversation itself
    total: Spent
    # the first route that used anything; None before
    provider: str | None
    base_url: str | None
    billing_mode: str | None
    # by model, route and task, most expensive first; tasks are here and not in `total`
    parts: tuple[Spent, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One or more calls of a model on one route. Checked by `event`."""

    model: str
    provider: str
    base_url: str
    billing_mode: str
    task: str
    counts: tuple[int, ...]
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    at: float

    @property
    def is_zero(self) -> bool:
        """Nothing was used: no token and no money."""
        return not any(self.counts[1:]) and not self.estimated_cost_usd and not self.actual_cost_usd


def add(tx: Transaction, no: int, event: Event) -> None:
    """Add an event to the session of number `no`; for code that has a transaction."""
    names = ", ".join(_COUNTS)
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTS)
    money = (event.estimated_cost_usd, event.actual_cost_usd)
    paid = tuple(amount or 0.0 for amount in money)
    if not event.task:
        # Unknown money stays unknown until somebody names an amount.
        tx.execute(
            f"INSERT INTO session_totals (session_no, {names}, estimated_cost_usd, actual_cost_usd)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_no) DO UPDATE SET {sums},"
            " estimated_cost_usd = iif(excluded.estimated_cost_usd IS NULL, estimated_cost_usd,"
            "  coalesce(estimated_cost_usd, 0) + excluded.estimated_cost_usd),"
            " actual_cost_usd = iif(excluded.actual_cost_usd IS NULL, actual_cost_usd,"
            "  coalesce(actual_cost_usd, 0) + excluded.actual_cost_usd)",
            (no, *event.counts, *money),
        )
        if not event.is_zero:
            tx.execute(
                "UPDATE session_totals SET provider = ?, base_url = ?, billing_mode = ?"
                " WHERE session_no = ? AND provider IS NULL",
                (event.provider, event.base_url, event.billing_mode, no),
            )
            tx.execute("UPDATE sessions SET model = ? WHERE no = ? AND model IS NULL", (event.model, no))
    tx.execute(
        f"INSERT INTO session_usage (session_no, model, provider, base_url, billing_mode, task, {names},"
        " estimated_cost_usd, actual_cost_usd, first_at, last_at)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15) ON CONFLICT DO UPDATE SET"
        f" {sums}, estimated_cost_usd = estimated_cost_usd + excluded.estimated_cost_usd,"
        " actual_cost_usd = actual_cost_usd + excluded.actual_cost_usd,"
        " first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)",
        (
            no, event.model, event.provider, event.base_url, event.billing_mode, event.task, *event.counts, *paid,
            event.at,
        ),
    )
    tx.execute(
        f"INSERT INTO daily_usage (day, model, provider, task, {names}, estimated_cost_usd, actual_cost_usd)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        f" {sums}, estimated_cost_usd = estimated_cost_usd + excluded.estimated_cost_usd,"
        " actual_cost_usd = actual_cost_usd + excluded.actual_cost_usd",
        (_day(event.at), event.model, event.provider, event.task, *event.counts, *paid),
    )


class Usage:
    """Record what models used, and ask for sums. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def record(
        self, session_id: str, *, model: str, provider: str = "", base_url: str = "", billing_mode: str = "",
        task: str = "", api_calls: int = 1, input_tokens: int = 0, output_tokens: int = 0, cache_read_tokens: int = 0,
        cache_write_tokens: int = 0, reasoning_tokens: int = 0, estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None, at: float | None = None,
    ) -> None:
        """Add what a call used, in one transaction.

        `task`: "" for the conversation itself; anything else never changes the session's total. The first call that
        used anything fixes the route of the session, and its model where that is unknown. Amounts are added, not set;
        money in US dollars, None when unknown. `at`: epoch seconds, now by default; decides the day (UTC). Raises
        `SessionNotFound`, `SessionDeleted`, `InvalidInput`.
        """
        event = self._event(
            model=model, provider=provider, base_url=base_url, billing_mode=billing_mode, task=task,
            counts=(
                api_calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens
            ),
            estimated_cost_usd=estimated_cost_usd, actual_cost_usd=actual_cost_usd, at=at,
        )
        self._core.write(lambda tx: add(tx, session_no(tx, session_id), event))

    def by_model(self, *, since: float | None = None, until: float | None = None) -> list[Spent]:
        """Sums by model and provider, most expensive first, then most tokens. See `total` for the bounds."""
        return self._sums(("model", "provider"), since, until)

    def by_task(self, *, since: float | None = None, until: float | None = None) -> list[Spent]:
        """Sums by task; "" is what conversations used themselves."""
        return self._sums(("task",), since, until)

    def by_day(self, *, since: float | None = None, until: float | None = None) -> list[Spent]:
        """Sums by day, newest first."""
        return self._sums(("day",), since, until, order="day DESC")

    def total(self, *, since: float | None = None, until: float | None = None) -> Spent:
        """The sum of everything, deleted sessions included.

        `since`, `until`: epoch seconds; whole UTC days are counted, both days that the bounds fall on included.
        """
        return self._sums((), since, until)[0]

    def of_session(self, session_id: str) -> SessionUsage:
        """What one session used. Raises `SessionNotFound`, `SessionDeleted`."""
        names = ", ".join(_COUNTS)
        with self._core.reader() as reader, reader.snapshot():
            no = session_no(reader, session_id)
            total = reader.row(
                f"SELECT {names}, estimated_cost_usd, actual_cost_usd, provider, base_url, billing_mode"
                " FROM session_totals WHERE session_no = ?", (no,)
            ) or (0, 0, 0, 0, 0, 0, None, None, None, None, None)
            parts = reader.rows(
                f"SELECT model, provider, base_url, billing_mode, task, {names}, estimated_cost_usd, actual_cost_usd"
                f" FROM session_usage WHERE session_no = ? ORDER BY {_BY_COST}", (no,)
            )
        keys = ("model", "provider", "base_url", "billing_mode", "task")
        return SessionUsage(
            total=_spent((), total[:8]), provider=total[8], base_url=total[9], billing_mode=total[10],
            parts=tuple(_spent(keys, row) for row in parts),
        )

    def _sums(
        self, keys: tuple[str, ...], since: float | None, until: float | None, *, order: str | None = None
    ) -> list[Spent]:
        first = "" if since is None else _day(valid_time("since", since))
        last = "9999-12-31" if until is None else _day(valid_time("until", until))
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in (*_COUNTS, "estimated_cost_usd", "actual_cost_usd"))
        group = f" GROUP BY {', '.join(keys)} ORDER BY {order or _BY_SUM}" if keys else ""
        with self._core.reader() as reader:
            rows = reader.rows(
                f"SELECT {''.join(f'{key}, ' for key in keys)}{sums} FROM daily_usage WHERE day BETWEEN ? AND ?{group}",
                (first, last),
            )
        return [_spent(keys, row) for row in rows]

    def _event(
        self, *, model: str, provider: str, base_url: str, billing_mode: str, task: str, counts: tuple[int, ...],
        estimated_cost_usd: float | None, actual_cost_usd: float | None, at: float | None,
    ) -> Event:
        for name, value in zip(_COUNTS, counts, strict=True):
            if type(value) is not int or not 0 <= value < _LARGEST:
                raise InvalidInput(f"{name} is a whole number from 0, not {value!r}.", argument=name)
        texts = {"provider": provider, "base_url": base_url, "billing_mode": billing_mode, "task": task}
        return Event(
            **{name: optional_text(name, value) or "" for name, value in texts.items()},
            model=required_text("model", model), counts=counts,
            estimated_cost_usd=_money("estimated_cost_usd", estimated_cost_usd),
            actual_cost_usd=_money("actual_cost_usd", actual_cost_usd),
            at=wall_time(self._core.clock) if at is None else valid_time("at", at),
        )


_BY_COST = (
    "max(actual_cost_usd, estimated_cost_usd) DESC, input_tokens + output_tokens DESC, model, provider, task"
)
_BY_SUM = (
    "max(sum(actual_cost_usd), sum(estimated_cost_usd)) DESC, sum(input_tokens + output_tokens) DESC, 1"
)


def _spent(keys: tuple[str, ...], row: tuple[Any, ...]) -> Spent:
    values = dict(zip((*keys, *_COUNTS, "estimated_cost_usd", "actual_cost_usd"), row, strict=True))
    return Spent(**values)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _money(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LARGEST_USD:
        raise InvalidInput(
            f"{name} is an amount in US dollars from 0 to {_LARGEST_USD:.0f}, or None, not {value!r}.", argument=name
        )
    return float(value)
