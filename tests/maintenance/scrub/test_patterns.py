"""What is looked for and what takes its place."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.errors import InvalidInput
from maintenance.scrub.patterns import Redactor, rules_for

SECRETS = {
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github-token": "ghp_" + "a1B2" * 9,
    "anthropic": "sk-ant-api03-" + "x1Y2z3" * 8,
    "openai": "sk-proj-" + "x1Y2z3" * 8,
    "google-api": "AIza" + "Sy0" * 11 + "ab",
    "slack": "xoxb-123456789012-123456789012-abcdefABCDEF012345678901",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA\n" * 3 + "-----END RSA PRIVATE KEY-----",
}


def redact(text: str, *patterns: str) -> str:
    return Redactor(rules_for(patterns, None)).text(text)


@pytest.mark.parametrize("kind", SECRETS)
def test_the_preset_finds_each_kind_and_leaves_the_words_around_it(kind: str) -> None:
    redactor = Redactor(rules_for((), "secrets"))
    said = redactor.text(f"before {SECRETS[kind]} after")

    assert SECRETS[kind] not in said
    assert re.fullmatch(r"before \[redacted [\w-]+ [0-9a-f]{6}\] after", said), said


def test_ordinary_text_is_left_alone_by_the_preset() -> None:
    redactor = Redactor(rules_for((), "secrets"))
    commit = "commit 9fceb02d0ae598e95dc970b74767f19372d61af8"
    for text in ("please read src/main.py", commit, "192.168.0.1", "密码是什么"):
        assert redactor.text(text) == text
    assert not redactor.counts and not redactor.found


def test_equal_secrets_get_equal_replacements_and_others_another() -> None:
    one, two, three = redact("hunter2 swordfish hunter2", r"hunter2|swordfish").split("] ")
    assert one + "]" == three and two + "]" != three


def test_groups_say_what_of_a_match_is_the_secret() -> None:
    said = redact("password: hunter2, user: me", r"password: (\S+),")
    assert re.fullmatch(r"password: \[redacted pattern [0-9a-f]{6}\], user: me", said)


def test_json_is_searched_as_it_reads_and_stays_json() -> None:
    secret = 'pass"word\\né'
    document = {"a": [secret, 1, None, True], secret: {"b": f"x{secret}y"}, "n": 4111111111111111}
    redactor = Redactor(rules_for((re.escape(secret), "4111111111111111"), None))
    said = redactor.text(json.dumps(document))

    parsed = json.loads(said)
    assert secret not in json.dumps(parsed) and secret not in str(parsed)
    assert parsed["a"][1:] == [1, None, True] and str(parsed["n"]).startswith("[redacted pattern-2 ")
    assert redactor.text(said) == said


def test_a_match_across_the_syntax_of_json_leaves_json_in_its_place() -> None:
    said = redact('["one","two","three"]', r'one","two')
    assert isinstance(json.loads(said), list)
    assert "one" not in said and "two" not in said


def test_the_marked_content_of_hermes_agent_is_searched_inside() -> None:
    said = redact('\x00json:[{"type":"text","text":"say \\"hunter2\\""}]', r'say "hunter2"')
    assert said.startswith('\x00json:[{"type":"text","text":"[redacted pattern ')


@given(st.text(), st.sampled_from([r"\w+", r"[a-f0-9]+", "e", r"\[|\]", "redacted"]))
def test_a_second_run_changes_nothing(text: str, pattern: str) -> None:
    redactor = Redactor(rules_for((pattern,), None))
    once = redactor.text(text)
    assert redactor.text(once) == once


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["hunter2", "héllo", "密码", 'a"b', "\n\t"]))
def test_a_secret_is_gone_from_plain_text_and_from_json(before: str, after: str, secret: str) -> None:
    redactor = Redactor(rules_for((re.escape(secret),), None))
    assert secret not in redactor.text(before + secret + after)
    said = redactor.text(json.dumps({"key": before + secret + after}))
    assert secret not in json.loads(said)["key"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "'(' is no regular expression: missing ), unterminated subpattern at position 0."),
        ("a*", "'a*' matches the empty text, so it would match everywhere."),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        rules_for((pattern,), None)
    assert raised.value.message == message


def test_nothing_to_look_for_is_refused() -> None:
    with pytest.raises(InvalidInput) as raised:
        rules_for((), None)
    assert (raised.value.message, raised.value.hint) == (
        "Nothing to look for.", "Give --pattern REGEX or --preset secrets.",
    )
