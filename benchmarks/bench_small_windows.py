"""Does a conversation still fit a small window after compaction, and what of it is still known?

Understand first: everything is counted in the tokens of a server's tokenizer, on the messages of the next request,
after at most two passes; a summary for the others is made of sampled lines, so that cuts and sizes are compared and not
models. docs/small-windows.md says what is measured and how to add a policy, a generator of facts, or a model.

Sides: `ours` (`store.compaction`, counting with the server's tokenizer and with the built-in estimator), nothing,
truncation, hermes-agent 0.19.0's own class, its later lean floor and 20 % cap, LangChain's middleware. Floor: reading
and counting the view, the least that a pass costs.
What would change a decision: a workload that does not fit, a pass that frees nothing, a break that no pass explains, or
fewer than 75 % of the planted facts kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner
from benchmarks.small_windows import metrics, planting, policies, recall, table, tokenizers, workloads

WINDOWS = (4096, 8192, 16_384, 32_768, 131_072)
QUESTION = "small_windows"
FACTS = "benchmarks.small_windows.facts_generator:make"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("--scale", type=int, default=100, help="1 is a smoke run, 100 everything (default)")
    parser.add_argument("--rounds", type=int, default=1, help="accepted as by every benchmark; counts do not vary")
    parser.add_argument("--results", type=Path, default=runner.RESULTS, help="folder for document and picture")
    parser.add_argument("--windows", type=lambda text: [int(part) for part in text.split(",")], default=list(WINDOWS))
    parser.add_argument("--workloads", type=names, default=list(workloads.BUILDERS), help="S1,S2,...")
    parser.add_argument("--policies", type=names, default=[], help="by name; all that are here by default")
    parser.add_argument("--tokenizers", type=names, default=[], help="qwen,llama3,smollm,estimate")
    parser.add_argument("--facts", default=FACTS, help="module:function from a seed to facts")
    parser.add_argument("--seeds", type=int, default=10, help="conversations with facts")
    parser.add_argument("--model", action="store_true", help="also ask the real offline model (M7 to M9), some minutes")
    parser.add_argument("--gguf", type=Path, help="with --model: this model instead of SmolLM2")
    parser.add_argument("--server", help="with --model: a llama-server or OpenAI-compatible URL instead of a file")
    parser.add_argument("--name", default="", help="with --server: the model's name there")
    asked = parser.parse_args(arguments)
    if asked.scale == 1:
        asked.windows, asked.workloads, asked.seeds = [8192], ["S2", "S3"], 1
    return asked


def main() -> None:
    asked = options()
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder,
        tokenizers.open_all(asked.tokenizers) as counting,
        policies.available(Path(folder), asked.policies) as compared,
    ):
        rows = measured(asked, counting, compared)
        make = planting.generator(asked.facts)
        kept = [
            one for tokens in counting.values() for around in (("logs",) if asked.scale == 1 else ("logs", "sources"))
            for one in recall.kept_by(
                compared, tokens, make, range(1, asked.seeds + 1), window=8192, around=around
            )
        ]
        read = reading(asked, Path(folder), counting, compared, make) if asked.model else None
    document = {
        "question": QUESTION, "scale": asked.scale, "environment": runner.environment(asked.results),
        "facts": {"generator": asked.facts, "seeds": asked.seeds, "tokenizers": list(counting), **runner.peer_note()},
        "seconds": seconds(rows), "ratios": {}, "table": table.summarised(rows), "recall": recall.totals(kept),
        "reading": read, "cases": [row.document() for row in rows],
    }
    print(f"{QUESTION} (scale {asked.scale})")
    print("  " + "  ".join(f"{name}={value}" for name, value in document["environment"].items()))
    print(table.text(document["table"]))
    print(f"\nfacts at 8,192, {asked.seeds} seeds, tokenizers {', '.join(counting)}")
    print(recall.text(document["recall"]))
    asked.results.mkdir(parents=True, exist_ok=True)
    written = asked.results / f"{QUESTION}.json"
    written.write_text(compact(document), encoding="utf-8")
    written.with_suffix(".svg").write_text(table.picture(document["table"]), encoding="utf-8")
    if read is not None:
        from benchmarks.small_windows import reading as readings

        print(readings.text(read))


def compact(document: dict[str, Any]) -> str:
    """The document as JSON with one line for each entry of a list of objects: thousands of cases are to be compared."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in value)
            parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def measured(asked: argparse.Namespace, counting: dict[str, Any], compared: dict[str, Any]) -> list[metrics.Row]:
    """Every workload in every window with every tokenizer by every policy."""
    rows = []
    for tokens in counting.values():
        for window in asked.windows:
            for name in asked.workloads:
                for hostile in workloads.HOSTILE if name == "S9" else (None,):
                    load = workloads.made(name, window, tokens, hostile)
                    rows += [metrics.measured(policy, load, window, tokens) for policy in compared.values()]
            print(f"{tokens.name} {window:,}: {len(rows)} cases", file=sys.stderr)
    return rows


def reading(
    asked: argparse.Namespace, folder: Path, counting: dict[str, Any], compared: dict[str, Any], make: Any
) -> dict[str, Any]:
    """M7 to M9 with a real model."""
    from benchmarks.small_windows import reading as readings

    return readings.measured(
        folder, compared, counting, make, gguf=asked.gguf, server=asked.server, name=asked.name
    )


def seconds(rows: Sequence[metrics.Row]) -> dict[str, dict[str, dict[str, float | int]]]:
    """Wall seconds of single passes by policy; the floor is reading the view that the pass was made from."""
    found: dict[str, dict[str, dict[str, float | int]]] = {}
    for policy in dict.fromkeys(row.policy for row in rows):
        passes = [taken for row in rows if row.policy == policy for taken in row.seconds]
        if passes:
            found[policy] = {"pass": runner.summary(passes)}
    reads = [taken for row in rows if row.policy.startswith("ours") for taken in row.seconds_to_read]
    return {**found, "floor": {"read the view": runner.summary(reads)}} if reads else found


if __name__ == "__main__":
    main()
