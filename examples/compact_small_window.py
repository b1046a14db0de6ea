"""An agent's loop on a model with a small window: compact when it is due, obey a refusal, go back, read everything.

    python examples/compact_small_window.py FOLDER [WINDOW]

The model is a function here that reads its context and refuses what is longer than its window, as llama-server does.
With a real one, `fixed_tokens` is what its system prompt and tool schemas take, and `summarizer` may ask it for the
summary; without one the summary is made of the messages' own words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hermes_state.compaction.tokens import Estimator, request_tokens
from hermes_state.compaction.windows import Windows
from hermes_state.store import Store, open_store

COUNTER = Estimator()
MODEL, ENDPOINT = "a-model", "http://localhost:8080"


def ask_model(context: list[dict[str, Any]], window: int) -> tuple[int, dict[str, Any]]:
    """What a server answers: a status and a body."""
    prompt = request_tokens(context, COUNTER)
    if prompt > window:
        error = {"type": "exceed_context_size_error", "n_prompt_tokens": prompt, "n_ctx": window}
        return 400, {"error": error}
    return 200, {"text": f"Done; I was sent {len(context)} messages.", "usage": {"prompt_tokens": prompt}}


def one_turn(store: Store, session: str, question: str, log: str, served: int) -> str:
    """A question, a tool's result, an answer; compacted before the model is asked, and once more if it refuses."""
    store.messages.append(session, role="user", content=question)
    function = {"name": "read_log", "arguments": "{}"}
    call: dict[str, Any] = {"id": f"call-{question}", "type": "function", "function": function}
    store.messages.append(session, role="assistant", content=None, tool_calls=[call])
    store.messages.append(session, role="tool", tool_call_id=call["id"], content=log)
    outcome = store.compaction.compact(session, model=MODEL, endpoint=ENDPOINT)
    if outcome.state == "given_up":
        raise SystemExit("\n".join([outcome.detail, *outcome.advice]))
    context = store.messages.context(session)
    status, body = ask_model(context, served)
    if status != 200:
        refused = store.compaction.refused(session, status, body, model=MODEL, endpoint=ENDPOINT)
        if not refused.compact:
            raise SystemExit(f"The model failed for another reason: {json.dumps(body)}")
        outcome = store.compaction.compact(session, model=MODEL, endpoint=ENDPOINT, trigger="overflow")
        print(f"{question}: refused at {refused.window.tokens if refused.window else '?'} tokens; {outcome.detail}")
        context = store.messages.context(session)
        status, body = ask_model(context, served)
        if status != 200:
            raise SystemExit(f"Still refused: {json.dumps(body)}")
    elif outcome.changed:
        print(f"{question}: {outcome.detail}")
    store.compaction.observe(MODEL, ENDPOINT, request_tokens(context, COUNTER), body["usage"], counter=COUNTER)
    store.messages.append(session, role="assistant", content=body["text"])
    return str(body["text"])


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    served = int(arguments[1]) if len(arguments) == 2 else 4_096
    with open_store(path=Path(arguments[0]) / "state.db") as store:
        # It was told that the window is four times as large; the first refusal corrects that.
        Windows(store.core).declare(MODEL, "", 4 * served)
        session = store.sessions.create(source="example", model=MODEL).id
        for number in range(30):
            log = "\n".join(f"2026-11-30 part {number} line {line}: took {line * 7 % 90} ms" for line in range(20))
            one_turn(store, session, f"question {number}", log, served)
        print(f"{len(store.compaction.generations(session))} passes, {store.messages.count(session)} messages,"
              f" {len(store.messages.context(session))} of them in the view")
        shown = store.compaction.recover(session, 3)
        print(f"message 3 is whole: {len(str(shown.content))} characters")
        store.compaction.rollback(session, 0)
        print(f"rolled back: {len(store.messages.context(session))} in the view")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
