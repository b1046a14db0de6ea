"""How long a rewrite will keep everybody out, said before it starts.

Invariant: an estimate is rounded up and never below one second. Not for: progress while it runs.
"""

from __future__ import annotations

import math

# VACUUM in place of a 147 MB file, half of it free, took 0.44 to 0.54 s on ext4 on a 2-core virtual machine: about
# 270 MB of file a second. A spinning or shared disk is easily five times slower, so a fifth of it is promised.
REWRITE_BYTES_PER_SECOND = 50_000_000

WHAT_HAPPENS_MEANWHILE = "Programs that start meanwhile cannot open the store; hermes-agent gives up after about 2 s."


def expected_hold_seconds(bytes_to_rewrite: int, *, rate: int = REWRITE_BYTES_PER_SECOND) -> int:
    """Whole seconds for which the exclusive lock will be held."""
    return max(1, math.ceil(bytes_to_rewrite / rate))


def hold_lines(bytes_to_rewrite: int, *, rate: int = REWRITE_BYTES_PER_SECOND) -> tuple[str, ...]:
    """The two lines of a plan that say how long the lock is held and what that means for others."""
    seconds = expected_hold_seconds(bytes_to_rewrite, rate=rate)
    return (f"Holds the store's exclusive lock for about {duration(seconds)}.", WHAT_HAPPENS_MEANWHILE)


def duration(seconds: int) -> str:
    """`40 s`, `3 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
