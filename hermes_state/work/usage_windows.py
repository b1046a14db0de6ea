"""`store.work.usage`: what a provider says is left of an account, with the time at which it said so.

Invariant: a number never travels without its time. A fetch that fails to end within its deadline gives nothing, not
what was known before, and what it brings later is thrown away; so whoever shows a number shows one that was asked for.

Not for: what a session used (`store.usage`). Serving the last known numbers when a provider is slow was rejected: they
say that there is room when there is none.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import LATEST, moment, text
from hermes_state.work.guarded import Guarded

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.routing import Home

# For one fetch; hermes-agent's.
DEADLINE_SECONDS = 10.0
MOST_WINDOWS = 100


@dataclass(frozen=True, kw_only=True)
class UsageWindow:
    """One limit of an account: so much of it is used until it begins anew. Raises `InvalidInput`."""

    name: str  # rolling, weekly, monthly, ...
    used: float  # in `unit`
    limit: float | None  # None: the provider does not say, or there is none
    unit: str  # requests, tokens, usd, percent, ...
    resets_at: float | None = None  # epoch seconds UTC; None: not said

    def __post_init__(self) -> None:
        for name, value in (("name", self.name), ("unit", self.unit)):
            text(name, value, of=" of a usage window")
        for name, number in (("used", self.used), ("limit", self.limit), ("resets_at", self.resets_at)):
            if number is None and name != "used":
                continue
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or (
                number < 0 or (name == "resets_at" and number > LATEST)
            ):
                raise InvalidInput(f"{name} of a usage window is a number from 0, not {number!r:.40}.", argument=name)


@dataclass(frozen=True, kw_only=True)
class AccountUsage:
    """What was left of an account at one moment."""

    provider: str
    account: str
    windows: tuple[UsageWindow, ...]
    as_of: float  # when the provider was asked, epoch seconds UTC


class UsageWindows(Guarded):
    """The account usage that one home knows. Safe for threads."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        # The threads of fetches that have overrun; one for an account, however often it is asked for.
        self._hanging: dict[tuple[str, str], threading.Thread] = {}

    def fetch(
        self, provider: str, account: str, home: Home, fetch: Callable[[], Iterable[UsageWindow] | None], *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> AccountUsage | None:
        """Ask the provider now, keep what it says, and give it; None when it says nothing within the deadline.

        `fetch` runs in a thread of its own, in the caller's context (`contextvars`); one that overruns is left to
        itself and what it brings is thrown away, and until it ends this gives None at once for the account. What it
        raises in time is raised here. Raises `InvalidInput`, also for an asynchronous one, `WrongHome`, `HomeRemoved`.
        """
        _named(provider, account)
        if isinstance(deadline_seconds, bool) or not 0 < deadline_seconds <= 600:
            raise InvalidInput(
                f"deadline_seconds is a number above 0 and at most 600, not {deadline_seconds!r:.40}.",
                argument="deadline_seconds",
            )
        self.refuse(home)
        hanging = self._hanging.get((provider, account))
        if hanging is not None and hanging.is_alive():
            return None
        as_of = self._core.clock.now()
        found, raised, ended = list[tuple[UsageWindow, ...] | None](), list[BaseException](), threading.Event()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                said = context.run(fetch)
                if inspect.isawaitable(said):
                    if inspect.iscoroutine(said):
                        said.close()
                    raise InvalidInput(
                        "The fetch of an account's usage is a plain function, not an asynchronous one.",
                        hint="Give one that waits for the answer itself.", argument="fetch",
                    )
                found.append(None if said is None else tuple(said))
            except BaseException as error:  # given to the caller, if it is still there
                raised.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=run, name="hermes-state-usage", daemon=True)
        thread.start()
        if not ended.wait(deadline_seconds):
            self._hanging[provider, account] = thread
            return None
        self._hanging.pop((provider, account), None)
        if raised:
            raise raised[0]
        windows = found[0]
        return None if windows is None else self.keep(provider, account, home, windows, as_of=as_of)

    def keep(
        self, provider: str, account: str, home: Home, windows: Iterable[UsageWindow], *, as_of: float
    ) -> AccountUsage:
        """Keep what a provider said at `as_of`; an answer that is older than the one known changes nothing.

        One that is known from a time that has not come (a clock was ahead) gives way to any.
        """
        _named(provider, account)
        moment("as_of", as_of)
        kept = tuple(windows)
        if len(kept) > MOST_WINDOWS or not all(isinstance(one, UsageWindow) for one in kept):
            raise InvalidInput(f"Usage is at most {MOST_WINDOWS} UsageWindow.", argument="windows")
        said = json_values.dump([vars(one) for one in kept])

        now = self._core.clock.now()

        def work(tx: Transaction) -> None:
            changed = tx.execute(
                "INSERT INTO account_usage (provider, account, windows, as_of) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (provider, account) DO UPDATE SET windows = ?3, as_of = ?4 WHERE ?4 >= as_of"
                " OR as_of > ?5",
                (provider, account, said, as_of, now),
            )
            if changed:
                record(tx, "account_usage", f"{provider}/{account}", "update", as_of)

        self._write(home, work, power=False)
        return AccountUsage(provider=provider, account=account, windows=kept, as_of=as_of)

    def known(self, provider: str, account: str, *, within_seconds: float) -> AccountUsage | None:
        """What was said within so many seconds; None when nothing was. One whose clock was ahead is not believed."""
        _named(provider, account)
        now = self._core.clock.now()
        with self._core.reader() as reader:
            row = _row(reader, provider, account)
        if row is None or not 0 <= now - row[1] <= within_seconds:
            return None
        return AccountUsage(
            provider=provider, account=account, as_of=row[1],
            windows=tuple(_window(one) for one in json_values.read(row[0])),
        )

    def forget(self, provider: str, account: str, home: Home) -> bool:
        """Forget what is known of an account; False when nothing is."""
        _named(provider, account)
        return self._write(home, lambda tx: tx.execute(
            "DELETE FROM account_usage WHERE provider = ? AND account = ?", (provider, account)
        ) > 0, power=False)


def _row(reader: Reader, provider: str, account: str) -> tuple[str, float] | None:
    if reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'account_usage'") is None:
        return None  # a store that an older version made and nobody has opened for writing since
    row = reader.row("SELECT windows, as_of FROM account_usage WHERE provider = ? AND account = ?", (provider, account))
    return None if row is None else (str(row[0]), float(row[1]))


def _window(said: Mapping[str, Any]) -> UsageWindow:
    return UsageWindow(**said)


def _named(provider: str, account: str) -> None:
    for name, value in (("provider", provider), ("account", account)):
        text(name, value, of=" of an account")
