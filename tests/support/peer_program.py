"""The side of a peer test that runs inside a real hermes-agent environment.

Invariant: one request (a JSON object as the first argument) gives one answer (a JSON object on the last line of
standard output); everything is done through the release's own `hermes_state.SessionDB` or its own `sqlite3`, so that
what is tested is that release and not our idea of it.

Not for: import by our code. Importing hermes-agent into the test process was rejected: it would put a second SQLite
library, and a second module called `hermes_state`, into the process under test.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import sys
import time
from pathlib import Path

CJK = re.compile("[\u4e00-\u9fff]{3,}")
WORD = re.compile(r"\b[A-Za-z]{6,}\b")


def session_db(path):
    from hermes_state import SessionDB

    return SessionDB(db_path=Path(path))


def append(request):
    """Open with the release's own class, add a session with messages, close."""
    db = session_db(request["db"])
    try:
        db.create_session(session_id=request["session"], source=request["source"])
        ids = [
            db.append_message(request["session"], "user" if index % 2 == 0 else "assistant", text)
            for index, text in enumerate(request["texts"])
        ]
        if request.get("end"):
            db.end_session(request["session"], "cli_close")
        # A flag flip fires the update triggers, which is where a broken index shows first.
        if hasattr(db, "_execute_write"):
            db._execute_write(lambda con: con.execute("UPDATE messages SET token_count = 1 WHERE id = ?", (ids[0],)))
    finally:
        db.close()
    return {"ids": ids}


def search(request):
    """What the release's own search returns for each query, as message ids."""
    db = session_db(request["db"])
    try:
        found = {
            query: [row["id"] for row in db.search_messages(query, limit=request["limit"])]
            for query in request["queries"]
        }
    finally:
        db.close()
    return {"found": found}


def substring(request):
    """Rows whose text contains a piece of a word, from the release's trigram index itself."""
    con = sqlite3.connect(request["db"])
    try:
        rows = con.execute(
            "SELECT rowid FROM messages_fts_trigram WHERE messages_fts_trigram MATCH ? ORDER BY rowid",
            ('"' + request["text"].replace('"', '""') + '"',),
        ).fetchall()
    finally:
        con.close()
    return {"ids": [row[0] for row in rows]}


def check(request):
    """Pages, foreign keys and both search indexes, judged by this release's own sqlite3 library."""
    con = sqlite3.connect(request["db"], isolation_level=None)
    verdicts = {}
    try:
        verdicts["pages"] = "; ".join(row[0] for row in con.execute("PRAGMA integrity_check(5)"))
        broken = con.execute("PRAGMA foreign_key_check").fetchall()
        verdicts["foreign keys"] = "ok" if not broken else f"{len(broken)} broken"
        for table in ("messages_fts", "messages_fts_trigram"):
            sql = con.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if sql is None:
                verdicts[table] = "absent"
                continue
            external = re.search(r"content\s*=\s*'?\w", sql[0]) is not None
            statement = f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', {1 if external else 0})"
            try:
                con.execute(statement)
                verdicts[table] = "ok"
            except sqlite3.DatabaseError as error:
                verdicts[table] = str(error)
            if not external and verdicts[table] == "ok":
                missing = con.execute(
                    f"SELECT count(*) FROM messages WHERE id NOT IN (SELECT id FROM {table}_docsize)"
                ).fetchone()[0]
                stale = con.execute(
                    f"SELECT count(*) FROM {table}_docsize WHERE id NOT IN (SELECT id FROM messages)"
                ).fetchone()[0]
                if missing or stale:
                    verdicts[table] = f"{missing} rows missing, {stale} stale"
        triggers = con.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'messages_fts%'"
        ).fetchone()[0]
    finally:
        con.close()
    return {"verdicts": verdicts, "sqlite": sqlite3.sqlite_version, "triggers": triggers}


def sample(request):
    """Texts to search for: of rows the search shows, a word, a CJK run and a piece of a word, each with its row id."""
    con = sqlite3.connect(request["db"])
    con.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        columns = {row[1] for row in con.execute("PRAGMA table_info(messages)")}
        visible = "active = 1" if "active" in columns else "1"
        rows = con.execute(
            f"SELECT id, session_id, content FROM messages WHERE {visible} AND typeof(content) = 'text' "
            "AND role IN ('user', 'assistant') "
            # The newer search layout leaves these two sources out of the substring index on purpose.
            "AND session_id IN (SELECT id FROM sessions WHERE source NOT IN ('cron', 'subagent')) ORDER BY id"
        ).fetchall()
    finally:
        con.close()
    picked = {"word": None, "cjk": None, "piece": None}
    for identity, _session, content in rows:
        if "\x00" in content:
            continue
        word = WORD.search(content)
        run = CJK.search(content)
        if word and picked["word"] is None and word.group().lower() not in {"before", "should", "because"}:
            picked["word"] = [identity, word.group()]
        if word and picked["piece"] is None:
            picked["piece"] = [identity, word.group()[1:-1]]
        if run and picked["cjk"] is None:
            picked["cjk"] = [identity, run.group()[:4]]
    return {"picked": picked, "rows": len(rows)}


def rows(request):
    """Every session id with its message ids, and where NUL is."""
    con = sqlite3.connect(request["db"])
    try:
        sessions = con.execute("SELECT id, source, started_at, ended_at FROM sessions ORDER BY id").fetchall()
        messages = con.execute(
            "SELECT id, session_id, instr(CAST(content AS BLOB), x'00') > 0 FROM messages ORDER BY id"
        ).fetchall()
        version = con.execute("SELECT version FROM schema_version").fetchone()[0]
    finally:
        con.close()
    return {"sessions": sessions, "messages": messages, "schema": version}


def contents(request):
    """A hash per session of all its messages, every column, so that survivors can be compared byte for byte."""
    con = sqlite3.connect(request["db"])
    con.text_factory = bytes
    hashes = {}
    try:
        for row in con.execute("SELECT * FROM messages ORDER BY id"):
            hashes.setdefault(row[1].decode(), hashlib.sha256()).update(repr(row).encode())
        hashes |= {
            row[0].decode(): hashlib.sha256()
            for row in con.execute("SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM messages)")
        }
    finally:
        con.close()
    return {"hashes": {name: value.hexdigest() for name, value in hashes.items()}}


def gateway(request):
    """Append until the stop file appears; each acknowledged row is reported before the next is tried."""
    db = session_db(request["db"])
    stop, report = Path(request["stop"]), Path(request["report"])
    db.create_session(session_id=request["session"], source="telegram")
    written = failed = 0
    with report.open("w", encoding="utf-8", buffering=1) as out:
        while not stop.exists():
            text = f"gateway row {written} \u8bf7\u7a0d\u5019\u7247\u523b " + "lorem ipsum " * (written % 60)
            try:
                identity = db.append_message(request["session"], "user" if written % 2 == 0 else "assistant", text)
            except sqlite3.OperationalError as error:
                failed += 1
                out.write(json.dumps({"error": str(error)}) + "\n")
                continue
            out.write(json.dumps({"id": identity}) + "\n")
            written += 1
            time.sleep(request["pause"])
    db.close()
    return {"written": written, "failed": failed}


def timed(request):
    """Wall time of one of the release's own maintenance calls, without the start of its command line.

    `seconds` is the call, `closed_seconds` the call and the close of the store, which is where its WAL is emptied.
    """
    db = session_db(request["db"])
    started = time.perf_counter()
    if request["call"] == "optimize":
        detail = {"indexes": db.vacuum()}
    else:
        removed = db.prune_sessions(**request["arguments"])
        detail = {"removed": removed}
    elapsed = time.perf_counter() - started
    db.close()
    return {"seconds": elapsed, "closed_seconds": time.perf_counter() - started, **detail}


def use(request):
    """A day with the file: check, append, flip a flag, search old and new text, delete a session, check again."""
    before, picked = check(request), sample(request)["picked"]
    ids = append({**request, "source": "cli"})["ids"]
    queries = [*request["queries"], *(value[1] for kind, value in picked.items() if value and kind != "piece")]
    found = search({**request, "queries": queries, "limit": 500})["found"]
    pieces = [*request["pieces"], *([picked["piece"][1]] if picked["piece"] else [])]
    within = {text: substring({**request, "text": text})["ids"] for text in pieces}
    db = session_db(request["db"])
    try:
        listed = [row["id"] for row in db.list_sessions_rich(limit=100, include_children=True)]
        deleted = db.delete_session(request["victim"])
    finally:
        db.close()
    left = sum(row[1] == request["victim"] for row in rows(request)["messages"])
    answer = {"before": before, "after": check(request), "picked": picked, "ids": ids, "found": found}
    return {**answer, "within": within, "listed": listed, "deleted": deleted, "left": left}


REQUESTS = {
    "use": use,
    "append": append,
    "search": search,
    "substring": substring,
    "check": check,
    "sample": sample,
    "rows": rows,
    "contents": contents,
    "gateway": gateway,
    "timed": timed,
}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(REQUESTS[asked.pop("do")](asked)))
