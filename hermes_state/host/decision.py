"""The verdict on a start: start, attach, refuse, or replace the owner. Pure: facts in, a verdict with its reasons out.

Invariant: `Attach` needs a live answer that names the home. A permanent refusal needs a live owner that looked again
and says that it multiplexes without the home; everything less certain is tried again. A supervised start never
replaces anybody, so two of them cannot storm. A control plane runs beside everybody. What cannot be seen is neither
attached to nor a reason to stay away, and what can be seen beside it counts in full: a lock that is held, an answer, a
record that is busy. `next_ask` names what may still change the verdict, in the order of its cost.

Not for: looking (see `probe`) or exit codes (see `exits`). Deciding from the record was rejected: it is written before
its owner knows whom it serves, and it outlives it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hermes_state.host.exits import Outcome, Supervisor
from hermes_state.host.facts import Ask, Facts, Party, Seen
from hermes_state.host.states import Kind


class Reason(StrEnum):
    """Why; one word for programs."""

    FORCED = "forced"
    NO_GATEWAY = "no_gateway"
    UNKNOWN_OWNER = "unknown_owner"
    ALREADY_OWNER = "already_owner"
    NO_OWNER = "no_owner"
    BESIDE_STANDALONE = "beside_standalone"
    CONFIGURED_STANDALONE = "configured_standalone"
    SERVED = "served"
    SERVED_BY_OTHER = "served_by_other"
    REPLACES = "replaces"
    BEING_REPLACED = "being_replaced"
    OWNER_LEAVING = "owner_leaving"
    OWNER_SILENT = "owner_silent"
    NOT_SETTLED = "not_settled"
    NOT_RESCANNED = "not_rescanned"
    SAME_HOME_SILENT = "same_home_silent"
    OTHERS_SILENT = "others_silent"
    EXCLUDED = "excluded"
    RACE_LOST = "race_lost"
    HOST_BUSY = "host_busy"
    NOT_WRITABLE = "not_writable"


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    reason: Reason
    sentence: str  # for people
    evidence: tuple[str, ...]  # what was seen, a sentence each


@dataclass(frozen=True, kw_only=True)
class Start(_Verdict):
    """Run a gateway here."""

    beside: bool  # somebody else owns the host, or may: run without owning it

    @property
    def outcome(self) -> Outcome:
        return Outcome.START


@dataclass(frozen=True, kw_only=True)
class Attach(_Verdict):
    """Run nothing: a live gateway says that it serves the home."""

    to: Party | None  # whose answer that is
    pid: int  # of its answer
    served: frozenset[str]  # homes, by its answer

    @property
    def outcome(self) -> Outcome:
        return Outcome.ATTACH


@dataclass(frozen=True, kw_only=True)
class Refuse(_Verdict):
    """Run nothing."""

    permanent: bool  # only a person can change it; otherwise try again

    @property
    def outcome(self) -> Outcome:
        return Outcome.REFUSE_PERMANENT if self.permanent else Outcome.REFUSE_TRANSIENT


@dataclass(frozen=True, kw_only=True)
class ReplaceHost(_Verdict):
    """Have the owner leave, then start in its place."""

    owner: Party  # whom, by its record; proven to live

    @property
    def outcome(self) -> Outcome:
        return Outcome.REPLACE_HOST


Verdict = Start | Attach | Refuse | ReplaceHost
_NO_OWNER = (Seen.NOBODY, Seen.UNKNOWN, Seen.BUSY)  # in these there is nobody to be asked as the owner


def next_ask(facts: Facts) -> Ask | None:
    """What is worth asking before `decide`, or None when nothing can change the verdict any more."""
    if facts.force or facts.kind is not Kind.GATEWAY or facts.seen is Seen.US:
        return None
    order = [Ask.OTHERS] if facts.seen in _NO_OWNER else [Ask.IDENTIFY, Ask.WAIT, Ask.RESCAN, Ask.OTHERS]
    return next((ask for ask in order if ask not in facts.asked and _may_matter(ask, facts)), None)


def _may_matter(ask: Ask, facts: Facts) -> bool:
    answer = facts.answer
    serves = None if answer is None else answer.serves(facts.home)
    replaces = _replaces(facts) and serves is not False
    if ask is Ask.IDENTIFY:
        return facts.seen is Seen.LIVE
    if ask is Ask.OTHERS:
        if facts.seen is not Seen.LIVE:
            return True
        return not replaces and answer is not None and serves is False and (
            facts.standalone or answer.multiplex is False
        )
    if replaces or (answer is not None and answer.is_leaving):
        return False
    if ask is Ask.WAIT:
        return serves is None
    return facts.seen is Seen.LIVE and answer is not None and not serves and answer.multiplex is not False and (
        not facts.standalone
    )


def decide(facts: Facts) -> Verdict:
    """The verdict on these facts; what was not asked counts as not answered."""
    evidence = facts.because + _said(facts)
    if facts.force:
        return Start(
            reason=Reason.FORCED, sentence="It was told to start whoever runs; nothing was asked.", evidence=evidence,
            beside=False,
        )
    if facts.kind is not Kind.GATEWAY:
        return Start(
            reason=Reason.NO_GATEWAY, evidence=evidence, beside=True,
            sentence="It serves no home and owns no host, so it starts whichever gateway runs, and ends none.",
        )
    if facts.seen is Seen.UNKNOWN:
        return _among_others(
            facts, evidence, Reason.UNKNOWN_OWNER, beside=True,
            sentence="Whether another gateway owns this host cannot be seen here, and none that can be asked serves"
            f" {facts.home}: it starts without owning the host.",
        )
    if facts.seen is Seen.BUSY:
        verdict = _among_others(facts, evidence, Reason.HOST_BUSY, "", beside=True)
        return verdict if not isinstance(verdict, Start) else _refuse(
            Reason.HOST_BUSY, "Who owns this host cannot be read or written now: somebody keeps its record locked.",
            evidence,
        )
    if facts.seen is Seen.US:
        return Start(
            reason=Reason.ALREADY_OWNER, sentence="This process owns the host already.", evidence=evidence, beside=False
        )
    if facts.seen is Seen.NOBODY:
        return _among_others(facts, evidence, Reason.NO_OWNER, "No live gateway owns this host.", beside=False)
    return _beside_owner(facts, evidence)


def _beside_owner(facts: Facts, evidence: tuple[str, ...]) -> Verdict:
    answer, owner = facts.answer, facts.owner
    if owner is None and (serving := _serving(facts, evidence)) is not None:
        return serving  # the lock is held and nobody knows by whom; this one says itself that it serves the home
    serves = None if answer is None else answer.serves(facts.home)
    whose = "Another gateway" if owner is None else f"The owner of this host (PID {_pid(facts)} of {owner.home})"
    if _replaces(facts) and serves is not False:
        assert owner is not None  # LIVE has one
        if facts.taken_over:
            return _refuse(Reason.BEING_REPLACED, f"{whose} is being replaced by somebody else already.", evidence)
        return ReplaceHost(
            reason=Reason.REPLACES, sentence=f"{whose} is asked to leave, and this process starts in its place.",
            evidence=evidence, owner=owner,
        )
    if answer is not None and answer.is_leaving:
        return _refuse(Reason.OWNER_LEAVING, f"{whose} is {answer.state}.", evidence)
    if answer is None:
        return _refuse(Reason.OWNER_SILENT, f"{whose} lives and does not say whom it serves.", evidence)
    if serves:
        return Attach(
            reason=Reason.SERVED, sentence=f"{whose} serves {facts.home}.", evidence=evidence, to=owner,
            pid=answer.pid, served=answer.served or frozenset(),
        )
    if serves is None:
        return _refuse(Reason.NOT_SETTLED, f"{whose} has not settled yet whom it serves.", evidence)
    if facts.standalone or answer.multiplex is False:
        return _among_others(
            facts, evidence, Reason.CONFIGURED_STANDALONE if facts.standalone else Reason.BESIDE_STANDALONE,
            f"{whose} serves its own homes only, so this one starts beside it.", beside=True,
        )
    if facts.rescanned is None or answer.multiplex is None:
        return _refuse(Reason.NOT_RESCANNED, f"{whose} did not say whether it can serve {facts.home}.", evidence)
    return _refuse(
        Reason.EXCLUDED, f"{whose} serves several homes and {facts.home} is not one of them.", evidence, permanent=True
    )


def _among_others(
    facts: Facts, evidence: tuple[str, ...], reason: Reason, sentence: str, *, beside: bool
) -> Verdict:
    """Start, unless a gateway that does not own the host serves the home, or may."""
    serving = _serving(facts, evidence)
    if serving is not None:
        return serving
    for other in facts.others:
        known = other.answer is not None and other.answer.serves(facts.home) is False
        if other.answer is not None and not known and not other.answer.is_leaving:
            return _refuse(Reason.NOT_SETTLED, f"{other.party} has not settled yet whom it serves.", evidence)
        if other.party.home == facts.home and not known:
            return _refuse(
                Reason.SAME_HOME_SILENT, f"{other.party} lives and does not say whether it serves that home.", evidence
            )
        # One that could answer and does not may be a gateway for several homes, this one among them.
        may_serve = bool(other.party.socket) and not other.keeps_to_itself
        if not known and (facts.standalone or may_serve):
            return _refuse(
                Reason.OTHERS_SILENT, f"{other.party} lives and does not say whether it serves {facts.home}.", evidence
            )
    if facts.standalone and reason is Reason.NO_OWNER:
        reason, sentence = Reason.CONFIGURED_STANDALONE, f"No live gateway serves {facts.home}."
    return Start(reason=reason, sentence=sentence, evidence=evidence, beside=beside)


def _serving(facts: Facts, evidence: tuple[str, ...]) -> Verdict | None:
    """The verdict when a gateway that does not own the host, as far as is known, says that it serves the home."""
    for other in facts.others:
        if other.answer is None or not other.answer.serves(facts.home):
            continue
        if other.answer.is_leaving:
            return _refuse(
                Reason.OWNER_LEAVING, f"{other.party} serves {facts.home} and is {other.answer.state}.", evidence
            )
        also = " Only the owner of a host is replaced: stop that one first." if facts.replace else ""
        return Attach(
            reason=Reason.SERVED_BY_OTHER, sentence=f"{other.party} serves {facts.home}.{also}", evidence=evidence,
            to=other.party, pid=other.answer.pid, served=other.answer.served or frozenset(),
        )
    return None


def without_writing(verdict: Verdict, facts: Facts, problem: str, *, busy: bool) -> Verdict:
    """The same verdict for a start that cannot write into the host's record: what keeps it away still does.

    `problem`: why it cannot, a sentence. `busy`: somebody keeps the record locked, so that may change.
    """
    evidence = (*verdict.evidence, problem)
    if isinstance(verdict, ReplaceHost):
        return _refuse(
            Reason.NOT_WRITABLE, f"{verdict.owner} was to be replaced, and that cannot be written down.", evidence
        )
    if not isinstance(verdict, Start):
        return replace(verdict, evidence=evidence)
    if busy and not facts.force and facts.kind is Kind.GATEWAY:
        return _refuse(
            Reason.HOST_BUSY, "This start could not be written down: somebody keeps the host's record locked.", evidence
        )
    return replace(verdict, evidence=evidence, beside=True)


def _replaces(facts: Facts) -> bool:
    # Two supervisors that replace each other's process end every few seconds for ever: seen in the field.
    return facts.replace and facts.supervisor is Supervisor.NONE and facts.seen is Seen.LIVE


def _refuse(reason: Reason, sentence: str, evidence: tuple[str, ...], *, permanent: bool = False) -> Refuse:
    return Refuse(reason=reason, sentence=sentence, evidence=evidence, permanent=permanent)


def _pid(facts: Facts) -> str:
    if facts.answer is not None:
        return str(facts.answer.pid)
    identity = None if facts.owner is None else facts.owner.identity
    return "?" if identity is None else str(identity.pid)


def _said(facts: Facts) -> tuple[str, ...]:
    said = []
    if facts.replace and facts.supervisor is not Supervisor.NONE:
        said.append(f"--replace was said by {facts.supervisor}, whose starts never replace anybody")
    for ask, answer in ((Ask.IDENTIFY, facts.identified), (Ask.RESCAN, facts.rescanned)):
        if ask in facts.asked:
            name = "asked who it is, the owner" if ask is Ask.IDENTIFY else "asked to look for homes again, the owner"
            if answer is None:
                said.append(f"{name} did not answer")
            else:
                homes = "nobody knows yet whom" if answer.served is None else f"{len(answer.served)} homes"
                said.append(f"{name} answered: {answer.state}, multiplex {_word(answer.multiplex)}, serves {homes}")
    if Ask.WAIT in facts.asked:
        said.append("it was asked again for some seconds")
    said += [
        f"{other.party} answered" if other.answer is not None else f"{other.party} did not answer"
        for other in facts.others
    ]
    return tuple(said)


def _word(value: bool | None) -> str:
    return "unknown" if value is None else "on" if value else "off"
