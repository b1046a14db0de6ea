"""When a failed obligation is tried again: schedules as data.

Invariant: a schedule is stored with its row, so a later release that changes a default changes nothing that is owed.

Not for: waiting. A formula with a base and an exponent was rejected: nobody can read off it when the last attempt is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hermes_state.errors import InvalidInput

# Longest delay that a row may ask for: a day. What has to wait longer is due later instead.
LONGEST_DELAY_SECONDS = 86_400.0
MOST_ATTEMPTS = 100
# By how much the clocks of one machine are set when they are put right.
SET_BACK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How often something is tried, and how long it rests in between."""

    # seconds before the second, third, ... attempt; the number of attempts is one more
    delays: tuple[float, ...]
    # seconds before a receiver that had no room is asked again
    rest: float = 5.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.delays, tuple) or len(self.delays) >= MOST_ATTEMPTS
            or not all(
                isinstance(delay, (int, float)) and not isinstance(delay, bool) and 0 <= delay <= LONGEST_DELAY_SECONDS
                for delay in (*self.delays, self.rest)
            )
        ):
            raise InvalidInput(
                f"A schedule has a tuple of fewer than {MOST_ATTEMPTS} delays of 0 to {LONGEST_DELAY_SECONDS:.0f} s,"
                f" not {self.delays!r:.80} and a rest of {self.rest!r:.80}.",
                argument="schedule",
            )
        if any(later < earlier for earlier, later in pairwise(self.delays)):
            raise InvalidInput("The delays of a schedule do not become shorter.", argument="schedule")

    @property
    def attempts(self) -> int:
        """How many failures end it."""
        return len(self.delays) + 1

    def after(self, attempts: int) -> float:
        """Seconds to rest after so many spent attempts, or so many lost senders."""
        if not self.delays:
            return self.rest
        return float(self.delays[min(max(attempts, 1), len(self.delays)) - 1])

    def within(self, given: float = 0.0) -> float:
        """Seconds from now within which the next attempt lies, after a rest of `given`: further, and a clock was wrong.

        A clock that is set back by less than `SET_BACK_SECONDS` makes nothing due before its time.
        """
        return max(*self.delays, self.rest, given, 0.0) + SET_BACK_SECONDS

    def longest_age(self) -> float:
        """Seconds over which all attempts spread, each answered at once."""
        return float(sum(self.delays))

    def to_json(self) -> str:
        return json.dumps({"delays": list(self.delays), "rest": self.rest}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        value = json.loads(text)
        return cls(delays=tuple(value["delays"]), rest=value["rest"])


# What each kind of obligation gets when its sender does not say. Sources: three attempts are what hermes-agent's ledger
# of final replies makes, eight what its delegations make (facts on gateways, 3.8 and 5); a stop is worth trying for as
# long as its gateway may come back, so it rests short and often.
SCHEDULES: Mapping[str, Schedule] = {
    "default": Schedule(delays=(5.0, 30.0, 120.0, 600.0, 1800.0)),
    "final": Schedule(delays=(10.0, 60.0)),
    "completion": Schedule(delays=(5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1800.0)),
    "stop": Schedule(delays=(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0, 60.0), rest=1.0),
}


def schedule_for(kind: str) -> Schedule:
    """The schedule of a kind, the default for kinds that have none of their own."""
    return SCHEDULES.get(kind, SCHEDULES["default"])
