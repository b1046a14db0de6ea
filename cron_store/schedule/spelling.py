"""The text of a cron expression: aliases, the five fields, and what is refused before croniter sees it.

Invariant: what passes is spelled so that every croniter from 6 on reads it alike, and as cronsim and Debian's cron do.
Refused is what is read differently somewhere, at random, or otherwise than its words suggest; the reason says which.

Not for: which times the fields name (`expressions`). Passing everything on was rejected: croniter 6 and 7 differ on
23/2, both read 4-4 as all the way round, and */90 in the minutes is once an hour.
"""

from __future__ import annotations

import re

from hermes_state.errors import ScheduleRefused

ALIASES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}
FIELDS = ("minute", "hour", "day of month", "month", "day of week")
SIZES = (60, 24, 31, 12, 7)
HIGHEST = (59, 23, 31, 12, 7)
NEAREST = re.compile(r"(\d+)W")
SAME = re.compile(r"^(\w+)-\1$")
STEP = re.compile(r"/(\d+)$")
STEP_THROUGH_ONE = re.compile(r"(\w+)-\1/\d+")
# To 6, or to 7, which is Sunday again? It is not agreed; and a name has no end that croniter 6 finds.
STEP_WITHOUT_END, STEP_FROM_NAME = re.compile(r"\w+/\d+"), re.compile(r"[A-Z]+/\d+")
NUMBERED = re.compile(r"#|L\d")


def spelled(text: str) -> tuple[str, list[str]]:
    """The expression with single spaces in upper case, and its five fields as croniter is given them."""
    said = " ".join(text.split())
    if said.startswith("@"):
        if said.lower() not in ALIASES:
            raise refused(text, f"the alias {said} is none of {', '.join(sorted(ALIASES))}")
        said = ALIASES[said.lower()]
    said = said.upper()
    fields = said.split(" ")
    if len(fields) != 5:
        more = ": seconds and years are not supported" if len(fields) in (6, 7) else ""
        raise refused(text, f"an expression has 5 fields, not {len(fields)}{more}")
    for name, field, size in zip(FIELDS, fields, SIZES, strict=True):
        reason = _reason_against(name, field, size)
        if reason is not None:
            raise refused(text, reason)
    plain = [
        ",".join(_plain(part, highest) for part in field.split(","))
        for field, highest in zip(fields, HIGHEST, strict=True)
    ]
    return said, plain


def _reason_against(name: str, field: str, size: int) -> str | None:
    place = f"{field} in the {name} field"
    if field[0] in "RH":
        return f"{place} is a random or hashed value: write the number"
    if "?" in field and (field != "?" or not name.startswith("day")):
        return f"{place}: ? stands alone, for a day"
    if "W" in field and name == "day of month" and not NEAREST.fullmatch(field):
        return f"{place}: W follows one day, as in 15W"
    parts = field.split(",")
    numbered = [NUMBERED.search(part) is not None for part in parts]
    if name == "day of week" and any(numbered) and not all(numbered):
        return f"{place} mixes every such day with one of the month (# or L)"
    if "*" in parts and field != "*":
        return f"{place}: a list with * in it is *"
    endless = STEP_WITHOUT_END if name == "day of week" else STEP_FROM_NAME
    for part in parts:
        if endless.fullmatch(part):
            return f"{part} in the {name} field has no end: write it as a range with a step"
        if STEP_THROUGH_ONE.fullmatch(part):
            return f"{part} in the {name} field is a step through one value"
        step = STEP.search(part)
        if step is not None and not 1 <= int(step[1]) <= size:
            return f"the step of {part} does not fit the {name} field, which has {size} values"
    return None


def _plain(part: str, highest: int) -> str:
    """The same in the spelling that every croniter reads alike."""
    start, slash, step = part.partition("/")
    if start == "?":
        return "*"
    if slash and start.isdigit():
        return start if int(start) == highest else f"{start}-{highest}/{step}"
    return SAME.sub(r"\1", part)


def refused(text: str, reason: str) -> ScheduleRefused:
    """The error, with what may be written instead."""
    return ScheduleRefused(
        f"The cron expression {text!r} is refused: {reason}.", text=text, reason=reason,
        hint="Five fields: minute, hour, day of month, month, day of week, such as 0 9 * * 1-5; or an alias: @daily.",
    )
