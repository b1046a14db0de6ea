"""What becomes of a summariser's answer: hostile, careless and good ones."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.summary import checked, extractive
from hermes_state.compaction.summary.checked import cut_at_line
from hermes_state.compaction.summary.prompts import INSTRUCTION
from tests.hermes_state.compaction.summary.sources import conversation, fourths, spoken

MESSAGES, FACTS = conversation(7)
GOOD = (
    "GOAL: find out why checkout is slow since the last deploy.\n"
    "DECISIONS AND CONCLUSIONS: svc.auth is fine in parts 0 to 4; the leases renewed in time.\n"
    f"FACTS: {FACTS[0][1]}"
)


def test_a_good_answer_stays_as_it_is() -> None:
    result = checked(GOOD, source=MESSAGES, budget=400, counter=fourths)
    assert (result.text, result.form, result.notes) == (GOOD, "model", ())


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("", "empty: the summariser returned no text"),
        (" \n\t ", "empty: the summariser returned no text"),
        (None, "wrong_type: the summariser returned NoneType, not text"),
        ({"summary": "x"}, "wrong_type: the summariser returned dict, not text"),
        (b"bytes", "wrong_type: the summariser returned bytes, not text"),
        (ValueError("no route to host"), "summarizer_failed: ValueError: no route to host"),
        ("<think>checkout svc.auth renewed, so I should say", "reasoning_only: nothing is left without the reasoning"),
        ("<think>checkout</think>\n<thinking>svc</thinking>", "reasoning_only: nothing is left without the reasoning"),
        ("\x00\ud800\udfff", "reasoning_only: nothing is left without the reasoning"),
        ("Previous conversation was too long to summarize.", "constant: nothing in it is about this conversation"),
        ("The user asked several questions and the assistant answered them with various tools. Work continues.",
         "constant: nothing in it is about this conversation"),
        ("Done.", "too_short: 1 words"),
        (spoken(MESSAGES), "echo: the conversation or the instruction once more"),
        (MESSAGES[2]["content"][:2000], "echo: the conversation or the instruction once more"),
        (INSTRUCTION, "echo: the conversation or the instruction once more"),
        ("checkout svc.auth " * 400, "degenerate: the same few words over and over"),
    ],
    ids=["empty", "blank", "none", "dict", "bytes", "error", "unclosed", "thinking", "surrogates", "constant",
         "generic", "short", "echo", "echo of one", "echo of the prompt", "loop"],
)
def test_an_answer_that_cannot_be_used_is_replaced_and_the_note_says_why(answer: object, note: str) -> None:
    result = checked(answer, source=MESSAGES, budget=600, counter=fourths)
    assert (result.form, result.notes) == ("extractive", (note,))
    assert result.text == extractive(MESSAGES, budget=600, counter=fourths)
    assert 0 < fourths(result.text) <= 600


@pytest.mark.parametrize("size", [500, 2_000, 100_000])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda raw: raw.decode("utf-8", "replace"), "garbled"),
        (lambda raw: raw.decode("latin-1"), "garbled"),
        (lambda raw: raw.decode("utf-16-le", "replace"), "garbled"),
        (lambda raw: base64.b64encode(raw).decode(), "constant"),
        (lambda raw: raw.hex(" "), "constant"),
        (lambda raw: base64.b85encode(raw).decode(), "constant"),
        (lambda raw: " ".join(str(one) for one in raw), "constant"),
    ],
    ids=["utf-8", "latin-1", "utf-16", "base64", "hex", "base85", "numbers"],
)
def test_bytes_that_are_no_text_are_no_summary(size: int, how: Callable[[bytes], str], why: str) -> None:
    for seed in range(5):
        answer = how(random.Random(seed).randbytes(size))
        result = checked(answer, source=MESSAGES, budget=600, counter=fourths)
        assert result.form == "extractive", (seed, result.text[:80])
        assert result.notes[-1].startswith((why, "too_short", "constant", "degenerate")), result.notes


def test_one_shared_digit_is_not_about_the_conversation_and_a_good_answer_may_have_a_broken_character() -> None:
    nothing = "The user asked 4 questions and the assistant answered all 5 of them. Work continues in part 2."
    result = checked(nothing, source=MESSAGES, budget=600, counter=fourths)
    assert (result.form, result.notes) == ("extractive", ("constant: nothing in it is about this conversation",))
    result = checked(GOOD + " \ufffd\ue000", source=MESSAGES, budget=600, counter=fourths)
    assert (result.form, result.notes) == ("model", ())


def test_what_is_left_after_a_cut_is_about_the_conversation_too() -> None:
    noise = " ".join(f"{random.Random(number).getrandbits(40):x}" for number in range(2000))
    result = checked(noise + "\n" + GOOD, source=MESSAGES, budget=300, counter=fourths)
    assert result.form == "extractive"
    assert result.notes[-1] == "constant: nothing in it is about this conversation"


def test_reasoning_fences_and_tags_around_a_good_answer_are_taken_off() -> None:
    for answer in (
        f"<think>hm</think>{GOOD}", f"reasoning without a beginning</think>\n{GOOD}", f"```markdown\n{GOOD}\n```",
        f"<summary>\n{GOOD}\n</summary><|im_end|>", f"[THINK]a[/THINK]{GOOD}", GOOD.replace("svc", "s\x00vc"),
    ):
        result = checked(answer, source=MESSAGES, budget=400, counter=fourths)
        assert (result.text, result.form, result.notes) == (GOOD, "model", ())


def test_an_answer_twice_the_size_is_cut_at_a_line_within_the_budget() -> None:
    lines = [f"checkout step {number}: svc.auth renewed lease {number * 37}" for number in range(100)]
    result = checked("\n".join(lines), source=MESSAGES, budget=300, counter=fourths)
    assert result.form == "model"
    assert result.notes == (f"too_large: {fourths(chr(10).join(lines))} tokens, cut to 300",)
    assert result.text.split("\n") == lines[: result.text.count("\n") + 1]
    assert 250 < fourths(result.text) <= 300


def test_the_summary_before_it_once_more_is_no_summary_of_what_came_after() -> None:
    result = checked(GOOD + "\n", source=MESSAGES, budget=600, counter=fourths, previous=GOOD)
    assert (result.form, result.notes) == ("extractive", ("unchanged: the summary before it once more",))
    assert FACTS[0][0] in result.text


def test_an_answer_larger_than_what_it_stands_for_is_refused() -> None:
    source = [{"role": "user", "content": "Use port 4471 for relay alpha, host beta.corp.example, path /srv/x."}]
    answer = "Port 4471 is for relay alpha. " + " ".join(f"It matters for reason number {n}." for n in range(30))
    result = checked(answer, source=source, budget=500, counter=fourths)
    assert (result.form, result.notes) == ("extractive", (f"larger_than_source: {fourths(answer)} tokens for 21",))
    assert "4471" in result.text


def test_lines_that_a_model_repeats_are_kept_once() -> None:
    result = checked(GOOD + "\nThe pool of svc.auth is empty." * 9, source=MESSAGES, budget=600, counter=fourths)
    assert result.text == GOOD + "\nThe pool of svc.auth is empty."
    assert result.notes == ("repeated_lines: 248 characters left out",)


def test_a_source_without_text_still_has_a_replacement_about_it() -> None:
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    source = [{"role": "user", "content": image}, {"role": "assistant", "content": None}]
    assert checked("", source=source, budget=50, counter=fourths).text == "2 messages (1 user, 1 assistant)"


_ANSWERS = st.one_of(st.text(max_size=400), st.none(), st.integers(), st.text(alphabet="<think>/ a\n", max_size=200))


@settings(max_examples=80, deadline=None)
@given(_ANSWERS, st.integers(30, 300))
def test_whatever_comes_in_what_goes_out_is_within_the_budget(answer: object, budget: int) -> None:
    result = checked(answer, source=MESSAGES[:6], budget=budget, counter=fourths, previous="svc.auth leads")
    assert 0 < fourths(result.text) <= budget
    assert result.form == "model" or result.notes


@given(st.text(alphabet="ab \n", max_size=200), st.integers(0, 60))
def test_a_cut_is_a_beginning_within_the_budget(text: str, budget: int) -> None:
    cut = cut_at_line(text, budget, fourths)
    assert text.startswith(cut)
    assert fourths(cut) <= budget
