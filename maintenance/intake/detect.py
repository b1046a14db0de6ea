"""Telling what wrote a file, and finding the transcripts of a folder.

Invariant: a file is what its content says; a named file that says nothing is refused and nothing is guessed; one that
was found in a folder is skipped and named. Not for: reading it. Names and endings were rejected: an export may have
any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InvalidInput, NotFound, Refused
from maintenance.beside import why_no_file
from maintenance.intake.lines import read_lines
from maintenance.intake.model import Source, SourceName
from maintenance.intake.records import FEED

if TYPE_CHECKING:
    from hermes_state.clock import Clock

Wanted = Literal["auto", "hermes-state", "hermes-agent", "claude", "codex"]
# Lines that are looked at; a transcript says what it is in its first few.
_FIRST_LINES = 50
_SQLITE = b"SQLite format 3\x00"
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*[{\]]")
_CODEX_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context"})
_CODEX_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})


@dataclass(kw_only=True)
class Found:
    """What there is to import from."""

    sources: list[Source] = field(default_factory=list)  # in the order to import them
    skipped: dict[Path, str] = field(default_factory=dict)  # files of folders that are no source, and why


def sources_of(paths: Iterable[Path], wanted: Wanted, target: Path, clock: Clock) -> Found:
    """The files to import from, folders replaced by the `.jsonl` files below them.

    A named file that cannot be one raises `InvalidInput`, `NotFound` or `Refused`; one of a folder is skipped.
    """
    found = Found()
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*.jsonl") if one.is_file())
            if not inside:
                raise NotFound(f"The folder {path} has no .jsonl file.", hint="Name a file.", path=path)
            # Transcripts of subagents come after the sessions that they work for.
            before = len(found.sources)
            for one in sorted(inside, key=_subagent):
                try:
                    found.sources.append(_source(one, wanted, target, clock))
                except InvalidInput as error:
                    found.skipped[one] = error.message
            if len(found.sources) == before:
                raise InvalidInput(
                    f"Nothing in the folder {path} can be imported. {found.skipped[inside[0]]}",
                    hint="Name a file, or export again with --format jsonl.", path=path,
                )
        else:
            found.sources.append(_source(path, wanted, target, clock))
    return found


def _source(path: Path, wanted: Wanted, target: Path, clock: Clock) -> Source:
    if not path.exists():
        raise NotFound(f"There is no file {path}.", hint="Check the name.", path=path)
    if (reason := why_no_file(path)) != "":
        raise InvalidInput(f"{path} {reason}.", hint="Name a file.", path=path)
    if target.exists() and path.samefile(target):
        raise Refused(f"{path} is the store to import into.", hint="Name another file.", path=path)
    if _begins_as_sqlite(path):
        from maintenance.intake.stores import StoreSource

        store = StoreSource(path, clock)
        if wanted not in ("auto", store.name):
            raise _mismatch(path, wanted, store.name)
        return store
    if _begins_as_array(path):
        raise InvalidInput(
            f"{path} is one JSON array, as `sessions export --format json` writes it; only JSON lines can be imported.",
            hint="Export again with --format jsonl.", path=path,
        )
    if _is_manifest(path):
        raise InvalidInput(
            f"{path} is the list of a Markdown export, which is for reading and cannot be imported.",
            hint="Export again with --format jsonl.", path=path,
        )
    name = kind_of(path)
    if wanted != "auto" and name not in (None, wanted) and {name, wanted} != {"hermes-state", "hermes-agent"}:
        raise _mismatch(path, wanted, str(name))
    name = name if wanted == "auto" else wanted
    if name is None:
        raise InvalidInput(
            f"{path} does not say what wrote it: it is no store, no export and no transcript that is known.",
            hint="Name the program with --from, or leave the file out.", path=path,
        )
    if name == "claude":
        from maintenance.intake.claude import claude_source

        return claude_source(path)
    if name == "codex":
        from maintenance.intake.codex import codex_source

        return codex_source(path)
    from maintenance.intake.records import RecordSource

    return RecordSource(path, name)


def kind_of(path: Path) -> SourceName | None:
    """What wrote a JSONL file, by the first of its lines that tells."""
    for value in _first_objects(path):
        name = _kind_of_line(value)
        if name is not None:
            return name
    return None


def _kind_of_line(value: dict[str, Any]) -> SourceName | None:
    kind = value.get("type")
    if value.get("format") == FEED:
        return "hermes-state"
    if isinstance(value.get("messages"), list) and "id" in value:
        return "hermes-state" if "state" in value and "relation" in value else "hermes-agent"
    if isinstance(value.get("sessionId"), str) or (isinstance(value.get("uuid"), str) and "parentUuid" in value):
        return "claude"
    if kind in ("summary", "file-history-snapshot") and "payload" not in value:
        return "claude"
    if isinstance(kind, str) and kind in _CODEX_TYPES and isinstance(value.get("payload"), dict):
        return "codex"
    header = kind is None and "id" in value and "timestamp" in value
    if header or "record_type" in value or (isinstance(kind, str) and kind in _CODEX_ITEMS and "message" not in value):
        return "codex"
    return None


def _first_objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in read_lines(path):
        if line.number > _FIRST_LINES:
            return
        if line.value is not None:
            yield line.value


def _is_manifest(path: Path) -> bool:
    first = next(_first_objects(path), {})
    return first.keys() == {"file", "session", "messages", "sha256"}


def _begins_as_sqlite(path: Path) -> bool:
    # Nothing in this process has the file open: it is not the target, and no other source.
    with path.open("rb") as content:
        return content.read(len(_SQLITE)) == _SQLITE


def _begins_as_array(path: Path) -> bool:
    # Its records would be found on lines of their own but for the commas: one would be imported and the rest refused.
    with path.open("rb") as content:
        return _ARRAY.match(content.read(4096)) is not None


def _subagent(path: Path) -> tuple[bool, str]:
    return path.name.startswith("agent-"), str(path)


def _mismatch(path: Path, wanted: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"{path} was written by {found}, not by {wanted}.", hint="Leave --from away, or name the right program.",
        path=path, option="--from",
    )
