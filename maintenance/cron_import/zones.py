"""In which time zone a home's jobs are meant, when they do not say.

Invariant: the order is hermes-agent's with an end: HERMES_TIMEZONE (also in
the home's .env), `timezone` of config.yaml, the IANA name that the
machine is set to, else nothing, and then somebody is asked. A name that is said and is no zone is an error that says
where it stands.

Not for: zones of jobs (see `reading`). Falling back to the machine's offset of now was rejected: hermes-agent does, and
its jobs run an hour off after the next change of the clocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cron_store.schedule import check_zone, host_zone
from hermes_state.errors import UnknownZone

VARIABLE = "HERMES_TIMEZONE"
ENVIRONMENT = ".env"  # what hermes-agent adds to its environment when it starts
CONFIG = "config.yaml"
# The one key that is needed, at the top level. What else YAML could mean by it is left to a person.
_VALUE = r"""(?:"([^"]*)"|'([^']*)'|([^#\s]\S*))[ \t]*(?:#.*)?$"""
_LINE = re.compile(rf"^timezone:[ \t]+{_VALUE}", re.MULTILINE)
_VARIABLE_LINE = re.compile(rf"^(?:export[ \t]+)?{VARIABLE}[ \t]*=[ \t]*{_VALUE}", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class FoundZone:
    """A zone, and where it was found."""

    name: str  # IANA
    said_by: str  # the variable, the file, or "this machine"


def zone_of_home(home: Path, environ: Mapping[str, str]) -> FoundZone | None:
    """The zone of jobs that name none; None: nothing says one. Raises `UnknownZone`."""
    said = environ.get(VARIABLE, "").strip()
    if said:
        return _checked(said, VARIABLE)
    for path, line in ((home / ENVIRONMENT, _VARIABLE_LINE), (home / CONFIG, _LINE)):
        said = _said_in(path, line)
        if said:
            return _checked(said, str(path))
    named = host_zone(environ)
    return None if named is None else FoundZone(name=named, said_by="this machine")


def _said_in(path: Path, line: re.Pattern[str]) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    found = line.search(text)
    return "" if found is None else next(group for group in found.groups() if group is not None).strip()


def _checked(name: str, said_by: str) -> FoundZone:
    try:
        return FoundZone(name=check_zone(name), said_by=said_by)
    except UnknownZone as error:
        raise UnknownZone(
            f"{said_by} names {name!r}, which is no time zone.",
            hint=f"Correct it there, or add --zone with an IANA name. {error.hint}", zone=name,
        ) from error
