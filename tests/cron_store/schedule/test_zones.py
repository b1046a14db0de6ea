"""Zones: names, versions, and the instants at which their offsets change."""

from __future__ import annotations

import importlib.resources
import struct
import zoneinfo
from itertools import pairwise
from pathlib import Path

import pytest

from cron_store.schedule import (
    CronExpression,
    check_zone,
    next_slots,
    refresh_zones,
    tz_database,
    zone_version,
    zones,
)
from cron_store.schedule.zones import PROBE_SECONDS, Rules, listed_names
from hermes_state.errors import UnknownZone

YEAR_2020, YEAR_2030 = 1_577_836_800, 1_893_456_000


def file_of(name: str) -> bytes:
    return importlib.resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


def changes_in(content: bytes) -> list[int]:
    """The instants after 1970 at which the offset changes, read from the second block of a TZif file."""
    sizes = struct.unpack(">4x1x15x6l", content[:44])
    isut, isstd, leaps, times, types, chars = sizes
    at = 44 + times * 5 + types * 6 + chars + leaps * 8 + isstd + isut
    isut, isstd, leaps, times, types, chars = struct.unpack(">4x1x15x6l", content[at: at + 44])
    at += 44
    instants = struct.unpack(f">{times}q", content[at: at + 8 * times])
    kinds = content[at + 8 * times: at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">lbb", content[at + 6 * i: at + 6 * i + 6])[0] for i in range(types)]
    found, offset = [], None
    for instant, kind in zip(instants, kinds, strict=True):
        if offset is not None and offsets[kind] != offset and instant > 0:
            found.append(instant)
        offset = offsets[kind]
    return found


def test_no_zone_changes_twice_within_the_time_between_two_looks() -> None:
    nearest = min(
        later - earlier
        for name in sorted(listed_names())
        for found in [changes_in(file_of(name))]
        for earlier, later in pairwise(found)
    )
    assert nearest > 2 * PROBE_SECONDS


@pytest.mark.parametrize("name", ["Africa/Casablanca", "America/Santiago", "Asia/Pyongyang", "Pacific/Apia"])
def test_changes_are_found_where_the_file_has_them(name: str) -> None:
    content = file_of(name)
    timeline = Rules(name, content).timeline(1, YEAR_2030)
    # After its last instant a file has a rule.
    listed = [at for at in changes_in(content) if timeline.since < at <= YEAR_2030]
    assert [at for at in timeline.starts[1:] if at <= listed[-1]] == listed
    assert len(listed) >= 2


def test_looking_further_keeps_what_was_found() -> None:
    whole = Rules("Europe/Dublin", file_of("Europe/Dublin")).timeline(YEAR_2020, YEAR_2030)
    pieces = Rules("Europe/Dublin", file_of("Europe/Dublin"))
    for since in (1_700_000_000, 1_650_000_000, YEAR_2020, 1_800_000_000, YEAR_2030 - 60):
        pieces.timeline(since, since + 60)
    found = pieces.timeline(YEAR_2020, YEAR_2030)
    assert (found.starts[1:], found.offsets[1:]) == (whole.starts[1:], whole.offsets[1:])


@pytest.mark.parametrize("name, message, hint", [
    ("Europe/Belrin", "There is no time zone 'Europe/Belrin'.", "Did you mean Europe/Berlin?"),
    ("europe/berlin", "There is no time zone 'europe/berlin'.", "Did you mean Europe/Berlin?"),
    (
        "../../etc/passwd", "There is no time zone '../../etc/passwd'.",
        "Give an IANA name, such as Europe/Berlin or America/New_York.",
    ),
    ("", "There is no time zone ''.", "Give an IANA name, such as Europe/Berlin or America/New_York."),
    ("+02:00", "There is no time zone '+02:00'.", "Give an IANA name, such as Europe/Berlin or America/New_York."),
    (
        "local", "'local' is not a time zone: it means something else on another machine.",
        "Give the IANA name of the place, such as Europe/Berlin.",
    ),
    (
        "right/Europe/Berlin", "'right/Europe/Berlin' is not a time zone: it means something else on another machine.",
        "Give the IANA name of the place, such as Europe/Berlin.",
    ),
])
def test_a_name_that_is_no_iana_name_is_refused(name: str, message: str, hint: str) -> None:
    with pytest.raises(UnknownZone) as refused:
        check_zone(name)
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_a_new_database_changes_the_version_and_the_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending slots are recomputed when tzdata changes: a zone's version tells, and only for the zones that changed."""
    for name in ("Europe/Berlin", "Asia/Tokyo"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(file_of(name))
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    monkeypatch.setattr(zones, "_rules", {})
    daily = CronExpression(expression="0 9 * * *", zone="Europe/Berlin")
    before, versions = next_slots(daily, YEAR_2020, 1), [zone_version(name) for name in ("Europe/Berlin", "Asia/Tokyo")]
    assert refresh_zones() == ()
    # Berlin is an hour further east from now on.
    (tmp_path / "Europe/Berlin").write_bytes(file_of("Europe/Helsinki"))
    assert zone_version("Europe/Berlin") == versions[0]
    assert refresh_zones() == ("Europe/Berlin",)
    assert zone_version("Europe/Berlin") != versions[0]
    assert zone_version("Asia/Tokyo") == versions[1]
    assert next_slots(daily, YEAR_2020, 1) == [before[0] - 3600]


def test_a_file_that_cannot_be_read_now_keeps_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Here").write_bytes(file_of("Asia/Tokyo"))
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    monkeypatch.setattr(zones, "_rules", {})
    version = zone_version("Here")
    (tmp_path / "Here").write_bytes(b"half")
    assert (refresh_zones(), zone_version("Here")) == ((), version)
    (tmp_path / "Here").unlink()
    assert (refresh_zones(), zone_version("Here")) == ((), version)


def test_the_package_serves_where_the_system_has_no_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    monkeypatch.setattr(zones, "_rules", {})
    assert check_zone("Europe/Berlin") == "Europe/Berlin"
    assert tz_database().source == "tzdata"
    assert tz_database().version.startswith("20")


def test_the_version_of_the_systems_database_is_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    (tmp_path / "UTC").write_bytes(file_of("UTC"))
    assert tz_database() == zones.TzDatabase(version="", source=str(tmp_path))
    (tmp_path / "tzdata.zi").write_text("# version 2025b\n# This zic input file\n")
    assert tz_database() == zones.TzDatabase(version="2025b", source=str(tmp_path))
