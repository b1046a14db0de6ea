"""What a start knows of the host, and what it can still ask.

Invariant: only a live `Answer` says whom an owner serves; a record never does. What was not asked and what nobody
answered are different: `asked` says which.

Not for: judging (see `decision`) and asking (see `probe`). A set of homes that is empty when it is unknown was
rejected: "serves nobody" and "nobody knows" lead to different verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermes_state.host.exits import Supervisor
from hermes_state.host.states import LEAVING, Kind, RunState
from hermes_state.owners import OwnerIdentity


class Seen(StrEnum):
    """What was found where the host's owner would be."""

    NOBODY = "nobody"  # the lock is free, and no owner that lost it lives
    US = "us"  # this process has it
    LIVE = "live"  # another process has it, and its record names it
    UNRECORDED = "unrecorded"  # somebody has the lock, and no record that can be believed says who
    UNKNOWN = "unknown"  # the lock or the record cannot be read here: never taken for "nobody"
    BUSY = "busy"  # the record is locked by somebody who does not let go


class Ask(StrEnum):
    """What a start can do to learn more."""

    OTHERS = "others"  # ask every other live gateway who it is
    IDENTIFY = "identify"  # ask the owner who it is and whom it serves
    WAIT = "wait"  # the owner has not settled that yet: ask again for a while
    RESCAN = "rescan"  # ask the owner to look for homes that it does not serve yet


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a live gateway says of itself."""

    nonce: str  # of its owner identity: another one than the record's is another process
    pid: int
    home: str | None  # that it was started for; None when it does not say
    state: RunState
    multiplex: bool | None  # whether it serves other homes as well; None: not settled yet
    served: frozenset[str] | None  # homes; None: not settled yet
    code_sha: str | None = None  # what it runs

    def serves(self, home: str) -> bool | None:
        """Whether it serves that home; None when it does not know yet."""
        return None if self.served is None else home in self.served

    @property
    def is_leaving(self) -> bool:
        """Whether it takes nothing new."""
        return self.state in LEAVING


@dataclass(frozen=True, kw_only=True)
class Party:
    """One gateway by its row."""

    gateway_no: int  # its row
    identity: OwnerIdentity | None  # None when this version cannot read it
    home: str  # that it was started for
    fence: int | None  # of its ownership; None when it does not own the host
    socket: str  # where it answers; empty: nowhere
    label: str = ""  # what its supervisor calls it
    answered_pid: int | None = None  # of one that no row names: by its own answer

    def __str__(self) -> str:
        pid = self.answered_pid if self.identity is None else self.identity.pid
        who = "an identity that this version cannot read" if pid is None else f"PID {pid}"
        return f"{who} of {self.home}"


@dataclass(frozen=True, kw_only=True)
class Other:
    """A live gateway that does not own the host, and what it answered."""

    party: Party
    answer: Answer | None  # None: nothing, or not in time
    # Its record says that it serves its own homes only and ours is none of them. Never a reason to attach; while it is
    # silent, a reason not to wait for it.
    keeps_to_itself: bool = False


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that a verdict is made of."""

    home: str  # the home that is to be served
    supervisor: Supervisor  # who started this process
    seen: Seen
    because: tuple[str, ...] = ()  # what was seen, sentences
    owner: Party | None = None  # by its record; only with LIVE and US
    identified: Answer | None = None  # the owner's last answer to "who are you?"
    rescanned: Answer | None = None  # its answer after it looked for homes again
    others: tuple[Other, ...] = ()  # live gateways but the owner and this process
    asked: frozenset[Ask] = frozenset()
    replace: bool = False  # a person wants this process in the owner's place
    force: bool = False  # start whatever is seen; nothing is asked
    standalone: bool = False  # this home is configured to have a gateway of its own
    taken_over: bool = False  # somebody else is replacing the owner already
    kind: Kind = Kind.GATEWAY  # what is started

    @property
    def answer(self) -> Answer | None:
        """The newest answer of the owner."""
        return self.rescanned or self.identified
