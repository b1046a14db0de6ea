"""One budget for the whole next request: what the window leaves, and what each part may take of it.

Invariant: every limit is a fixed share of U, the window less the fixed prefix and the reply, so no part can outgrow a
small window. Comparisons are made in whole numbers, multiplied out: rounding cannot make a larger window keep less.
Sources of the shares: facts of compaction, 2e.

Not for: finding out how large the window is (see `windows`). Absolute sizes (a tail of 10,000 tokens, a summary of
2,000) were rejected: on a window of 8,192 they are more than all of it.
"""

from __future__ import annotations

from hermes_state.compaction.planning.records import Budget
from hermes_state.errors import PrefixTooLarge

TRIGGER, LOW_WATER, SUMMARY, TAIL, ANCHORS = 850, 450, 150, 250, 300  # thousandths of U
SMALLEST_USABLE = 512
SMALLEST_GAIN = 256


def shares(window: int, *, fixed: int, reserve: int, usable: int, estimated: bool = False) -> Budget:
    """The budget that `usable` tokens are shared out by, whatever they are."""
    return Budget(
        window=window, fixed=fixed, reserve=reserve, usable=usable, trigger=usable * TRIGGER // 1000,
        low_water=usable * LOW_WATER // 1000, summary=usable * SUMMARY // 1000, tail=usable * TAIL // 1000,
        anchors=usable * ANCHORS // 1000, worth=max(-(-usable // 10), SMALLEST_GAIN), estimated=estimated,
    )


def reserve_for(window: int, reply_reserve: int | None) -> int:
    """Tokens kept free for the reply: what was asked for, an eighth of the window unasked, at most a quarter of it."""
    return min(window // 8 if reply_reserve is None else reply_reserve, window // 4)


def budget_for(
    window: int, *, fixed: int, reply_reserve: int | None = None, system: int = 0, over: float = 1.0
) -> Budget:
    """The budget of a request to a window of `window` tokens, all of them whole numbers that were checked.

    `fixed`: tokens before the conversation, of which `system` are leading system rows; the rest was declared by the
    caller. `over`: how many times too high `fixed` may be, above 1 for an estimate.

    `PrefixTooLarge` when less than 512 tokens are left for the conversation, even if `fixed` is too high by all of
    `over`. When only the estimate says so, U is 512 and the budget is `estimated`: the smallest view has the best
    chance to fit, and a refusal for a prefix that does fit would end a conversation for nothing.
    """
    reserve = reserve_for(window, reply_reserve)
    usable = window - fixed - reserve
    if usable < SMALLEST_USABLE:
        if over > 1.0 and fixed + reserve < 4 * window and window - int(-(-fixed // over)) - reserve >= SMALLEST_USABLE:
            return shares(window, fixed=fixed, reserve=reserve, usable=SMALLEST_USABLE, estimated=True)
        lowered = "" if reply_reserve is None or reply_reserve <= reserve else (
            f" (of {reply_reserve:,} asked for: at most a quarter of the window)"
        )
        raise PrefixTooLarge(
            f"The fixed prefix does not fit: of a window of {window:,} tokens, {system:,} are system rows, "
            f"{fixed - system:,} are tools and other fixed tokens, and {reserve:,} are kept for the reply{lowered}. "
            f"That leaves {max(usable, 0):,} for the conversation; at least {SMALLEST_USABLE} are needed.",
            hint="Compaction cannot help. Use a larger window, fewer tools or a shorter system prompt.",
            window=window,
            fixed=fixed,
            system=system,
            tools=fixed - system,
            reserve=reserve,
            usable=usable,
            smallest=SMALLEST_USABLE,
        )
    return shares(window, fixed=fixed, reserve=reserve, usable=usable)
