"""Who answers: only the process that the record names, within bounds, and only to its own user."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.errors import CannotOpen
from hermes_state.host import RunState, asking
from hermes_state.host.asking import MOST_OUT_BYTES, Answering, Question, answer_from, answer_to, ask, socket_path
from hermes_state.host.facts import Answer
from tests.hermes_state.host.hosts import Party, folder_of, run


def test_an_answer_that_names_another_process_is_none(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    gateway = party.host.gateways()[0].gateway.party()
    said = ask(gateway, Question.IDENTIFY)
    assert said == member.answer
    assert gateway.identity is not None
    assert ask(replace(gateway, identity=replace(gateway.identity, nonce="d" * 32)), Question.IDENTIFY) is None
    assert ask(replace(gateway, socket=""), Question.IDENTIFY) is None
    member.leave(reason="test over")
    assert ask(gateway, Question.IDENTIFY) is None
    assert list((folder_of(tmp_path) / "answers").iterdir()) == []


@pytest.mark.parametrize(
    "said", ["", "not json", "[]", "{}", '{"nonce": 1}', "x" * (MOST_OUT_BYTES + 1)],
    ids=["nothing", "text", "list", "empty", "part", "too long"],
)
def test_what_is_no_answer_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run("/h/a"), answers=False).member
    assert member is not None
    path = socket_path(folder_of(tmp_path), "a" * 32)
    path.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
        listening.listen(1)
        named = replace(party.host.gateways()[0].gateway.party(), socket=str(path))
        pid = os.fork()
        if pid == 0:  # pragma: no cover - the child
            line, _ = listening.accept()
            line.recv(4096)
            line.sendall(said.encode() + b"\n")
            os._exit(0)
        assert ask(named, Question.IDENTIFY, 5.0) is None
        os.waitpid(pid, 0)
    member.leave(reason="test over")


def test_a_question_that_cannot_be_answered_does_not_end_the_answering(tmp_path: Path) -> None:
    answer = Answer(
        nonce="a" * 32, pid=1, home="/h/a", state=RunState.RUNNING, multiplex=True, served=frozenset({"/h/a"})
    )
    failing = [True]

    def say(question: Question) -> Answer:
        if failing.pop() if failing else False:
            raise RuntimeError("a home cannot be read")
        return answer

    answering = Answering(tmp_path / "answers" / "a.sock", say)
    party = Party(folder_of(tmp_path))
    named = replace(
        party.host.enter(run("/h/a"), answers=False).member and party.host.gateways()[0].gateway.party(),  # type: ignore[type-var]
        socket=str(answering.path),
    )
    named = replace(named, identity=replace(named.identity, nonce="a" * 32))  # type: ignore[type-var]
    assert ask(named, Question.IDENTIFY) is None
    assert str(answering.failure) == "a home cannot be read"
    assert ask(named, Question.IDENTIFY) == answer
    answering.close()


def test_the_words_of_the_line_are_whole_and_checked() -> None:
    answer = Answer(nonce="a", pid=1, home=None, state=RunState.DRAINING, multiplex=None, served=None)
    assert answer_from(json.loads(json.dumps(answer_to(answer)))) == answer
    for wrong in ({"served": "all"}, {"multiplex": 1}, {"state": "asleep"}, {"home": 5}):
        with pytest.raises((TypeError, ValueError)):
            answer_from(answer_to(answer) | wrong)


def test_a_folder_that_lies_deep_has_a_socket_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30) / "hermes"
    party = Party(folder)
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    assert ask(party.host.gateways()[0].gateway.party(), Question.IDENTIFY) == member.answer
    member.leave(reason="test over")


@pytest.mark.parametrize(
    "said",
    ["[" * 100_000, '{"nonce": "a", "pid": 1e999, "served": null, "multiplex": null, "state": "x"}'],
    ids=["deep", "without an end"],
)
def test_an_answer_that_cannot_be_taken_apart_is_none_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    test_what_is_no_answer_is_none(tmp_path, monkeypatch, said)


def test_one_that_asks_byte_by_byte_keeps_nobody_waiting_for_longer_than_the_time_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds count for the whole line, not for each part of it; so does the time of whoever asks."""
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.2)
    ended = threading.Event()

    def line(seconds: float) -> None:
        with contextlib.suppress(OSError, ValueError):
            asking._line(here, 10_000, time.monotonic() + seconds)
        ended.set()

    here, there = socket.socketpair()
    with here, there:
        reading = threading.Thread(target=line, args=(0.2,))
        reading.start()
        began = time.monotonic()
        while not ended.is_set() and time.monotonic() < began + 10.0:
            there.send(b"x")
            ended.wait(0.05)
        assert ended.is_set() and time.monotonic() - began < 5.0
        reading.join()


def test_a_socket_that_cannot_be_named_is_not_left_open(tmp_path: Path) -> None:
    path = tmp_path / "answers" / "a.sock"
    path.mkdir(parents=True)  # where the socket would be
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(CannotOpen):
        Answering(path, lambda question: pytest.fail("nobody asks"))
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


def test_a_thread_that_cannot_take_a_call_rests_between_its_tries(tmp_path: Path) -> None:
    """Out of descriptors, say: it goes on, and does not take a whole core until then."""
    answering = Answering(tmp_path / "answers" / "a.sock", lambda question: pytest.fail("nobody asks"))
    calls, enough = [0], threading.Event()

    class Full:
        def accept(self) -> None:
            calls[0] += 1
            if calls[0] > 100:
                enough.set()
            raise OSError(errno.EMFILE, "Too many open files")

    plain = answering._listening
    answering._listening = Full()  # type: ignore[assignment]
    plain.shutdown(socket.SHUT_RDWR)  # it waits in the real one
    assert not enough.wait(0.5)
    answering._listening = plain
    answering.close()
