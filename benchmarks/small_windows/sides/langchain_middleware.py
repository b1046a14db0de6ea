"""LangChain's SummarizationMiddleware: {"messages", "trigger", "summary_characters"} gives {"messages", "done"}.

Invariant: the middleware decides by its own counter and its own defaults (20 messages kept, 4,000 tokens shown to the
summariser); only the model is replaced, by lines `sampled` from the messages that it would have been sent.

Not for: its agents. A fake chat model was rejected: the middleware takes a summariser since 1.5.
"""

from __future__ import annotations

import json
from typing import Any

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import get_buffer_string
from langchain_core.runnables import RunnableLambda
from lines import serve
from sampled import misbehaved, sampled


def main() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        def summarise(messages: Any) -> str:
            shown, size, hostile = get_buffer_string(messages), request["summary_characters"], request.get("hostile")
            return misbehaved(hostile, shown, size) if hostile else sampled(shown, size)

        middleware = SummarizationMiddleware(
            FakeListChatModel(responses=["unused"]), trigger=("tokens", request["trigger"]),
            summarizer=RunnableLambda(summarise),
        )
        state: Any = {"messages": [theirs(message) for message in request["messages"]]}
        changed = middleware.before_model(state, None)  # type: ignore[arg-type]
        if changed is None:
            return {"messages": request["messages"], "done": False}
        return {"messages": [ours(m) for m in changed["messages"] if not isinstance(m, RemoveMessage)], "done": True}

    serve(answer)


def theirs(message: dict[str, Any]) -> BaseMessage:
    """A chat message in LangChain's classes."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        return ToolMessage(content=content, tool_call_id=message["tool_call_id"], name=message.get("name"))
    if message["role"] == "assistant":
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
            for call in message.get("tool_calls", ())
        ]
        return AIMessage(content=content, tool_calls=calls)
    return (SystemMessage if message["role"] == "system" else HumanMessage)(content=content)


def ours(message: BaseMessage) -> dict[str, Any]:
    """The same message in chat shape."""
    if isinstance(message, ToolMessage):
        named = {"name": message.name} if message.name else {}
        return {"role": "tool", "content": message.content, "tool_call_id": message.tool_call_id, **named}
    if isinstance(message, AIMessage):
        calls = [
            {
                "id": call["id"], "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
            }
            for call in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    return {"role": "system" if isinstance(message, SystemMessage) else "user", "content": message.content}


if __name__ == "__main__":
    main()
