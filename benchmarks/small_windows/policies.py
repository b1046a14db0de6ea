"""What is compared: ways to keep a conversation within a window, behind one interface.

Invariant: a policy sees the history, the window, what is fixed and what is kept for the reply, and gives the messages
of the next request; it never sees facts or questions. Each decides by its own rules and its own counting when it makes
a pass. Whoever is not installed is absent, never imitated.

Not for: measuring (see `metrics.py`). To add one: a class with these methods, and a line in `available`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks import runner
from benchmarks.small_windows.channel import Channel, SideFailed, models_python
from benchmarks.small_windows.sides.sampled import misbehaved, sampled
from benchmarks.small_windows.wire import Message, Tokens, text_of
from hermes_state.errors import StateError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Under what a conversation is held."""

    # Tokens that prompt and reply may take together.
    window: int
    # The system message, tool schemas included.
    system: Message
    # The tokenizer of the server.
    tokens: Tokens
    # How the summariser misbehaves, None: it does not.
    hostile: str | None = None

    @property
    def reserve(self) -> int:
        """Kept for the reply: an eighth of the window (facts 2e)."""
        return self.window // 8

    @property
    def fixed(self) -> int:
        """Tokens of what no pass can remove."""
        return self.tokens.message(self.system)

    @property
    def usable(self) -> int:
        """U of the facts: what is left for messages."""
        return self.window - self.fixed - self.reserve


class Policy(Protocol):
    """One way to keep within a window."""

    name: str

    def begin(self, setting: Setting) -> None:
        """A new conversation."""

    def switch(self, window: int) -> None:
        """The next request goes to a model with another window."""

    def extend(self, messages: Sequence[Message]) -> None:
        """These were said."""

    def request(self) -> list[Message]:
        """What is sent now, the system message first."""

    def compact(self) -> str:
        """One attempt, if the policy wants one: 'done', 'idle' (none wanted), or what it said instead."""


class Kept:
    """What policies share that hold their messages in memory; alone it is the policy `none`."""

    name = "none"

    def begin(self, setting: Setting) -> None:
        """A new conversation."""
        self.setting = setting
        self.view: list[Message] = []

    def switch(self, window: int) -> None:
        """The next request goes to a model with another window."""
        self.setting = replace(self.setting, window=window)

    def extend(self, messages: Sequence[Message]) -> None:
        """These were said."""
        self.view += messages

    def request(self) -> list[Message]:
        """What is sent now."""
        return [self.setting.system, *self.view]

    def compact(self) -> str:
        """Never."""
        return "idle"

    def size(self) -> int:
        """Tokens of the request, as the server of the last request would have reported them."""
        return self.setting.tokens.messages(self.request())


class Truncation(Kept):
    """What servers do that cut from the front: the newest messages within half of the window (facts 4f, Ollama)."""

    name = "truncate"

    def compact(self) -> str:
        """Drop from the front, without looking at what belongs together."""
        if self.size() <= self.setting.window - self.setting.reserve or len(self.view) < 2:
            return "idle"
        room = self.setting.window // 2 - self.setting.fixed
        kept: list[Message] = []
        for message in reversed(self.view):
            room -= self.setting.tokens.message(message)
            if room < 0 and kept:
                break
            kept.insert(0, message)
        if len(kept) == len(self.view):
            return "nothing to cut"
        self.view = kept
        return "done"


class Capped(Kept):
    """The later fix alone: a tail of at most 20 % of the window, by our plan with the policy `hermes`, which has its
    boundaries; the summary has the size that hermes-agent asks for."""

    name = "cap 20 %"

    def compact(self) -> str:
        """Plan, and put a sampled summary where the summarised rows were."""
        from hermes_state.compaction import plan

        window = self.setting.window
        if self.size() < min(int(window * 0.85), window - self.setting.reserve):
            return "idle"
        messages = self.request()
        try:
            made = plan(messages, window=window, policy="hermes")
        except StateError as error:
            return f"{error.code}: {error}"
        if made.end <= made.start:
            return "nothing to cut"
        source = "\n".join(text_of(message) for message in messages[made.start : made.end])
        # The fix left the summary's size as it was (facts 1a): at least 2,000 tokens, of four characters.
        size = 4 * max(2000, min(len(source) // 20, window // 20, 10_000))
        try:
            hostile = self.setting.hostile
            body = misbehaved(hostile, source, size) if hostile else sampled(source, size)
        except RuntimeError as error:
            return str(error)
        before, after = messages[: made.start], messages[made.end :]
        # As it is done there: between two roles, else in front of the user's own words.
        summary: Message = {"role": "user", "content": body}
        if after and after[0]["role"] == "user" and isinstance(after[0]["content"], str):
            summary, after = {"role": "user", "content": f"{body}\n\n{after[0]['content']}"}, after[1:]
        self.view = [*before, summary, *after][1:]
        return "done"


class Hermes(Kept):
    """hermes-agent's class in its own process; with `lean`, with the tail budget of its later default."""

    def __init__(self, channel: Channel, name: str, *, lean: bool = False) -> None:
        self._channel, self.name, self._lean = channel, name, lean

    def begin(self, setting: Setting) -> None:
        """A new conversation, and a new compressor for it."""
        super().begin(setting)
        self._start()

    def switch(self, window: int) -> None:
        """A new compressor: what it knew of the other window goes."""
        super().switch(window)
        self._start()

    def _start(self) -> None:
        window = self.setting.window
        tail = max(10_000, min(25_000, window // 40)) if self._lean else None
        self._channel.ask(do="start", window=window, tail=tail, hostile=self.setting.hostile)

    def compact(self) -> str:
        """Ask it with the real size, as it would have heard from its server."""
        size = self.size()
        if not self._channel.ask(do="usage", tokens=size)["wanted"]:
            return "idle"
        try:
            answer = self._channel.ask(do="compress", messages=self.request(), tokens=size)
        except SideFailed as error:
            return str(error).splitlines()[0]
        if not answer["done"]:
            return "nothing to cut"
        system, *self.view = answer["messages"]
        self.setting = replace(self.setting, system=system)
        return "done"


class LangChain(Kept):
    """LangChain's middleware, told to start at 85 % of the window, its other settings as they are shipped."""

    name = "langchain"

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def compact(self) -> str:
        """One call of the middleware."""
        window = self.setting.window
        trigger = min(int(window * 0.85), window - self.setting.reserve) - self.setting.fixed
        if trigger <= 0:
            return "nothing to cut"
        budget = int(self.setting.usable * 0.15)
        try:
            answer = self._channel.ask(
                messages=self.view, trigger=trigger, summary_characters=max(400, budget * 4),
                hostile=self.setting.hostile,
            )
        except SideFailed as error:
            return str(error).splitlines()[0]
        if not answer["done"]:
            return "idle"
        self.view = answer["messages"]
        return "done"


@contextmanager
def available(folder: Path, wanted: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Every policy that can run here, by name; `folder` is for the stores and homes that some of them need."""
    from benchmarks.small_windows.ours import Ours

    with ExitStack() as kept:
        made: list[Any] = [Kept(), Truncation()]
        peer, models = runner.peer(), models_python()
        if peer is not None:
            home = folder / "peer"
            home.mkdir()
            side = kept.enter_context(Channel(peer.python, "hermes", environment=peer.environment(home)))
            made += [Hermes(side, "hermes-0.19.0"), Hermes(side, "lean floor", lean=True)]
        made.append(Capped())
        if models is not None:
            made.append(LangChain(kept.enter_context(Channel(models, "langchain_middleware"))))
        made += [
            kept.enter_context(Ours(folder / "ours", "ours")),
            kept.enter_context(Ours(folder / "ours-estimate", "ours (estimate)", estimate=True)),
        ]
        yield {one.name: one for one in made if not wanted or one.name in wanted}
