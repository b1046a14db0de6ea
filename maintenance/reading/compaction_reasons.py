"""Why a plan is as it is, for people: whole words, the unit of each number, places as `sessions view` shows them.

Invariant: a reason that is not known here is printed as it is. Not for: `--json`, which has the stable words with rows
counted from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# {0} is the first number of a reason; {0:1} the messages from the row that it names to the one that {1} does.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"over (\d+) of (\d+)", "the messages have {0} tokens and a pass is due above {1}"),
    (r"asked (\d+) of (\d+)", "it was asked for: the messages have {0} tokens, and a pass is due above {1}"),
    (r"fits", "the messages fit"),
    (r"tail (\d+) of (\d+)", "the tail takes {0} of {1} tokens"),
    (r"tail (\d+) of (\d+), overrun to (\d+)", "the tail takes {0} of {1} tokens, and may have {2}"),
    (r"next rows (\d+)-(\d+) need (\d+) of (\d+)", "{0:1} before it would need {2} tokens, and {3} were left"),
    (r"row (\d+) needs (\d+) of (\d+)", "{0:0} before it would need {1} tokens, and {2} were left"),
    (r"anchor last-user rows (\d+)-(\d+) take (\d+)", "{0:1}, the last of the user, stays and takes {2} tokens"),
    (r"anchor open-group rows (\d+)-(\d+) take (\d+)", "{0:1}, whose result may come, stays and takes {2} tokens"),
    (r"anchor newest rows (\d+)-(\d+) over the tail budget", "{0:1}, the newest, is more than the tail's tokens"),
    (r"anchors (\d+) over (\d+)", "what stays before the tail takes {0} tokens, more than {1}"),
    (r"nothing to summarise before row (\d+)", "nothing that could be summarised is older"),
    (r"clipped row (\d+) of (\d+)", "{0:0} of {1} tokens is shown shortened"),
    (r"reserve (\d+) of (\d+) asked", "{0} of the {1} tokens asked for are kept for the reply"),
    (r"estimated prefix (\d+)", "by the estimate {0} tokens are fixed, which may be too high"),
    (r"all (\d+) fit the overrun", "all {0} tokens would fit it"),
    (r"all fit: last (\d+) rows", "all fit, so the last {0} messages stay"),
    (r"whole group from row (\d+)", "a call stays with its results from {0:0} on"),
    (r"last (?:user|assistant) row (\d+)", "{0:0}, the last of its kind, stays"),
)


def for_people(reasons: Sequence[str], positions: Sequence[int | None]) -> list[str]:
    """Each reason as words. `positions`: of each message of the view; None where a message is no row of its own."""
    # Where nothing goes all of it is called tail, and that it is larger than a tail may be says nothing.
    whole = any(reason.startswith("nothing to summarise") for reason in reasons)
    return [
        _said(reason, positions) for reason in reasons if not (whole and reason.startswith(("tail ", "anchor newest ")))
    ]


def _said(reason: str, positions: Sequence[int | None]) -> str:
    for pattern, words in _WORDS:
        found = re.fullmatch(pattern, reason)
        if found is None:
            continue
        numbers = found.groups()

        def place(asked: re.Match[str], numbers: tuple[str, ...] = numbers) -> str:
            first = numbers[int(asked[1])]
            return first if asked[2] is None else _place(first, numbers[int(asked[2])], positions)

        return re.sub(r"\{(\d)(?::(\d))?\}", place, words)
    return reason


def _place(first: str, last: str, positions: Sequence[int | None]) -> str:
    """`message 7` or `messages 7 to 9`, as the view numbers them."""
    known = [at for at in positions[int(first) : int(last) + 1] if at is not None]
    if not known:
        return "the summary"
    low, high = min(known), max(known)
    return f"message {low}" if low == high else f"messages {low} to {high}"
