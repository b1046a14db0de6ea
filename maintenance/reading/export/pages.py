"""Exports for people: Markdown, a file a session, and HTML, one file for all.

Invariant: text of a store is text on the page: HTML is escaped, Markdown fences are longer than any fence inside,
control characters are gone, base64 is `[image]`. No script, no remote address. Each can be read back and counted by the
marker comment that opens every message.

Not for: import. Rendering the Markdown inside messages was rejected: a message can then draw what it likes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from maintenance.dialects.cells import EARLIEST, LATEST
from maintenance.dialects.readable import readable_text
from maintenance.reading.export.items import ExportRecord

_MARK = "<!-- message -->"
_SESSION_MARK = "<!-- session -->"
_END_MARK = "<!-- end -->"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f5f5f5;padding:.7rem;border-radius:4px}"
    "h2{border-top:1px solid #ccc;padding-top:1.5rem}h3{margin-bottom:.2rem}small{color:#666;font-weight:normal}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#2a2a2a}small{color:#999}}"
)


def write_markdown(record: ExportRecord, out: TextIO) -> None:
    """One session as Markdown."""
    out.write(f"{_SESSION_MARK}\n# {_line(_title(record.session))}\n\n")
    for name, value in _details(record.session):
        out.write(f"- {name}: `{_line(value).replace('`', chr(39))}`\n")
    for message in record.messages:
        role, at, text = _message(message)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
        out.write(f"\n{_MARK}\n## {role} ({at})\n\n{fence}text\n{text}\n{fence}\n")
    out.write(f"\n{_END_MARK}\n")


def write_html(records: Iterable[ExportRecord], out: TextIO) -> None:
    """All sessions on one page."""
    out.write(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sessions</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>Sessions</h1>\n"
    )
    for record in records:
        out.write(f"{_SESSION_MARK}\n<h2>{html.escape(_line(_title(record.session)))}</h2>\n<ul>")
        for name, value in _details(record.session):
            out.write(f"<li>{html.escape(name)}: <code>{html.escape(_line(value))}</code></li>")
        out.write("</ul>\n")
        for message in record.messages:
            role, at, text = _message(message)
            out.write(f"{_MARK}\n<h3>{html.escape(role)} <small>{at}</small></h3>\n<pre>{html.escape(text)}</pre>\n")
    out.write(f"</body></html>\n{_END_MARK}\n")


def count_pages(path: Path) -> tuple[int, int]:
    """Sessions and messages of a file by its marker lines, or (-1, -1) when its end is missing."""
    records = messages = 0
    line = ""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            records += line == f"{_SESSION_MARK}\n"
            messages += line == f"{_MARK}\n"
    return (records, messages) if line == f"{_END_MARK}\n" else (-1, -1)


def _title(session: dict[str, Any]) -> str:
    return str(session.get("title") or session.get("id") or "session")


def _details(session: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("id", "source", "model", "started_at", "ended_at", "end_reason", "cwd", "git_branch"):
        value = session.get(name)
        if value not in (None, ""):
            yield name, _time(value) if name.endswith("_at") else str(value)
    if session.get("lineage_session_ids"):
        yield "segments", ", ".join(session["lineage_session_ids"])


def _message(message: dict[str, Any]) -> tuple[str, str, str]:
    role = _line(str(message.get("role") or "?"))
    if message.get("tool_name"):
        role += f" {_line(str(message['tool_name']))}"
    text = _CONTROL.sub("\ufffd", readable_text(message.get("content"))).replace("\r", "")
    calls = message.get("tool_calls")
    if calls:
        names = [_call_name(call) for call in calls] if isinstance(calls, list) else ["?"]
        text = f"{text}\n[calls {', '.join(names)}]".lstrip("\n")
    # A line that is a marker would be counted as one.
    text = re.sub(r"(?m)^<!-- (message|session|end) -->$", r"<!--\1-->", text)
    return role, _time(message.get("timestamp")), text


def _call_name(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return _line(str(name or "?"))


def _time(value: Any) -> str:
    if isinstance(value, (int, float)) and EARLIEST <= value <= LATEST:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return "time unknown"


def _line(text: str) -> str:
    return " ".join(_CONTROL.sub("\ufffd", text[:2000]).split())
