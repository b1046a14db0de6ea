"""M7 to M9: what a real model recalls from the next request, and what a server would have to read.

Invariant: one question a prompt, the same questions for every policy, greedy; floor (no context) and ceiling (every
fact in one short text) are measured with the same questions and stand beside each figure. A view that does not fit the
window is not read. The system prompt of the request is replaced by one short sentence: its size has been counted.

Not for: comparing models. Ten questions a prompt were rejected: they help where nothing is missing and hurt where
something is (facts 3a).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.small_windows.channel import Channel, models_python
from benchmarks.small_windows.ours import Ours
from benchmarks.small_windows.planting import Generator, planted, surviving
from benchmarks.small_windows.policies import Setting
from benchmarks.small_windows.recall import sent
from benchmarks.small_windows.tokenizers import INSTALL, REAL, file_of
from benchmarks.small_windows.wire import Message, text_of
from benchmarks.small_windows.workloads import FIXED, made, prompt

WINDOW = 8192
GENERATED = 14
SYSTEM: Message = {"role": "system", "content": "You answer questions about the conversation, briefly."}
# Tokens of the conversation that the model summarises at a time, and how it is asked to.
PART = 2500
INSTRUCTION = (
    "Summarise the log and conversation above. Keep every setting, name, number, path and identifier exactly as it is "
    "written."
)
# Requests of the replay that M9 reads, around the first passes.
REPLAY = (34, 74)


class Local:
    """A GGUF file in a process of the environment with llama-cpp-python."""

    def __init__(self, file: Path | None) -> None:
        python = models_python()
        found = file or (file_of(python, *REAL["smollm"][1:]) if python else None)
        if python is None or found is None:
            raise SystemExit(f"--model needs HERMES_BENCH_MODELS, an environment with a model: {INSTALL}")
        self._side = Channel(python, "model")
        cache = Path(os.environ.get("HERMES_BENCH_CACHE") or Path(tempfile.gettempdir()) / "hermes-state-benchmarks")
        cache.mkdir(parents=True, exist_ok=True)
        again = None if file else str(cache / f"{found.stem}.Q8_0.gguf")
        self.name = (found.stem if file else f"{found.stem}, re-quantised to Q8_0")
        self._side.ask(do="load", file=str(found), quantised=again, context=WINDOW)

    def read(self, text: str) -> dict[str, Any]:
        """Evaluate a context; prompt_n, cache_n, seconds."""
        return self._side.ask(do="read", text=text)

    def ask(self, question: str, choices: Sequence[str], opening: str) -> tuple[list[float] | None, str]:
        """Mean log-probability of each choice, and 14 greedy tokens."""
        answer = self._side.ask(
            do="ask", question=question, choices=list(choices), generate=GENERATED, opening=opening
        )
        return answer["scores"], answer["said"]

    def write(self, text: str, most: int) -> str:
        """Greedy text behind a prompt."""
        said: str = self._side.ask(do="write", text=text, most=most)["said"]
        return said

    def close(self) -> None:
        """End the process."""
        self._side.close()


class Server:
    """llama-server or another that has /v1/completions; without forced choice, which needs scores of given words."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self.name, self._context = url.rstrip("/"), name or url, ""

    def _complete(self, text: str, most: int) -> dict[str, Any]:
        body = {"model": self.name, "prompt": text, "max_tokens": most, "temperature": 0, "cache_prompt": True}
        request = urllib.request.Request(
            f"{self._url}/v1/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def read(self, text: str) -> dict[str, Any]:
        """One token behind the context, so that the server has it."""
        self._context = text
        started = time.perf_counter()
        timings = self._complete(text, 1).get("timings", {})
        return {
            "prompt_n": timings.get("prompt_n"), "cache_n": timings.get("cache_n"),
            "seconds": time.perf_counter() - started,
        }

    def ask(self, question: str, _choices: Sequence[str], opening: str) -> tuple[list[float] | None, str]:
        """Greedy tokens alone."""
        return None, self.write(self._context + question + opening, GENERATED)

    def write(self, text: str, most: int) -> str:
        """Greedy text behind a prompt."""
        said: str = self._complete(text, most)["choices"][0]["text"]
        return said

    def close(self) -> None:
        """Nothing is held."""


def chatml(messages: Sequence[Message]) -> str:
    """Messages as a ChatML template writes them."""
    return "".join(f"<|im_start|>{text_of(message)}<|im_end|>\n" for message in messages)


def opening(question: str) -> str:
    """How the answer begins: with the question's own words, since a model this small answers nothing else."""
    if question.startswith("What is ") and question.endswith("?"):
        subject = question.removeprefix("What is ").removesuffix("?")
        return f"<|im_start|>assistant\n{subject[:1].upper()}{subject[1:]} is"
    return "<|im_start|>assistant\n"


def asked_of(reader: Any, view: Sequence[Message], facts: Sequence[Any]) -> dict[str, Any]:
    """Recall of one view: free generation and forced choice, one question at a time."""
    held = surviving(facts, "\n".join(map(text_of, view)))
    cost = reader.read(chatml([SYSTEM, *view]))
    exact = chosen = 0
    scored = True
    for fact in facts:
        question = chatml([{"role": "user", "content": f"{fact.question} Answer with the value only."}])
        scores, said = reader.ask(question, [fact.value, *fact.distractors], opening(fact.question))
        exact += fact.value in said
        scored = scores is not None
        chosen += scored and scores[0] == max(scores)
    return {
        "questions": len(facts), "lexical": len(held), "generated": exact, "chosen": chosen if scored else None,
        "tokens_read": cost["prompt_n"], "seconds_to_read": cost["seconds"],
    }


def summariser(reader: Any) -> Any:
    """The model itself as a function that summarises."""

    def write(request: Any) -> str:
        return str(reader.write(chatml(request.messages) + "<|im_start|>assistant\n", min(request.max_tokens, 400)))

    write.name = reader.name  # type: ignore[attr-defined]
    return write


def written_alone(reader: Any, messages: Sequence[Message], budget: int, tokens: Any) -> str:
    """A summary by the model and nothing else: each part of the text in turn, its answers one after the other.

    Nothing is checked and nothing replaced, so that it shows what the model itself can do within `budget` tokens.
    """
    parts, room = [""], 0
    for line in "\n".join(map(text_of, messages)).split("\n"):
        room -= tokens.count(line) + 1
        if room < 0:
            parts.append("")
            room = PART
        parts[-1] += line + "\n"
    parts = [part for part in parts if part.strip()]
    said = [
        reader.write(
            chatml([SYSTEM, {"role": "user", "content": f"{part}\n{INSTRUCTION}"}]) + "<|im_start|>assistant\n",
            budget // len(parts),
        ).strip()
        for part in parts
    ]
    return "\n".join(said)


def summary_by_model(
    reader: Any, setting: Setting, messages: Sequence[Message], view: Sequence[Message], facts: Sequence[Any]
) -> dict[str, Any]:
    """The view of ours with the model's own text where the summary is."""
    started = time.perf_counter()
    known = {text_of(message) for message in messages}
    tail = [message for message in view if text_of(message) in known]
    source = [message for message in messages if message not in tail]
    budget = int(setting.usable * 0.15)
    summary = written_alone(reader, source, budget, setting.tokens)
    taken = time.perf_counter() - started
    line = asked_of(reader, [{"role": "user", "content": summary}, *tail], facts)
    return {
        **line, "fits": True, "seconds_to_compact": taken, "in_summary": len(surviving(facts, summary)),
        "summary_tokens": setting.tokens.count(summary), "summary": summary,
    }


def measured(
    folder: Path, policies: Mapping[str, Any], counting: Mapping[str, Any], make: Generator, *, gguf: Path | None,
    server: str | None, name: str,
) -> dict[str, Any]:
    """Floor, ceiling, and every policy whose view fits, at 8,192 tokens; and M9 over a part of the long replay."""
    tokens = counting.get("smollm") or next(iter(counting.values()))
    facts = make(1)
    messages = planted(facts, 1, tokens)
    setting = Setting(window=WINDOW, system={"role": "system", "content": prompt(tokens, FIXED)}, tokens=tokens)
    reader: Any = Server(server, name) if server else Local(gguf)
    told: Message = {"role": "user", "content": "\n".join(fact.short for fact in facts)}
    lines = {
        "floor: no context": asked_of(reader, [], facts), "ceiling: the facts alone": asked_of(reader, [told], facts),
    }
    with Ours(folder / "model-written", "ours, the model asked", summarizer=summariser(reader), own=4096) as last:
        for policy in [*policies.values(), last]:
            started = time.perf_counter()
            view = sent(policy, setting, messages)
            taken = time.perf_counter() - started
            if tokens.messages(view) + setting.fixed > WINDOW - setting.reserve:
                lines[policy.name] = {"questions": len(facts), "fits": False}
                continue
            line = {**asked_of(reader, view, facts), "fits": True, "seconds_to_compact": taken}
            name = policy.name
            if policy is last:
                # What was asked for is not what was kept when the answer was of no use: the line says which it is.
                made_by = [outcome for outcome in last.outcomes if outcome.form is not None]
                line["notes"] = [note for outcome in made_by for note in outcome.warnings]
                name += f" (kept: {', '.join(dict.fromkeys(str(outcome.form) for outcome in made_by))})"
                lines["the model's own text, unchecked"] = summary_by_model(reader, setting, messages, view, facts)
            lines[name] = line
            print(f"read {name}: {line}", file=sys.stderr)
    cost = {one.name: server_cost(reader, one, setting, tokens) for one in policies.values() if one.name != "none"}
    reader.close()
    return {"model": reader.name, "window": WINDOW, "recall": lines, "server": cost}


def server_cost(reader: Any, policy: Any, setting: Setting, tokens: Any) -> dict[str, Any]:
    """M9: tokens that the model read and that it had already, over the requests `REPLAY` of S8."""
    load = made("S8", WINDOW, tokens)
    policy.begin(setting)
    number = read = kept = 0
    seconds = 0.0
    passes = 0
    for message in load.messages:
        if message["role"] == "assistant":
            number += 1
            passes += policy.compact() == "done" and number > REPLAY[0]
            if number >= REPLAY[0]:
                cost = reader.read(chatml([SYSTEM, *policy.request()[1:]])[-WINDOW * 8 :])
                if number > REPLAY[0]:
                    read, kept, seconds = read + cost["prompt_n"], kept + cost["cache_n"], seconds + cost["seconds"]
            if number == REPLAY[1]:
                break
        policy.extend([message])
    return {
        "requests": REPLAY[1] - REPLAY[0], "passes": passes, "prompt_n": read, "cache_n": kept, "seconds": seconds,
    }


def text(document: Mapping[str, Any]) -> str:
    """For people."""
    out = [
        f"\nread by {document['model']} at {document['window']:,}",
        "| what is read | in the text (M5) | generated (M7) | chosen of four (M8) | tokens read |",
        "|---|---|---|---|---|",
    ]
    for name, line in document["recall"].items():
        if line.get("fits") is False:
            out.append(f"| {name} | does not fit | | | |")
            continue
        out.append(
            f"| {name} | {line['lexical']} of {line['questions']} | {line['generated']} | {line['chosen']} "
            f"| {line['tokens_read']} |"
        )
    out += ["", "| server cost (M9) | passes | tokens read | tokens kept | seconds |", "|---|---|---|---|---|"]
    out += [
        f"| {name}, {one['requests']} requests | {one['passes']} | {one['prompt_n']:,} | {one['cache_n']:,} "
        f"| {one['seconds']:.1f} |"
        for name, one in document["server"].items()
    ]
    return "\n".join(out)
