"""Which zone this machine is set to, as an IANA name.

Invariant: the answer is a name that has rules here, or None: then somebody has to be asked. It is looked up once, when
a job is made, and stored: two processes with different TZ must not read one job differently.

Not for: the offset that is in force now. Taking it for the zone was rejected: it is an hour off for half of the year.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cron_store.schedule.zones import check_zone
from hermes_state.errors import UnknownZone

MARK = "zoneinfo/"


def host_zone(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """TZ when it is set, else /etc/localtime as a link, else /etc/timezone, below `root`."""
    said = environ.get("TZ")
    if said is not None:
        # TZ wins over the machine even when it is a rule of its own (CET-1CEST), which has no name.
        return _named(said.removeprefix(":")) if said.removeprefix(":") else "UTC"
    link = root / "etc" / "localtime"
    if link.is_symlink():
        found = _named(os.readlink(link))
        if found is not None:
            return found
    listed = root / "etc" / "timezone"
    return _named(listed.read_text(encoding="utf-8").strip()) if listed.is_file() else None


def _named(said: str) -> str | None:
    name = said.rpartition(MARK)[2]
    try:
        return check_zone(name)
    except UnknownZone:
        return None
