"""hermes-agent's own compressor, of the release that runs this: {"do": "start" | "usage" | "compress", ...}.

Invariant: the class is used as it is installed. Only the call to a model is replaced: the summary is `sampled` from
what the release itself would have sent, as long as the release asks for. `tail` overrides its tail budget, which is how
the lean floor of later versions is measured on the same walk.

Not for: judging its model prompts. Driving the whole agent was rejected: it refuses windows under 64,000 tokens.
"""

from __future__ import annotations

from typing import Any

from agent.context_compressor import ContextCompressor
from lines import serve
from sampled import misbehaved, sampled


class Sampling(ContextCompressor):  # type: ignore[misc]
    """The release's compressor whose summariser takes lines instead of asking a model."""

    hostile: str | None = None

    def _generate_summary(self, turns_to_summarize: list[dict[str, Any]], *_: Any, **__: Any) -> str | None:
        wanted = self._compute_summary_budget(turns_to_summarize)
        source = self._serialize_for_summary(turns_to_summarize)
        if self.hostile in ("empty", "error"):
            return None  # what the release gives when its summariser failed
        if self.hostile:
            return str(self._with_summary_prefix(misbehaved(self.hostile, source, wanted * 4)))
        body = sampled("\n".join(filter(None, (self._previous_summary, source))), wanted * 4)
        self._previous_summary = body
        return str(self._with_summary_prefix(body))


def main() -> None:
    kept: list[ContextCompressor] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "start":
            made = Sampling(model="local", config_context_length=request["window"], quiet_mode=True)
            if request.get("tail"):
                made.tail_token_budget = request["tail"]
            made.hostile = request.get("hostile")
            kept[:] = [made]
            return {"trigger": made.threshold_tokens, "tail": made.tail_token_budget}
        (compressor,) = kept
        if request["do"] == "usage":
            compressor.update_from_response({"prompt_tokens": request["tokens"], "completion_tokens": 0})
            return {"wanted": bool(compressor.should_compress(request["tokens"]))}
        messages = compressor.compress(request["messages"], current_tokens=request["tokens"])
        return {"messages": messages, "done": bool(compressor._last_compression_made_progress)}

    serve(answer)


if __name__ == "__main__":
    main()
