"""Values of a store as text that cannot harm a terminal, a table or a reader.

Invariant: what `safe_text` returns is one line without control characters, escape sequences, direction marks or lone
surrogates, whatever a cell held; and `width` is the number of columns it takes. Timestamps that are no time (infinite,
NaN, text, out of range) become `?` for people and null for programs, never an exception.

Not for: decoding structured content (see `maintenance.dialects`). rich's own escaping was rejected: it knows its markup
but lets bidirectional controls and most control characters through.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

from hermes_state.clock import Clock

NO_VALUE = "-"
NOT_A_TIME = "?"
_ELLIPSIS = "…"
# More marks than this on one letter only serve to overflow a line; no written language stacks as many.
_MAX_MARKS = 4
# Invisible characters that change the direction or the meaning of their neighbours, or hide text.
_DROPPED = frozenset(
    [0x00AD, 0x061C, 0x180E, 0x200B, 0x200C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
     *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)]
)
_BREAKS = frozenset([0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029])


def safe_text(value: Any, width: int | None = None) -> str:
    """One printable line for a cell: cut to `width` columns when given. None is `-`, bytes are `<blob N bytes>`."""
    if value is None:
        return NO_VALUE
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = f"<blob {len(value)} bytes>"
    else:
        text = value if isinstance(value, str) else str(value)
        # A cell of a megabyte must not be walked to show forty columns of it; marks and dropped characters are why more
        # than `width` characters can be needed.
        if width is not None and len(text) > 64 * (width + 1):
            text = text[: 64 * (width + 1)]
        if not (text.isascii() and text.isprintable()):
            text = _neutralise(text)
    return text if width is None else cut(text, width)


def _neutralise(text: str) -> str:
    shown: list[str] = []
    marks = 0
    for char in text:
        code = ord(char)
        if code in _BREAKS:
            shown.append(" ")
        elif code < 0x20:
            shown.append(chr(0x2400 + code))
        elif code == 0x7F:
            shown.append("\u2421")
        elif 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000:
            shown.append("\ufffd")
        elif code in _DROPPED:
            continue
        elif _char_width(char) == 0:
            marks += 1
            if marks <= _MAX_MARKS:
                shown.append(char)
            continue
        else:
            shown.append(char)
        marks = 0
    return "".join(shown)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def text_width(text: str) -> int:
    """How many terminal columns `text` takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, with an ellipsis when something was left out."""
    if text_width(text) <= width:
        return text
    kept: list[str] = []
    room = width - 1
    for char in text:
        room -= _char_width(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + _ELLIPSIS if width > 0 else ""


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled with blanks to `width` columns."""
    fill = " " * max(0, width - text_width(text))
    return fill + text if right else text + fill


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 session`, `2 sessions`; `many` where an s does not make the plural."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def human_bytes(count: int | None) -> str:
    """`1536` as `1.5 KiB`."""
    if count is None:
        return NO_VALUE
    if abs(count) < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if abs(amount) < 1023.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def moment(epoch: Any) -> datetime | None:
    """Epoch seconds as a UTC time, or None when the value is no time."""
    if isinstance(epoch, bool) or not isinstance(epoch, (int, float)):
        return None
    try:
        if not math.isfinite(epoch):
            return None
        found = datetime.fromtimestamp(epoch, UTC)
        # Both ends must survive a conversion to any local time.
        return found if 1 < found.year < 9999 else None
    except (OverflowError, ValueError, OSError):
        return None


def rfc3339(epoch: Any) -> str | None:
    """Epoch seconds as `2026-09-14T10:22:05.120Z`, or None when the value is no time."""
    found = moment(epoch)
    return None if found is None else found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def human_time(epoch: Any, clock: Clock) -> str:
    """Local time to the minute: `today 10:22`, else `2026-09-14 10:22`."""
    if epoch is None:
        return NO_VALUE
    found = moment(epoch)
    if found is None:
        return NOT_A_TIME
    local, today = found.astimezone(), datetime.fromtimestamp(clock.now(), UTC).astimezone().date()
    day = "today" if local.date() == today else local.date().isoformat()
    return f"{day} {local:%H:%M}"


def human_age(epoch: Any, clock: Clock) -> str:
    """How long ago: `3 h ago`, `in 2 d` for the future."""
    if epoch is None:
        return NO_VALUE
    if moment(epoch) is None:
        return NOT_A_TIME
    seconds = clock.now() - float(epoch)
    return f"in {human_duration(-seconds)}" if seconds < -1 else f"{human_duration(max(0.0, seconds))} ago"


def human_duration(seconds: float) -> str:
    """`95` as `1 min`: one unit, rounded down."""
    span = timedelta(seconds=min(seconds, 86_400.0 * 36_500))
    if span.days:
        return f"{span.days} d"
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h"
    if seconds >= 60:
        return f"{int(seconds // 60)} min"
    return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"
