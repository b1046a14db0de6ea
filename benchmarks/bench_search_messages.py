"""How fast is a search in 25,000 and in 250,000 messages?

Understand first: a common word has a long list of postings, and ranking all of them is what is slow; a rare word and a
phrase are quick in every layout; Chinese words of two characters are not in the peer's indexes at all, so it scans.
Ours checks every hit against the stored text and builds its snippet from there.

Sides: `ours` (`store.search`) on the peer's file as `sessions adopt --to` made it native, `peer` (`search_messages`) on
the original, `floor` (a stock FTS5 index of the same texts, ids only, newest first). Twenty hits each. What would
change a decision: a p50 above a third of the peer's at 250,000 messages for a word that both find.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner, store, talking
from benchmarks.sides import measure

LIMIT = 20
# Megabytes of the peer's file that hold about so many messages (11 KB each with its indexes).
MEGABYTES = {"25k": 285, "250k": 2_850}


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    sizes = MEGABYTES if chosen.scale == 100 else {"small": 4}
    facts: dict[str, object] = {}
    compared: dict[str, list[float]] = {}
    targets: dict[str, float] = {}
    sides: list[runner.Side] = []
    with ExitStack() as kept:
        for name, megabytes in sizes.items():
            made = kept.enter_context(runner.fresh_store(store.Recipe(megabytes=megabytes)))
            native = kept.enter_context(talking.home()) / "state.db"
            runner.ours("sessions", "adopt", "--db", str(made), "--to", str(native), "--yes", home=native.parent)
            asked = queries(made)
            facts |= {f"messages, {name}": store.facts(made)["messages"], f"queries, {name}": json.dumps(asked)}
            times = max(3, chosen.scale // 4)
            sides += [
                runner.Side(name=f"ours {name}", run=partial(searched, "ours", native, asked, times)),
                runner.Side(name=f"floor {name}", run=partial(floor, stock_index(native), asked, times)),
            ]
            if runner.peer():
                sides.append(runner.Side(name=f"peer {name}", run=partial(searched, "peer", made, asked, times)))
        series = runner.interleaved(sides, chosen.rounds)
    for name in sizes:
        for query in ("common", "rare", "phrase", "chinese"):
            for other in ("floor", "peer"):
                label = f"{query} {name} ours/{other}"
                compared[label] = runner.ratios(series, f"ours {name}", f"{other} {name}", query)
                if other == "peer" and name == "250k":
                    targets[label] = 1 / 3
    runner.report(
        "search_messages", chosen, series, compared=compared, facts={**facts, **runner.peer_note()}, targets=targets
    )


def queries(db: Path) -> dict[str, str]:
    """A common word, a rare one, a phrase and a Chinese word, from the store's own texts."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    texts = [text for (text,) in connection.execute(
        "SELECT content FROM messages WHERE role <> 'tool' AND content NOT LIKE char(0) || '%' ORDER BY id LIMIT 4000"
    )]
    connection.close()
    counts: dict[str, int] = {}
    for text in texts:
        for word in text.split():
            if word.isascii() and word.isalpha() and len(word) > 3:
                counts[word] = counts.get(word, 0) + 1
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    words = next(text.split() for text in texts if len(text.split()) > 8 and text.isascii())
    chinese = next(text for text in texts if not text[:2].isascii())
    return {"common": ordered[0], "rare": ordered[-1], "phrase": f'"{" ".join(words[2:5])}"', "chinese": chinese[:2]}


def searched(kind: str, db: Path, asked: dict[str, str], times: int) -> dict[str, float]:
    """Median seconds of each query."""
    answer = talking.ask(kind, "search", db=str(db), queries=asked, count=times, limit=LIMIT)
    return {name: measure.quantiles(one["taken"])["p50"] for name, one in answer.items()}


def stock_index(native: Path) -> Path:
    """A stock index of the same texts beside the store."""
    target = native.with_name("floor.db")
    connection = apsw.Connection(str(target))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail='full')").fetchall()
    connection.execute("ATTACH ? AS store", (str(native),)).fetchall()
    connection.execute("INSERT INTO texts (rowid, text) SELECT id, content FROM store.messages").fetchall()
    connection.close()
    return target


def floor(db: Path, asked: dict[str, str], times: int) -> dict[str, float]:
    """Median seconds of each query on the stock index."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    sql = f"SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT {LIMIT}"


    def once(query: str) -> None:
        connection.execute(sql, (query,)).fetchall()

    taken = {name: measure.repeated(partial(once, query), times) for name, query in asked.items()}
    connection.close()
    return {name: measure.quantiles(one)["p50"] for name, one in taken.items()}


if __name__ == "__main__":
    main()
