"""The deterministic metrics: M1 fit, M2 shares, M3 reclaimed, M4 passes, M6 prefix reuse, M10 structure.

Invariant: everything is measured from outside, on the messages of the next request, with the server's tokenizer; what a
policy says about itself is kept as text and never counted. Not for: what is still known (see `recall.py`). Numbers that
policies report were rejected: before and after on different bases is one of the faults to be found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.small_windows.policies import Policy, Setting
from benchmarks.small_windows.wire import Message, Tokens, faults, text_of
from benchmarks.small_windows.workloads import Workload

PASSES = 2


@dataclass(kw_only=True)
class Row:
    """What one policy did with one workload in one window, counted by one tokenizer."""

    workload: str
    policy: str
    window: int
    tokenizer: str
    # How the summariser misbehaved, None: it did not.
    hostile: str | None = None
    # U, and the tokens of the system message.
    usable: int = 0
    fixed: int = 0
    # M1: the next request, and whether it leaves the reply its room.
    request: int = 0
    fits: bool = False
    # M2, tokens of the view's parts: right after the pass that left most tail, or as they are when none was made.
    tail: int = 0
    summary: int = 0
    anchors: int = 0
    # M3 and M4: tokens that each pass took away.
    reclaimed: list[int] = field(default_factory=list)
    # What the policy said when it made no pass and was over.
    said: str = ""
    # M10.
    faults: list[str] = field(default_factory=list)
    # Wall seconds of the passes.
    seconds: list[float] = field(default_factory=list)
    # Wall seconds to read and count the view before each: the least that a pass costs.
    seconds_to_read: list[float] = field(default_factory=list)
    # Of the replay alone: requests, passes, requests that fit, breaks, and M6.
    turns: int = 0
    requests: int = 0
    fitted: int = 0
    breaks: int = 0
    # Breaks at a request that no pass came before.
    unexplained: int = 0
    reuse: float | None = None
    reuse_at_pass: float | None = None

    def document(self) -> dict[str, Any]:
        """As JSON values; the sum of what was reclaimed and its least say enough of thousands of passes."""
        passes = self.reclaimed
        shown = {name: value for name, value in asdict(self).items() if not name.startswith("seconds")}
        return {**shown, "reclaimed": sum(passes), "least": min(passes, default=None), "passes": len(passes)}


def measured(policy: Policy, load: Workload, window: int, tokens: Tokens) -> Row:
    """At most two passes over a conversation as it stands; the long replay as it grows."""
    system: Message = {"role": "system", "content": load.system}
    setting = Setting(window=load.before or window, system=system, tokens=tokens, hostile=load.hostile)
    now = Setting(window=window, system=system, tokens=tokens, hostile=load.hostile)
    row = Row(
        workload=load.name, policy=policy.name, window=window, tokenizer=tokens.name, hostile=load.hostile,
        usable=now.usable, fixed=now.fixed,
    )
    policy.begin(setting)
    if load.name == "S8":
        _replayed(policy, load, now, row)
    else:
        policy.extend(load.messages)
        if load.before:
            policy.compact()
            policy.switch(window)
        _passes(policy, load.messages, now, row)
    _last(policy, load.messages, now, row)
    return row


def _passes(policy: Policy, history: Sequence[Message], setting: Setting, row: Row) -> int:
    """Let the policy make its passes; returns how many it made."""
    for number in range(PASSES):
        started = time.perf_counter()
        before = setting.tokens.messages(policy.request())
        read = time.perf_counter() - started
        started = time.perf_counter()
        said = policy.compact()
        taken = time.perf_counter() - started
        if said != "done":
            row.said = "" if said == "idle" else said
            return number
        row.seconds.append(taken)
        row.seconds_to_read.append(read)
        after = policy.request()
        row.reclaimed.append(before - setting.tokens.messages(after))
        row.faults += faults(after[1:])
        found = parts(after[1:], history, setting.tokens)
        if len(row.reclaimed) == 1 or not row.requests or found > (row.tail, row.summary, row.anchors):
            row.tail, row.summary, row.anchors = found
    return PASSES


def _replayed(policy: Policy, load: Workload, setting: Setting, row: Row) -> None:
    """Before each message of the model one request is sent, and before that the policy may make its passes."""
    tokens, previous = setting.tokens, None
    shares: list[float] = []
    at_pass: list[float] = []
    for at, message in enumerate(load.messages):
        row.turns += message["role"] == "user"
        if message["role"] == "assistant":
            made = _passes(policy, load.messages[:at], setting, row)
            sent = policy.request()
            size = tokens.messages(sent)
            row.requests += 1
            row.fitted += size <= setting.window - setting.reserve
            if previous is not None:
                share = tokens.shared(previous, sent) / size
                shares.append(share)
                broken = sent[: len(previous)] != previous
                row.breaks += broken
                row.unexplained += broken and not made
                if made:
                    at_pass.append(share)
            previous = sent
        policy.extend([message])
    row.reuse = sum(shares) / len(shares)
    row.reuse_at_pass = sum(at_pass) / len(at_pass) if at_pass else None


def _last(policy: Policy, history: Sequence[Message], setting: Setting, row: Row) -> None:
    sent = policy.request()
    row.request = setting.tokens.messages(sent)
    row.fits = row.request <= setting.window - setting.reserve
    row.faults = sorted({fault.split(": ", 1)[-1] for fault in [*row.faults, *faults(sent[1:])]})
    if sent != policy.request():
        row.faults.append("the same view twice is not the same")
    if not row.reclaimed:
        row.tail, row.summary, row.anchors = parts(sent[1:], history, setting.tokens)


def parts(view: Sequence[Message], history: Sequence[Message], tokens: Tokens) -> tuple[int, int, int]:
    """Tokens of the tail, the summary and what else stayed as it was, told apart by comparing with the history.

    The tail is the longest run at the end whose messages are the history's last ones, whole or shortened. A message
    that ends with a message of the history and begins with something else is both.
    """
    tail = 0
    length = 0
    while length < min(len(view), len(history)) and _same(view[-1 - length], history[-1 - length]):
        tail += tokens.message(view[-1 - length])
        length += 1
    summary = anchors = 0
    known = {text_of(message) for message in history}
    for message in view[: len(view) - length]:
        size = tokens.message(message)
        if text_of(message) in known or any(_same(message, old) for old in history if message["role"] != "user"):
            anchors += size
            continue
        own = max((text for old in history if (text := _own(message, old))), key=len, default="")
        # What the message holds of the history belongs to where that stands: next to the tail it is tail.
        tail += tokens.count(own) if own else 0
        summary += size - (tokens.count(own) if own else 0)
    return tail, summary, anchors


def _same(shown: Message, stored: Message) -> bool:
    """Whether a message is a stored one, as it is or shortened: a result is known by its call, calls by their ids."""
    if shown["role"] != stored["role"] or shown.get("tool_call_id") != stored.get("tool_call_id"):
        return False
    if shown["role"] == "tool" or shown.get("content") == stored.get("content"):
        return True
    return bool(shown.get("tool_calls")) and _ids(shown) == _ids(stored)


def _ids(message: Message) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def _own(message: Message, old: Message) -> str:
    content, text = message.get("content"), old.get("content")
    if message["role"] != old["role"] or not isinstance(content, str) or not isinstance(text, str):
        return ""
    return text if text and content.endswith(text) and content != text else ""
