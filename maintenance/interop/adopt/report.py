"""What an adoption will do and what it did, for people and for programs.

Invariant: the plan says, before the question, that hermes-agent cannot use the result, what is kept aside and what the
search indexes are worth; the report counts every row that was compared. Not for: doing anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.shell_words import shell_word
from maintenance.gate.hold import hold_lines
from maintenance.interop.adopt.build import Built
from maintenance.interop.adopt.source import PREFIX
from maintenance.interop.adopt.verify import Verified
from maintenance.interop.convert.convert import TABLES
from maintenance.interop.convert.records import Conversion
from maintenance.output.text import human_bytes, plural
from maintenance.plan import Plan
from maintenance.space.litestream import Litestream

NO_LONGER = (
    "hermes-agent can no longer open this file: it stops at the first statement, changes nothing, and says that it "
    "cannot use its session store. That stays so until its adapter for native stores exists."
)
# Measured on a 2-core virtual machine: 17 to 40 MB of content a second through reading, mapping, writing and comparing,
# beside 200 MB a second for the copy of the original. A fraction is promised: 6 MB, and the rate of a rewrite.
CONTENT_WEIGHT = 8

_ODDITIES = {
    "counters_differ": "sessions whose counters say something else than their rows",
    "flags_unusual": "messages with unusual flags",
    "ids_not_text": "sessions without a text id",
    "ids_repeated": "sessions with the id of another",
    "messages_without_session": "messages of a session that is not in the file",
    "model_configs_malformed": "model configurations that are no JSON object",
    "parent_circles": "circles of parents",
    "parents_dangling": "sessions whose parent is not in the file",
    "sessions_missing": "sessions made for messages without one",
    "texts_not_utf8": "messages that are not UTF-8",
    "times_unreadable": "messages without a usable time",
    "titles_repeated": "titles that a newer session has as well",
    "tool_calls_malformed": "messages with malformed tool calls",
    "usage_rows_kept": "usage rows that do not fit",
}


@dataclass(frozen=True, kw_only=True)
class AdoptPlan:
    """What would be done."""

    path: Path  # the store
    target: Path | None  # the new file, None in place
    already_done: bool  # it is a native store
    schema_version: int | None = None  # as the file states it
    sessions: int = 0  # session rows
    messages: int = 0  # message rows
    kept_tables: tuple[str, ...] = ()  # tables that are copied as they are
    file_bytes: int = 0  # of the file with its WAL
    native_bytes: int = 0  # at most about what the native store will take
    litestream: Litestream | None = None  # signs of a replica
    leftovers: tuple[Path, ...] = ()  # files of killed runs
    name: str = ""  # what has to be typed

    @classmethod
    def done(cls, path: Path, target: Path | None, leftovers: tuple[Path, ...]) -> AdoptPlan:
        """The plan for a store that is native already."""
        return cls(path=path, target=target, already_done=True, leftovers=leftovers)

    def shown(self) -> Plan:
        """The plan for people and programs."""
        if self.already_done:
            return Plan(title=f"{self.path} is a native store already.", facts=self.document())
        what = f"{plural(self.sessions, 'session')} with {plural(self.messages, 'message')}"
        size = f"at most about {human_bytes(self.native_bytes)} as a native store"
        lines = [f"{what}, schema {self.schema_version}; {size}."]
        if self.kept_tables:
            lines.append(f"Kept cell by cell as {PREFIX}<name>: {', '.join(self.kept_tables)}.")
        lines.append("Search indexes are left behind; the native store builds its own beside itself.")
        if self.target is not None:
            return Plan(
                title=f"Make the native store {self.target} of {self.path}, which is only read", lines=tuple(lines),
                facts=self.document(),
            )
        lines.append("The original is kept beside it under a dated name, and verified before anything is replaced.")
        lines.append(f"The name to type, or to give with --confirm: {self.name}.")
        lines.append(NO_LONGER)
        lines += hold_lines(self.file_bytes + CONTENT_WEIGHT * self.native_bytes)
        if self.litestream is not None:
            lines += self.litestream.cost_lines(self.native_bytes)[:1]
        return Plan(title=f"Turn {self.path} into a native store", lines=tuple(lines), facts=self.document())

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.path),
            "target": None if self.target is None else str(self.target),
            "already_done": self.already_done,
            "schema_version": self.schema_version,
            "sessions": self.sessions,
            "messages": self.messages,
            "kept_tables": list(self.kept_tables),
            "file_bytes": self.file_bytes,
            "native_bytes": self.native_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class AdoptReport:
    """What was done."""

    plan: AdoptPlan
    built: Built | None  # what was written; None when there was nothing to do
    verified: Verified | None  # what was compared
    original: Path | None  # the original kept aside
    result: Path  # the native store
    result_bytes: int  # its size
    cleared: tuple[Path, ...]  # files of killed runs that were removed
    seconds: float  # all of it
    locked_seconds: float  # under the exclusive lock
    converted: Conversion | None = None  # of what was kept of the gateway; None: `sessions optimize` does it

    @classmethod
    def nothing(cls, plan: AdoptPlan, cleared: tuple[Path, ...] = ()) -> AdoptReport:
        """For a store that is native already."""
        return cls(
            plan=plan, built=None, verified=None, original=None, result=plan.path, result_bytes=0, cleared=cleared,
            seconds=0.0, locked_seconds=0.0,
        )

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.plan.path),
            "already_done": self.built is None,
            "result": str(self.result),
            "original": None if self.original is None else str(self.original),
            "written": None if self.built is None else self.built.document(),
            "verified": None if self.verified is None else self.verified.document(),
            "converted": None if self.converted is None else self.converted.document(),
            "result_bytes": self.result_bytes,
            "cleared": [str(path) for path in self.cleared],
            "seconds": round(self.seconds, 3),
            "locked_seconds": round(self.locked_seconds, 3),
        }

    def lines(self) -> tuple[str, ...]:
        """The report for people."""
        removed = tuple(f"Removed what a killed run left: {path}." for path in self.cleared)
        if self.built is None or self.verified is None:
            return (f"Nothing to do: {self.plan.path} is a native store already.", *removed)
        written = f"{plural(self.built.sessions, 'session')}, {plural(self.built.messages, 'message')}"
        lines = [
            f"{self.result} is a native store: {written}, {human_bytes(self.result_bytes)}, in {self.seconds:.1f} s.",
            f"Compared with the original row by row: {plural(self.verified.rows, 'row')}, content hash "
            f"{self.verified.content_hash[:16]}.",
        ]
        if self.converted is not None:
            lines += self.converted.lines(done=True)
        elif any(self.built.kept.get(table) for table in TABLES):
            lines.append(
                "Routing, topics, deliveries and delegations are kept as they were: run `hermes-state sessions optimize"
                f" --db {shell_word(self.result)}` before a gateway uses it, and it goes on with them."
            )
        lines += [f"Kept as found: {_ODDITIES[name]} ({count:,})." for name, count in self.built.oddities.items()]
        if self.original is not None:
            lines.append(f"The original is kept as {self.original}; delete it when you no longer need it.")
        return (*lines, *removed)
