"""What callers may declare, checked before anything is touched.

Invariant: what passes here can be stored, read back and kept to. Not for: schedules, which are checked where they are
parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any, get_args

from cron_store.records import Effect, Misfire, Overlap, Policies
from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import LATEST, MOST_ID, seconds, text, whole

MOST_JOB_ID = 200
MOST_NAME = 4_000
MOST_FIELDS_BYTES = 1_048_576
MOST_LATE = 500
_NAMES = frozenset(field.name for field in fields_of(Policies))


def job_id(value: Any) -> str:
    """The id of a job. Raises `InvalidInput`."""
    given = text("job_id", value, most=MOST_JOB_ID, of="")
    if given != given.strip() or any(ord(one) < 32 for one in given) or "/" in given:
        raise InvalidInput(
            f"job_id is one line without '/' and without spaces at its ends, not {given!r:.80}.", argument="job_id"
        )
    return given


def name(value: Any) -> str:
    """What people call a job; may be empty. Raises `InvalidInput`."""
    return text("name", value, empty=True, most=MOST_NAME, of=" of a cron job")


def merged(policies: Policies, changes: Mapping[str, Any]) -> Policies:
    """Policies with some of them changed. Raises `InvalidInput` for a name that is none."""
    unknown = sorted(set(changes) - _NAMES)
    if unknown:
        raise InvalidInput(
            f"{unknown[0]!r} is no policy of a cron job.", hint=f"They are {', '.join(sorted(_NAMES))}.",
            argument="policies",
        )
    return checked(replace(policies, **changes))


def checked(policies: Policies) -> Policies:
    """The policies, if they can be kept to. Raises `InvalidInput`."""
    if not isinstance(policies, Policies):
        raise InvalidInput(f"policies are Policies, not {policies!r:.80}.", argument="policies")
    for name, value, known in (
        ("effect", policies.effect, get_args(Effect)), ("misfire", policies.misfire, (*get_args(Misfire), None)),
        ("overlap", policies.overlap, get_args(Overlap)),
    ):
        if value not in known:
            raise InvalidInput(
                f"{name} of a cron job is one of {', '.join(str(one) for one in known if one)}, not {value!r:.80}.",
                argument=name,
            )
    if policies.grace_seconds is not None:
        seconds("grace_seconds", policies.grace_seconds, most=LATEST)
    seconds("spacing_seconds", policies.spacing_seconds, most=LATEST)
    whole("most_late", policies.most_late, 1, MOST_LATE)
    if policies.repeat_times is not None:
        whole("repeat_times", policies.repeat_times, 1, MOST_ID)
    if policies.allowance_seconds is not None:
        seconds("allowance_seconds", policies.allowance_seconds, most=LATEST, zero=False)
    whole("keep_executions", policies.keep_executions, 0, MOST_ID)
    if not isinstance(policies.session_reuse, bool):
        raise InvalidInput(f"session_reuse is True or False, not {policies.session_reuse!r:.80}.",
                           argument="session_reuse")
    return policies


def fields(value: Any) -> str:
    """The fields of a job as stored. Raises `InvalidInput`."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidInput(f"fields are names and values, not {value!r:.80}.", argument="fields")
    try:
        content = json_values.dump(dict(value))
        size = len(content.encode())
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidInput(f"The fields of a cron job are JSON: {error}.", argument="fields") from error
    if size > MOST_FIELDS_BYTES:
        raise InvalidInput(
            f"The fields of a cron job have {size:,} bytes; {MOST_FIELDS_BYTES:,} is the most.",
            hint="Keep large texts in files and name them.", argument="fields",
        )
    return content


def names(value: Sequence[str]) -> list[str]:
    """Names of fields. Raises `InvalidInput` for a single text."""
    if isinstance(value, str):
        raise InvalidInput(f"remove_fields is a list of names, not {value!r:.80}.", argument="remove_fields")
    return list(value)
