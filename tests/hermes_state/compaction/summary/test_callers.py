"""Summarisers in other processes: a real program and a real server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hermes_state.compaction.summary import SummaryRequest, command_summarizer, openai_summarizer
from hermes_state.errors import InvalidInput, SummarizerFailed

REQUEST = SummaryRequest(
    kind="chunk", messages=[{"role": "user", "content": "Summarise \U0001f600 this."}], max_tokens=99, window=4_096,
    previous=None, part=1, parts=2,
)


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_program_gets_the_request_as_json_and_its_output_is_the_answer() -> None:
    code = "import json,sys; d=json.load(sys.stdin); print(d['kind'], d['max_tokens'], d['parts'])"
    summarize = command_summarizer(program(code))
    assert summarize(REQUEST) == "chunk 99 2\n"
    assert summarize.name == "command:" + sys.executable.rpartition("/")[2]


def test_a_program_that_fails_is_an_error_with_its_status_and_its_last_words() -> None:
    with pytest.raises(SummarizerFailed) as error:
        command_summarizer(program("import sys; sys.stdin.read(); sys.exit('no model loaded')"))(REQUEST)
    assert str(error.value) == f"The summariser {sys.executable} ended with status 1: no model loaded"
    assert error.value.facts["status"] == 1


@pytest.mark.slow
def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(SummarizerFailed) as error:
        command_summarizer(["/bin/sh", "-c", "sleep 60 & wait"], timeout=0.3)(REQUEST)
    assert str(error.value) == "The summariser /bin/sh did not answer within 0.3 seconds and was ended."


def test_a_program_that_is_not_there_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        command_summarizer(["/nonexistent/summarise"])
    assert str(refused.value) == "The summariser /nonexistent/summarise is no program that can be run."
    program = tmp_path / "summarise"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    asked = command_summarizer([str(program)])
    program.unlink()
    with pytest.raises(SummarizerFailed) as error:
        asked(REQUEST)
    assert str(error.value) == f"The summariser {program} cannot be run: No such file or directory."
    with pytest.raises(InvalidInput, match="A summariser that is a program needs its path"):
        command_summarizer([])


class _Answers(BaseHTTPRequestHandler):
    seen: ClassVar[list[dict[str, Any]]] = []
    status, body = 200, b""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"path": self.path, "key": self.headers.get("Authorization"), **asked})
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args: object) -> None:
        """Nothing: the test says what it saw."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Answers]]]:
    kind = type("Answers", (_Answers,), {"seen": []})
    with HTTPServer(("127.0.0.1", 0), kind) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/v1", kind
        running.shutdown()
        thread.join()


def test_a_server_is_asked_for_a_chat_completion(
    server: tuple[str, type[_Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, answers = server
    monkeypatch.setenv("A_KEY", "k-123")
    answers.body = json.dumps({"choices": [{"message": {"content": "the summary"}}]}).encode()
    summarize = openai_summarizer(url, "tiny", api_key_env="A_KEY", extra={"tools": []})
    assert summarize(REQUEST) == "the summary"
    (asked,) = answers.seen
    assert (asked["path"], asked["key"], asked["model"]) == ("/v1/chat/completions", "Bearer k-123", "tiny")
    assert (asked["max_tokens"], asked["temperature"], asked["stream"], asked["tools"]) == (99, 0, False, [])
    assert asked["messages"] == [{"role": "user", "content": "Summarise \U0001f600 this."}]
    assert summarize.name == f"openai:tiny@{url.split('/')[2]}"


def test_no_error_of_a_server_has_the_key(server: tuple[str, type[_Answers]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, answers = server
    place = url.split("/")[2]
    monkeypatch.setenv("A_KEY", "k-123")
    answers.status, answers.body = 401, b"bad key k-123"
    with pytest.raises(SummarizerFailed) as error:
        openai_summarizer(url, "tiny", api_key_env="A_KEY")(REQUEST)
    assert str(error.value) == f"The summariser tiny at {place} refused with HTTP status 401: bad key [key]."
    assert error.value.facts["status"] == 401
    monkeypatch.delenv("A_KEY")
    with pytest.raises(SummarizerFailed) as error:
        openai_summarizer(url, "tiny", api_key_env="A_KEY")(REQUEST)
    assert str(error.value) == (
        f"The summariser tiny at {place} needs a key, and the environment variable A_KEY is not set."
    )


def test_an_answer_that_is_no_completion_and_a_server_that_is_away_are_errors(
    server: tuple[str, type[_Answers]],
) -> None:
    url, answers = server
    place = url.split("/")[2]
    answers.body = b"<html>"
    with pytest.raises(SummarizerFailed) as error:
        openai_summarizer(url, "tiny")(REQUEST)
    assert str(error.value) == f"The summariser tiny at {place} gave an answer that is no chat completion."
    with pytest.raises(SummarizerFailed, match=r"The summariser tiny at 127\.0\.0\.1:1 cannot be reached: "):
        openai_summarizer("http://127.0.0.1:1/v1", "tiny")(REQUEST)
    for wrong in ("ftp://host/v1", "http://user:word@host/v1", "host"):
        with pytest.raises(InvalidInput, match="The address of a summariser is http:// or https://"):
            openai_summarizer(wrong, "tiny")
