"""Our side: a real store, `store.compaction`, and the context that it gives.

Invariant: only public names; messages are appended as a program appends them, and what is measured is what `context`
returns. The clock is the machine's plus a minute for each request, so that guards that count time do not take a replay
of a second for a storm.

Not for: the parts of compaction alone. Planning in memory was rejected: what a store gives back is what counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.small_windows.policies import Setting
from benchmarks.small_windows.sides.sampled import misbehaved
from benchmarks.small_windows.wire import Message, text_of
from hermes_state import open_store
from hermes_state.clock import SystemClock
from hermes_state.compaction.tokens import as_counter, message_tokens
from hermes_state.errors import StateError


class Ahead(SystemClock):
    """The machine's clocks, moved forward by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> float:
        """Seconds since 1970, moved."""
        return super().now() + self.ahead

    def monotonic(self) -> float:
        """Monotonic seconds, moved."""
        return super().monotonic() + self.ahead

    def boottime(self) -> float:
        """Seconds since boot, moved."""
        return super().boottime() + self.ahead


class Ours:
    """hermes-state; with `estimate` it counts as it does when it is given no tokenizer."""

    def __init__(
        self, folder: Path, name: str, *, estimate: bool = False, summarizer: Callable[[Any], str] | None = None,
        own: int | None = None,
    ) -> None:
        """`own`: the window of the summariser."""
        folder.mkdir(parents=True)
        self.name, self._estimate, self._summarizer, self._own = name, estimate, summarizer, own
        self._clock = Ahead()
        self.store = open_store(path=folder / "state.db", clock=self._clock)
        self._number = 0
        self.outcomes: list[Any] = []

    def begin(self, setting: Setting) -> None:
        """A new session."""
        self.setting = setting
        self._number += 1
        self.session = f"bench_{self._number}"
        self.store.sessions.create(id=self.session, source="cli")
        self.outcomes = []

    def switch(self, window: int) -> None:
        """The next pass is made for another window."""
        self.setting = replace(self.setting, window=window)

    def extend(self, messages: Sequence[Message]) -> None:
        """Append to the session."""
        self.store.messages.append_many(self.session, [stored(message) for message in messages])

    def request(self) -> list[Message]:
        """The context of the session behind the system message."""
        return [self.setting.system, *self.store.messages.context(self.session)]

    def compact(self) -> str:
        """One call of `store.compaction.compact`."""
        self._clock.ahead += 60.0
        tokens = self.setting.tokens
        try:
            outcome = self.store.compaction.compact(
                self.session, window=self.setting.window, fixed_tokens=self._fixed(),
                reply_reserve=self.setting.reserve, counter=None if self._estimate else tokens,
                summarizer=self._hostile() if self.setting.hostile else self._summarizer, summarizer_window=self._own,
            )
        except StateError as error:
            return f"{error.code}: {error}"
        self.outcomes.append(outcome)
        return {"compacted": "done", "not_needed": "idle"}.get(outcome.state, f"{outcome.state}: {outcome.why}")

    def _fixed(self) -> int:
        """The system message, by whoever counts the rest: a caller without a tokenizer has no other number."""
        if not self._estimate:
            return self.setting.fixed
        return message_tokens(self.setting.system, as_counter(None))

    def _hostile(self) -> Callable[[Any], str]:
        kind = self.setting.hostile or ""
        return lambda asked: misbehaved(kind, "\n".join(map(text_of, asked.messages)), asked.max_tokens * 4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.ExitStack() as closing:
            closing.callback(self.store.close)


def stored(message: Message) -> dict[str, Any]:
    """A chat message as the fields of `messages.append`."""
    fields = {name: value for name, value in message.items() if name != "name"}
    return {**fields, **({"tool_name": message["name"]} if "name" in message else {})}
