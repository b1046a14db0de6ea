"""Mirroring what cron delivered into the lane of the chat that can reply to it.

Invariant: which deliveries are mirrored is the table here and nothing else. A mirror is an item of the chat's lane, so
it becomes part of a user turn at the beginning of a turn and never stands between a call and its result, nor beside
another user turn. It is recorded once for each delivery, in the transaction of whoever calls, and makes no session.

Not for: sending the delivery itself (see the outbox), or redacting it: what is given here is kept. A mirror as an
assistant turn was rejected: the agent did not say it, and two assistant turns in a row are refused by providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.routing.homes import Home, guard
from hermes_state.work import lane_rows
from hermes_state.work.background_rows import cut
from hermes_state.work.lane_rows import Item, ItemKind

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


# Of a text and of a job's name in a lane: half of what a user message takes, so that a question has room; a line.
MOST_CHARACTERS, MOST_JOB = 131_072, 200


class Provenance(StrEnum):
    """How a delivery came to its target; the first is the strongest claim that replies belong there."""

    ORIGIN = "origin"  # the chat that the job was made in
    HOME_FALLBACK = "home_fallback"  # deliver=origin of a job without one: the home chat stands in for it
    PLATFORM_HOME = "platform_home"  # a person wrote the bare name of a platform: its home chat
    EXPLICIT = "explicit"  # a person named the chat
    ALL = "all"  # it comes from expanding "all": a broadcast


# Whether a continuable delivery is mirrored, by where it comes from and whether its job itself opted in (its
# `attach_to_session` is true). Source: seed gateway-notes, "Background process notifications".
ELIGIBLE: Mapping[tuple[Provenance, bool], bool] = {
    (Provenance.ORIGIN, True): True,
    (Provenance.ORIGIN, False): True,
    (Provenance.HOME_FALLBACK, True): True,
    (Provenance.HOME_FALLBACK, False): True,
    (Provenance.PLATFORM_HOME, True): True,
    (Provenance.PLATFORM_HOME, False): True,
    (Provenance.EXPLICIT, True): True,
    (Provenance.EXPLICIT, False): False,
    (Provenance.ALL, True): False,
    (Provenance.ALL, False): False,
}


def continuable(attach: bool | None, default: bool) -> bool:
    """Whether a job's deliveries may be replied to at all: what the job says, else the `default` of its profile."""
    return default if attach is None else attach


def is_mirrored(provenance: Provenance, *, attach: bool | None, default: bool) -> bool:
    """Whether a delivery goes into the reply lane. `attach`: the job's `attach_to_session`; None: it does not say."""
    return continuable(attach, default) and ELIGIBLE[provenance, attach is True]


def strongest(provenances: Iterable[Provenance]) -> Provenance:
    """What a target counts as that several ways lead to, such as "origin,all", in any order. Raises `InvalidInput`."""
    order = list(Provenance)
    found = sorted(provenances, key=order.index)
    if not found:
        raise InvalidInput("A delivery came to its target in some way.", argument="provenances")
    return found[0]


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """What `mirror` did."""

    # the item of the lane; None: such a delivery is not mirrored
    item: Item | None
    # False: it was there before, or is not mirrored
    new: bool


def mirror(
    tx: Transaction, lane: str, content: str, home: Home, *, delivery_id: str, job: str, provenance: Provenance,
    attach: bool | None, default: bool, at: float,
) -> Mirrored:
    """Put what a job delivered into the reply lane of a chat, if such a delivery is mirrored.

    Call it in the transaction that says that the delivery went out. `lane` is the session key of the chat; it needs no
    entry or session yet. `delivery_id` is that of the delivery: the same one is mirrored once for each lane. `job` is
    the name that the text is labelled with; give it and `content` without secrets and without media. `attach` and
    `default`: see `is_mirrored`. `at`: now, epoch seconds UTC. What waits in a lane wakes nobody: it is there at the
    beginning of the chat's next turn. An empty text is not mirrored. In `content` and `job`, what no file can hold is
    escaped and what is too long is cut: a text of a job does not undo the settlement of its delivery. Raises
    `InvalidInput`, `WrongHome`, `HomeRemoved`, `IdempotencyConflict` (it waits there with another text).
    """
    guard(tx, home)
    try:
        came = Provenance(provenance)
    except ValueError:
        raise InvalidInput(
            f"{provenance!r:.80} is no way in which a delivery comes to its target.",
            hint=f"The ways are {', '.join(Provenance)}.", argument="provenance",
        ) from None
    for name, value in (("job", job), ("content", content)):
        if not isinstance(value, str):
            raise InvalidInput(f"{name} of a mirror is a text, not {type(value).__name__}.", argument=name)
    if not content.strip() or not is_mirrored(came, attach=attach, default=default):
        return Mirrored(item=None, new=False)
    item, new = lane_rows.add(
        tx, lane, f"mirror/{delivery_id}", cut(content.strip(), MOST_CHARACTERS), home, kind=ItemKind.MIRROR,
        label=label(job), details=None, at=at,
    )
    return Mirrored(item=item, new=new)


def label(job: str) -> str:
    """The line that a mirrored text begins with, in one line: it is what says that nobody in the chat wrote it."""
    return f"[Cron delivery: {cut(' '.join(job.split()), MOST_JOB)}]"


def labelled(item: Item) -> Any:
    """What of an item stands in its user turn."""
    if item.label is None:
        return item.content
    return f"{item.label}\n{item.content}"
