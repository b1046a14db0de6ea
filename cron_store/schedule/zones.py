"""Time zones: which rules a name means here, where their offsets change, and how to notice that the rules changed.

Invariant: the rules in use and the digest that names them (`zone_version`) come from the same bytes. Whoever keeps
computed slots keeps the zone's version beside them; another version means: compute them again. Only IANA names are
zones: never `local`, never an abbreviation that nobody listed.

Not for: what schedules do with gaps and folds (see `walls`). One version for the whole database was rejected as the
thing to compare: the system's and the package's are numbered differently, and most releases change three zones.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib.resources
import io
import re
import struct
import threading
import zoneinfo
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hermes_state.errors import UnknownZone

NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
# Not zones: what the machine happens to be set to, a placeholder, and copies with other leap seconds.
NOT_ZONES = frozenset({"local", "localtime", "factory", "posixrules"})
NOT_FOLDERS = ("posix/", "right/")
DAY = 86_400
# Offsets are looked at once a day: since 1970 no zone changed twice within 6.9 days (a test proves it for all names).
PROBE_SECONDS = DAY
YEAR_SECONDS = 366 * DAY
# What Python's calendar can tell of any zone; beyond, a zone stays as it is there.
FIRST_INSTANT, LAST_INSTANT = -62_135_596_800 + 2 * DAY, 253_402_300_799 - 2 * DAY
# Bytes before the counts of a TZif file, and of both (RFC 8536).
COUNTS_AT, HEADER_BYTES = 20, 44


@dataclass(frozen=True, kw_only=True)
class TzDatabase:
    """Which database names are looked up in first."""

    version: str
    """As its publisher numbers it, `2025b` or `2026.6`; empty when it does not say."""
    source: str
    """The folder, or `tzdata` for the package."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The offsets of a zone between two instants. `starts[i]` is when `offsets[i]` begins; the first is `since`."""

    since: int
    until: int
    starts: tuple[int, ...]
    offsets: tuple[int, ...]

    def at(self, instant: int) -> int:
        """The index of the offset in force."""
        return bisect_right(self.starts, instant) - 1


class Rules:
    """The rules of one zone, from one reading of its file."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.version = hashlib.sha256(content).hexdigest()[:16]
        try:
            self.zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(content), key=name)
        except Exception as error:  # whatever its reader trips over
            raise _damaged(name, str(error)) from error
        self._guard = threading.Lock()
        self._timeline: Timeline | None = None

    def offset(self, instant: int) -> int:
        """Seconds east of UTC at an instant."""
        within = min(max(instant, FIRST_INSTANT), LAST_INSTANT)
        try:
            found = datetime.fromtimestamp(within, self.zone).utcoffset()
        except ValueError as error:  # an offset of more than a day
            raise _damaged(self.name, str(error)) from error
        assert found is not None
        return found.days * DAY + found.seconds

    def timeline(self, since: int, until: int) -> Timeline:
        """Every offset from `since` to `until`; what was looked at once is kept."""
        known = self._timeline
        if known is not None and known.since <= since and until <= known.until:
            return known
        with self._guard:
            known = self._timeline
            low, high = since - since % YEAR_SECONDS, until - until % YEAR_SECONDS + YEAR_SECONDS
            if known is not None:
                low, high = min(low, known.since), max(high, known.until)
            known = self._timeline = self._scan(known, low, high)
            return known

    def _scan(self, known: Timeline | None, low: int, high: int) -> Timeline:
        if known is None:
            starts, offsets = self._probe(low, high)
        else:
            before, after = self._probe(low, known.since), self._probe(known.until, high)
            starts = before[0] + list(known.starts) + after[0]
            offsets = before[1] + list(known.offsets) + after[1]
        # The instants where two scans met are no changes.
        kept = [i for i in range(len(starts)) if i == 0 or offsets[i] != offsets[i - 1]]
        return Timeline(
            since=low, until=high, starts=tuple(starts[i] for i in kept), offsets=tuple(offsets[i] for i in kept)
        )

    def _probe(self, low: int, high: int) -> tuple[list[int], list[int]]:
        starts: list[int] = []
        offsets: list[int] = []
        if low >= high:
            return starts, offsets
        here, offset = low, self.offset(low)
        starts.append(here)
        offsets.append(offset)
        while here < high:
            there = min(here + PROBE_SECONDS, high)
            if self.offset(there) != offset:
                below, above = here, there
                while above - below > 1:
                    middle = (below + above) // 2
                    below, above = (middle, above) if self.offset(middle) == offset else (below, middle)
                offset = self.offset(above)
                starts.append(above)
                offsets.append(offset)
            here = there
        return starts, offsets


_rules: dict[str, Rules] = {}


def rules_of(name: str) -> Rules:
    """The rules of an IANA name; read once a process (see `refresh_zones`). `UnknownZone` when it is none."""
    rules = _rules.get(name)
    if rules is None:
        rules = _rules.setdefault(name, Rules(name, _content(name)))
    return rules


def check_zone(name: str) -> str:
    """The name itself, when it is an IANA name with rules here; else `UnknownZone`."""
    return rules_of(name).name


def zone_version(name: str) -> str:
    """16 hex digits that name the rules in use: they differ when any instant of the zone may differ."""
    return rules_of(name).version


def refresh_zones() -> tuple[str, ...]:
    """Read every zone in use again, and return those whose rules changed: their pending slots are to be recomputed.

    A zone whose file cannot be read now, or is half there (an upgrade is under way), keeps the rules it has.
    """
    changed = []
    for name, rules in list(_rules.items()):
        try:
            content = _find(name)
            fresh = rules if content is None else Rules(name, content)
        except UnknownZone:
            continue
        if fresh.version != rules.version:
            _rules[name] = fresh
            changed.append(name)
    return tuple(sorted(changed))


def tz_database() -> TzDatabase:
    """The database that names are looked up in first, for people to see."""
    for folder in zoneinfo.TZPATH:
        if not (Path(folder) / "UTC").is_file():
            continue
        listing = Path(folder) / "tzdata.zi"
        first = listing.read_text(encoding="ascii", errors="replace").partition("\n")[0] if listing.is_file() else ""
        return TzDatabase(version=first.removeprefix("# version ").strip(), source=folder)
    from importlib.metadata import version

    return TzDatabase(version=version("tzdata"), source="tzdata")


@functools.cache
def listed_names() -> frozenset[str]:
    """Every name of the tzdata package."""
    return frozenset((importlib.resources.files("tzdata") / "zones").read_text(encoding="ascii").split())


def _content(name: str) -> bytes:
    said = name.strip()
    if said.lower() in NOT_ZONES or said.startswith(NOT_FOLDERS):
        raise UnknownZone(
            f"{name!r} is not a time zone: it means something else on another machine.", zone=name,
            hint="Give the IANA name of the place, such as Europe/Berlin.",
        )
    near = {listed.lower(): listed for listed in listed_names()}
    # A file system that ignores case would read europe/berlin: the listed spelling is the name.
    misspelt = said not in listed_names() and said.lower() in near
    content = None if misspelt or not NAME.fullmatch(said) else _find(said)
    if content is None:
        guesses = difflib.get_close_matches(said.lower(), near, n=1, cutoff=0.7)
        raise UnknownZone(
            f"There is no time zone {name!r}.", zone=name,
            hint=f"Did you mean {near[guesses[0]]}?" if guesses
            else "Give an IANA name, such as Europe/Berlin or America/New_York.",
        )
    return content


def _find(name: str) -> bytes | None:
    """The file as `zoneinfo` would find it: the system's folders, then the package."""
    for folder in zoneinfo.TZPATH:
        path = Path(folder, *name.split("/"))
        if path.is_file():
            content = path.read_bytes()
            if content[:4] == b"TZif":
                return _whole(name, content, path)
    place = importlib.resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    if not place.is_file():
        return None
    content = place.read_bytes()
    return _whole(name, content, Path(str(place))) if content[:4] == b"TZif" else None


def _whole(name: str, content: bytes, path: Path) -> bytes:
    """The content, if nothing of it is missing. `zoneinfo` never returns from some files that were cut short."""
    at, size = 0, 4
    try:
        while True:
            utc, standard, leaps, times, types, characters = struct.unpack_from(">6l", content, at + COUNTS_AT)
            at += HEADER_BYTES + times * (size + 1) + types * 6 + characters + leaps * (size + 4) + standard + utc
            if content[4:5] == b"\0":
                is_whole = at == len(content)
                break
            if size == 8:
                footer = content[at:]
                is_whole = len(footer) > 1 and footer.startswith(b"\n") and footer.find(b"\n", 1) == len(footer) - 1
                break
            size = 8
            if content[at:at + 4] != b"TZif":
                is_whole = False
                break
    except struct.error:
        is_whole = False
    if not is_whole:
        raise _damaged(name, f"{path} is cut short or damaged")
    return content


def _damaged(name: str, why: str) -> UnknownZone:
    return UnknownZone(
        f"The rules of time zone {name!r} cannot be read: {why}.", zone=name,
        hint="Install the tz database of this machine, or the package tzdata, again.",
    )
