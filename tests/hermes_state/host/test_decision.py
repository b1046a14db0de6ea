"""The verdict on a start, over every combination of facts, and the order of what is asked (T2.1 to T2.7, R44, R46)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from hermes_state.host import (
    Answer,
    Ask,
    Attach,
    Facts,
    Kind,
    Other,
    Outcome,
    Party,
    Reason,
    Refuse,
    ReplaceHost,
    RunState,
    Seen,
    Start,
    Supervisor,
    Verdict,
    decide,
    exit_code,
    next_ask,
)
from hermes_state.owners import OwnerIdentity

US, THEM = "/homes/us", "/homes/them"
WHO = OwnerIdentity(
    host="box", boot_id="b", time_namespace="t", pid_namespace="p:1", pid=77, start_ticks=5, nonce="0" * 32
)
OWNER = Party(gateway_no=1, identity=WHO, home=THEM, fence=3, socket="s")
BESIDE = Party(gateway_no=2, identity=replace(WHO, pid=78, nonce="1" * 32), home=THEM, fence=None, socket="s")


def answer(
    *served: str, multiplex: bool | None = True, known: bool = True, state: RunState = RunState.RUNNING
) -> Answer:
    return Answer(
        nonce=WHO.nonce, pid=77, home=THEM, state=state, multiplex=multiplex,
        served=frozenset(served) if known else None,
    )


ANSWERS = {
    "none": None,
    "not settled": answer(multiplex=None, known=False),
    "serves us": answer(US, THEM),
    "multiplexes without us": answer(THEM),
    "standalone": answer(THEM, multiplex=False),
    "leaving": answer(US, THEM, state=RunState.DRAINING),
}
OTHERS = {
    "nobody": (),
    "silent elsewhere": (Other(party=BESIDE, answer=None),),
    "silent and alone": (Other(party=BESIDE, answer=None, keeps_to_itself=True),),
    "without a voice": (Other(party=replace(BESIDE, socket=""), answer=None),),
    "silent at ours": (Other(party=replace(BESIDE, home=US), answer=None),),
    "serves us": (Other(party=BESIDE, answer=answer(US, THEM, multiplex=False)),),
    "not settled": (Other(party=BESIDE, answer=answer(multiplex=None, known=False)),),
    "serves others": (Other(party=BESIDE, answer=answer(THEM, multiplex=False)),),
}


def every_fact() -> Iterator[tuple[str, str, str, Facts]]:
    flags = list(product([False, True], repeat=4))
    for seen, supervisor, first, again, others in product(Seen, Supervisor, ANSWERS, ANSWERS, OTHERS):
        if seen is not Seen.LIVE and (first, again) != ("none", "none"):
            continue
        for replaces, force, standalone, taken_over in flags:
            yield first, again, others, Facts(
                home=US, supervisor=supervisor, seen=seen, owner=OWNER if seen in (Seen.LIVE, Seen.US) else None,
                identified=ANSWERS[first], rescanned=ANSWERS[again], others=OTHERS[others], asked=frozenset(Ask),
                replace=replaces, force=force, standalone=standalone, taken_over=taken_over,
            )


ALL = list(every_fact())


def check_attach(facts: Facts, verdict: Attach) -> None:
    said = [facts.answer, *(other.answer for other in facts.others)]
    serving = [one for one in said if one is not None and one.serves(US) and not one.is_leaving]
    assert serving, "nobody who lives said that it serves us"
    assert US in verdict.served
    assert not facts.force


def check_permanent(facts: Facts) -> None:
    assert facts.seen is Seen.LIVE
    assert facts.rescanned is not None
    assert (facts.rescanned.multiplex, facts.rescanned.serves(US)) == (True, False)


def check_replace(facts: Facts) -> None:
    assert facts.replace and facts.supervisor is Supervisor.NONE and facts.seen is Seen.LIVE
    assert facts.answer is None or facts.answer.serves(US) is not False
    assert not facts.taken_over


def check_start(facts: Facts, verdict: Start) -> None:
    if facts.force or facts.seen is Seen.US:
        return
    assert facts.seen in (Seen.NOBODY, Seen.UNKNOWN, Seen.LIVE)
    for other in facts.others:
        assert other.answer is None or other.answer.serves(US) is False
        assert other.party.home != US or other.answer is not None
        assert other.answer is not None or other.keeps_to_itself or not other.party.socket
        if facts.standalone:
            assert other.answer is not None
    assert verdict.beside is (facts.seen is not Seen.NOBODY)
    if facts.seen is Seen.LIVE:
        assert facts.answer is not None and facts.answer.serves(US) is False
        assert facts.standalone or facts.answer.multiplex is False


def test_every_combination_of_facts_keeps_the_rules() -> None:
    seen: set[Outcome] = set()
    for _first, _again, _others, facts in ALL:
        verdict = decide(facts)
        seen.add(verdict.outcome)
        assert verdict.sentence.endswith(".")
        if facts.force or facts.seen is Seen.US:
            assert isinstance(verdict, Start)
        if facts.seen in (Seen.UNRECORDED, Seen.BUSY) and not facts.force:
            assert verdict.outcome in (Outcome.REFUSE_TRANSIENT, Outcome.ATTACH)
        if not facts.force and facts.seen is not Seen.US and any(
            other.answer is not None and other.answer.serves(US) for other in facts.others
        ) and facts.seen is not Seen.LIVE:
            assert isinstance(verdict, Attach), "a live answer is worth the same whatever else cannot be seen"
        if isinstance(verdict, Attach):
            check_attach(facts, verdict)
        elif isinstance(verdict, ReplaceHost):
            check_replace(facts)
        elif isinstance(verdict, Start):
            check_start(facts, verdict)
        elif verdict.permanent:
            check_permanent(facts)
    assert seen == set(Outcome)


def test_a_control_plane_starts_beside_everybody_asks_nobody_and_ends_nobody() -> None:
    for _first, _again, _others, facts in ALL:
        control = replace(facts, kind=Kind.SERVE)
        verdict = decide(control)
        assert isinstance(verdict, Start) and (verdict.beside or facts.force)
        assert next_ask(replace(control, asked=frozenset())) is None


def test_only_a_permanent_refusal_is_ever_parked_by_any_supervisor_in_any_reading() -> None:
    from hermes_state.host import FATES, Fate

    for _first, _again, _others, facts in ALL:
        verdict, supervisor = decide(facts), facts.supervisor
        code = exit_code(verdict.outcome, supervisor)
        if code is None or supervisor in (Supervisor.NONE, Supervisor.EXTERNAL):
            continue
        for fates in FATES.values():
            parked = fates[supervisor, code] is Fate.PARKED
            assert parked is (verdict.outcome is Outcome.REFUSE_PERMANENT)


def test_what_is_asked_ends_and_changes_the_verdict_or_is_not_asked() -> None:
    """The questions come in order, each at most once, and none when it is forced or nothing can be seen."""
    for first, again, others, facts in ALL:
        known = replace(facts, asked=frozenset(), identified=None, rescanned=None, others=())
        asked = []
        while (question := next_ask(known)) is not None:
            asked.append(question)
            known = replace(known, asked=known.asked | {question})
            if question in (Ask.IDENTIFY, Ask.WAIT):
                known = replace(known, identified=ANSWERS[first])
            elif question is Ask.RESCAN:
                known = replace(known, rescanned=ANSWERS[again])
            else:
                known = replace(known, others=OTHERS[others])
        assert len(asked) == len(set(asked))
        if facts.force or facts.seen is Seen.US:
            assert asked == []
        if facts.seen in (Seen.NOBODY, Seen.UNKNOWN, Seen.BUSY) and not facts.force:
            assert asked == [Ask.OTHERS]
        if decide(known).outcome is Outcome.REFUSE_PERMANENT:
            assert Ask.RESCAN in asked


def test_what_cannot_be_written_starts_nothing_that_was_not_to_start() -> None:
    from hermes_state.host.decision import without_writing

    for _first, _again, _others, facts in ALL:
        verdict = decide(facts)
        for busy in (False, True):
            after = without_writing(verdict, facts, "The disk is full.", busy=busy)
            assert after.evidence[-1] == "The disk is full."
            if not isinstance(verdict, Start):
                assert not isinstance(after, Start)
            if isinstance(verdict, (Attach, Refuse)):
                assert replace(after, evidence=verdict.evidence) == verdict
            if isinstance(after, Start):
                assert after.beside and (not busy or facts.force)


def live(first: Answer | None, again: Answer | None = None, **given: object) -> Verdict:
    facts = Facts(
        home=US, supervisor=Supervisor.LAUNCHD, seen=Seen.LIVE, owner=OWNER, identified=first, rescanned=again,
        asked=frozenset(Ask),
    )
    return decide(replace(facts, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("supervisor", Supervisor)
def test_t2_1_a_standalone_owner_is_started_beside_and_a_multiplexer_that_excludes_us_refuses(
    supervisor: Supervisor
) -> None:
    beside = live(answer(THEM, multiplex=False), supervisor=supervisor)
    assert (type(beside), beside.reason) == (Start, Reason.BESIDE_STANDALONE)
    assert exit_code(beside.outcome, supervisor) is None
    late = live(answer(THEM), answer(THEM, multiplex=False), supervisor=supervisor)
    assert (type(late), late.reason) == (Start, Reason.BESIDE_STANDALONE)
    refused = live(answer(THEM), answer(THEM), supervisor=supervisor)
    assert (refused.reason, exit_code(refused.outcome, supervisor)) == (Reason.EXCLUDED, 78)


def test_t2_2_no_identify_means_no_attach_and_75_under_a_supervisor() -> None:
    for first in (None, answer(multiplex=None, known=False)):
        verdict = live(first)
        assert isinstance(verdict, Refuse) and not verdict.permanent
        assert exit_code(verdict.outcome, Supervisor.LAUNCHD) == 75


def test_t2_3_a_supervised_attach_exits_75_and_a_persons_0() -> None:
    verdict = live(answer(US, THEM))
    assert isinstance(verdict, Attach)
    assert [exit_code(verdict.outcome, one) for one in Supervisor] == [75, 75, 75, 75, 0]
    assert (verdict.pid, verdict.served) == (77, frozenset({US, THEM}))


def test_t2_5_replace_aimed_at_an_owner_that_does_not_serve_us_starts_beside_it() -> None:
    verdict = live(answer(THEM, multiplex=False), replace=True, supervisor=Supervisor.NONE)
    assert isinstance(verdict, Start) and verdict.beside


@pytest.mark.parametrize("first", [None, answer(multiplex=None, known=False), answer(US)])
def test_t2_4_replace_names_the_owner_that_serves_us_or_does_not_say(first: Answer | None) -> None:
    verdict = live(first, replace=True, supervisor=Supervisor.NONE)
    assert isinstance(verdict, ReplaceHost)
    assert verdict.owner == OWNER


def test_a_supervised_start_replaces_nobody_and_says_so() -> None:
    verdict = live(answer(US), replace=True, supervisor=Supervisor.SYSTEMD)
    assert isinstance(verdict, Attach)
    assert "--replace was said by systemd, whose starts never replace anybody" in verdict.evidence


def test_t2_7_anothers_multiplexer_is_a_permanent_refusal_whoever_asks() -> None:
    verdict = live(answer(THEM), answer(THEM), replace=True, supervisor=Supervisor.NONE)
    assert exit_code(verdict.outcome, Supervisor.NONE) == 78


def test_a_refusal_names_the_owner_and_what_was_asked() -> None:
    verdict = live(answer(THEM), answer(THEM))
    assert verdict.sentence == (
        f"The owner of this host (PID 77 of {THEM}) serves several homes and {US} is not one of them."
    )
    assert verdict.evidence == (
        "asked who it is, the owner answered: running, multiplex on, serves 1 homes",
        "asked to look for homes again, the owner answered: running, multiplex on, serves 1 homes",
        "it was asked again for some seconds",
    )
