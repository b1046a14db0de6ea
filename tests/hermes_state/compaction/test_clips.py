"""Bodies shown shortened: what is shown, that it stays the same, and what a damaged clip says."""

from __future__ import annotations

import base64
import json
import random

import pytest

from hermes_state.compaction.blobs import marked, what_it_is
from hermes_state.compaction.clips import BodyClip, Clip, Kind, clipped, joined
from hermes_state.errors import InvalidInput
from tests.hermes_state.compaction.planning.histories import asks, gives, says

BASE64 = base64.b64encode(random.Random(7).randbytes(768)).decode()


def clip(*path: str | int, kind: Kind, head: int = 0, tail: int = 0) -> Clip:
    return Clip(bodies=(BodyClip(path=path, kind=kind, head=head, tail=tail),))


def test_a_text_keeps_its_head_and_tail_and_says_how_to_get_the_rest() -> None:
    row = gives("1", "a" * 500 + "b" * 500)
    shown = clipped(row, clip("content", kind="text", head=10, tail=5), seq=17)
    assert shown["content"] == (
        "aaaaaaaaaa\n[... 985 characters left out of 1,000 bytes; recover(17) returns all ...]\nbbbbb"
    )
    assert row["content"] == "a" * 500 + "b" * 500
    assert "recover(seq)" in clipped(row, clip("content", kind="text"))["content"]


def test_a_beginning_without_an_end_has_a_short_mark() -> None:
    clip = Clip(bodies=(BodyClip(path=("content",), kind="text", head=11, tail=0),))
    shown = clipped({"role": "tool", "content": "exit code 0\n" + "a line\n" * 900}, clip, seq=7)
    assert shown["content"] == "exit code 0 [... 6,301 characters left out; recover(7) returns all]"
    assert clipped({"role": "tool", "content": "x" * 60}, clip)["content"] == "x" * 60


def test_a_text_that_the_mark_would_not_make_shorter_stays() -> None:
    assert clipped(gives("1", "a" * 60), clip("content", kind="text"), seq=1)["content"] == "a" * 60


def test_json_becomes_one_line_with_its_keys() -> None:
    body = json.dumps({"status": "ok", "rows": list(range(300))})
    assert clipped(gives("1", body), clip("content", kind="mark"), seq=3)["content"] == (
        "[JSON object with status, rows, 1,416 bytes, left out; recover(3) returns it]"
    )
    assert what_it_is(json.dumps(list(range(300)))) == "JSON array of 300, 1,390 bytes,"
    assert what_it_is("[" * 300_000 + "]") == "JSON, 300,001 bytes,"
    assert what_it_is("{" + "x" * 600 + "}") == "text, 602 bytes,"


def test_a_picture_becomes_a_line_with_its_type_and_size() -> None:
    for part in (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + BASE64}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    ):
        row = says([{"type": "text", "text": "see"}, part])
        assert clipped(row, clip("content", 1, kind="mark"), seq=9)["content"] == [
            {"type": "text", "text": "see"},
            {"type": "text", "text": "[image image/png, 768 bytes, left out; recover(9) returns it]"},
        ]
    link = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert what_it_is(link) == "image https://example.org/a.png"


def test_encoded_data_inside_a_text_becomes_a_mark_and_the_text_around_it_stays() -> None:
    body = json.dumps({"caption": "a cat", "data": "data:image/png;base64," + BASE64, "raw": BASE64})
    shown = json.loads(clipped(gives("1", body), clip("content", kind="blobs"), seq=4)["content"])
    assert shown == {
        "caption": "a cat",
        "data": "[image/png data, 768 bytes, left out; recover(4) returns it]",
        "raw": "[base64 data, 768 bytes, left out; recover(4) returns it]",
    }


@pytest.mark.parametrize("text", ["x" * 4000, "0123456789abcdef" * 100, "word and " * 200, "-" * 900, "/usr/lib/" * 90])
def test_letters_in_a_row_are_no_encoded_data(text: str) -> None:
    assert marked(text, "1") == text


def test_encoded_data_in_lines_is_one_mark() -> None:
    lines = "\n".join(BASE64[at : at + 64] for at in range(0, len(BASE64), 64))
    assert marked(f"cert:\n{lines}\nend", "1") == (
        "cert:\n[base64 data, 768 bytes, left out; recover(1) returns it]\nend"
    )


def test_arguments_stay_json_and_short_values_stay_whole() -> None:
    arguments = json.dumps({"path": "/srv/a.py", "text": "line\n" * 400})
    row = asks("1", arguments=arguments)
    at = ("tool_calls", 0, "function", "arguments")
    shown = clipped(row, clip(*at, kind="strings", head=10, tail=5), seq=2)
    values = json.loads(shown["tool_calls"][0]["function"]["arguments"])
    assert values["path"] == "/srv/a.py"
    assert values["text"].startswith("line\nline\n\n[... 1,985 characters left out")
    gone = clipped(row, clip(*at, kind="mark"), seq=2)["tool_calls"][0]["function"]["arguments"]
    assert list(json.loads(gone)) == ["left_out"]
    assert row["tool_calls"][0]["function"]["arguments"] == arguments


def test_arguments_that_are_an_object_stay_one() -> None:
    row = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": "b" * 900}}]}
    for kind in ("strings", "mark", "blobs"):
        shown = clipped(row, clip("content", 0, "input", kind=kind), seq=2)
        assert isinstance(shown["content"][0]["input"], dict)


def test_a_body_that_is_not_there_is_left_alone() -> None:
    row = says("short")
    assert clipped(row, clip("content", 4, "text", kind="mark")) == row
    assert clipped(row, clip("tool_calls", 0, kind="mark")) == row


def test_a_clip_of_a_clipped_row_shows_what_it_would_show_of_the_whole() -> None:
    row = gives("1", "".join(f"line {number}\n" for number in range(900)))
    first = clip("content", kind="text", head=400, tail=200)
    second = clip("content", kind="text", head=80, tail=40)
    once, twice = clipped(row, second, seq=5)["content"], clipped(clipped(row, first, seq=5), second, seq=5)["content"]
    assert (once[:80], once[-40:]) == (twice[:80], twice[-40:])


def test_a_later_clip_replaces_only_the_bodies_that_it_names() -> None:
    first = Clip(bodies=(
        BodyClip(path=("content", 0, "text"), kind="text", head=90, tail=9),
        BodyClip(path=("content", 1), kind="mark"),
    ))
    second = clip("content", 0, "text", kind="text", head=5)
    assert joined(first, second) == Clip(bodies=(second.bodies[0], first.bodies[1]))
    assert joined(first, None) == joined(None, first) == first
    assert joined(None, None) is None


def test_a_clip_is_one_line_of_json_and_comes_back_equal() -> None:
    made = Clip(bodies=(
        BodyClip(path=("content", 0, "text"), kind="text", head=9, tail=4), BodyClip(path=("content", 1), kind="mark"),
    ))
    assert made.to_json() == '[[["content",0,"text"],"text",9,4],[["content",1],"mark",0,0]]'
    assert Clip.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    "text", ["", "{}x", "7", '[["content","text",1,1]]', '[[["content"],"gone",1,1]]', '[[["content"],"text",-1,1]]',
             '[[[],"text",1,1]]', '[[["content"],"text",true,1]]', "[" * 100_000]
)
def test_text_that_is_no_clip_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Clip.from_json(text)
    assert caught.value.message == f"This is no clip of a message: {text[:80]!r}."
