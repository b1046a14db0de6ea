"""What is around the store: journal mode as configured and in force, file system, SQLite's own version, the script.

Invariant: differences are reported, never set right. Not for: the content of the file. Reading the configuration with a
YAML library was rejected: one key does not pay for a dependency, and what is not understood is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hermes_state.engine import ReadStore
from hermes_state.engine.filesystem import file_system_of
from maintenance.doctor.findings import Finding, Severity
from maintenance.shim import shim_state

CONFIG_NAME = "config.yaml"
_BLOCK = re.compile(r"^database\s*:\s*(.*)$")
_KEY = re.compile(r"^\s+journal_mode\s*:\s*(.*)$")
_FLOW = re.compile(r"\bjournal_mode\s*:\s*['\"]?([A-Za-z]+)")
_WORD = re.compile(r"^['\"]?([A-Za-z]+)['\"]?\s*(?:#.*)?$")
_MODES = frozenset({"wal", "delete", "truncate", "persist", "memory", "off"})


def journal_findings(store: ReadStore, home: Path) -> list[Finding]:
    """The journal mode in force, the one in the file's header, and the one that the home's configuration asks for."""
    effective = store.journal_mode
    header = _header_mode(store)
    config = home / CONFIG_NAME
    configured = configured_mode(config)
    facts = {"effective": effective, "header": header, "configured": configured, "config": str(config)}
    if configured in _MODES and configured != effective:
        sentence = (
            f"{config} asks for the journal mode {configured}, and {effective} is in force. "
            "Nothing is switched by itself; hermes-agent may do so at its next start."
        )
        return [_journal("journal_mode_differs", Severity.WARNING, store, sentence, facts)]
    if configured is not None and configured not in _MODES and configured != "auto":
        sentence = f"The journal mode in force is {effective}; database.journal_mode in {config} was not understood."
        return [_journal("journal_mode_unclear", Severity.INFO, store, sentence, facts)]
    said = f"as {config} asks" if configured == effective else "none is configured"
    return [_journal("journal_mode", Severity.OK, store, f"The journal mode in force is {effective}; {said}.", facts)]


def configured_mode(config: Path) -> str | None:
    """`database.journal_mode` of hermes-agent's configuration; None when it is not set, "?" when it cannot be told."""
    try:
        lines = config.read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return "?"
    inside = False
    for line in lines:
        block = _BLOCK.match(line)
        if block:
            flow = _FLOW.search(block.group(1))
            if flow:
                return flow.group(1).lower()
            inside = True
        elif line.strip() and not line.lstrip().startswith("#") and not line[0].isspace():
            inside = False
        elif inside and (key := _KEY.match(line)):
            word = _WORD.match(key.group(1).strip())
            return word.group(1).lower() if word else "?"
    return None


def _header_mode(store: ReadStore) -> str | None:
    """The word wal or rollback, by bytes 18 and 19 of the file, read through SQLite's own descriptor."""
    main = store.descriptors.main
    head = os.pread(main, 2, 18) if main is not None else b""
    return {b"\x02\x02": "wal", b"\x01\x01": "rollback"}.get(head)


def _journal(code: str, severity: Severity, store: ReadStore, sentence: str, facts: Mapping[str, object]) -> Finding:
    return Finding(code=code, severity=severity, object=str(store.path), sentence=sentence, facts=facts)


def file_system_finding(path: Path, journal_mode: str | None, *, proc_root: Path) -> Finding:
    """The file system, and whether the journal mode in force may be used there; said once."""
    found = file_system_of(path, proc_root=proc_root)
    facts = {
        "type": found.type,
        "mount_point": found.mount_point,
        "source": found.source,
        "wal": found.wal,
        "journal_mode": journal_mode,
    }
    where = f"{found.type} ({found.source} on {found.mount_point})" if found.mount_point else "an unknown file system"
    if found.wal == "unsafe" and journal_mode == "wal":
        sentence = (
            f"The store is in WAL mode on {where}. {found.reason} Move it to a local disk or a named volume while no "
            "Hermes runs."
        )
        return _surrounding("wal_on_unsafe_file_system", Severity.WARNING, path, sentence, facts)
    if found.wal == "safe":
        return _surrounding("file_system", Severity.OK, path, f"The store lies on {where}.", facts)
    return _surrounding("file_system", Severity.INFO, path, f"The store lies on {where}. {found.reason}", facts)


def sqlite_finding(store: ReadStore) -> Finding:
    """The SQLite of this program, and whether it has the defect that can lose a WAL that is reset under load."""
    row = store.row("SELECT sqlite_version()")
    version = str(row[0]) if row else "unknown"
    affected = has_wal_reset_defect(version)
    if affected:
        sentence = (
            f"This program uses SQLite {version}, which can damage a store when a WAL is reset under load; update it."
        )
        return _surrounding("sqlite_wal_reset", Severity.WARNING, store.path, sentence, {"sqlite_version": version})
    sentence = f"This program uses SQLite {version}; other programs may use another one."
    return _surrounding("sqlite", Severity.OK, store.path, sentence, {"sqlite_version": version})


def has_wal_reset_defect(version: str) -> bool | None:
    """Versions 3.7.0 to 3.51.2 have it, but for 3.44.6 and later 3.44, 3.50.7 and later 3.50. None: not a version."""
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return None
    number = (*map(int, parts), 0)[:3]
    if not (3, 7, 0) <= number <= (3, 51, 2):
        return False
    mended = {(3, 44): 6, (3, 50): 7}.get((number[0], number[1]))
    return mended is None or number[2] < mended


def script_finding() -> Finding:
    """Whose the `hermes` script of this environment is."""
    state = shim_state()
    severity = Severity.OK if state.owner == "hermes-state" and not state.shadowed else Severity.INFO
    return Finding(
        code="hermes_script",
        severity=severity,
        object=str(state.path),
        sentence=f"{state.sentence[0].upper()}{state.sentence[1:]}.",
        facts={"owner": state.owner, "on_path": str(state.on_path) if state.on_path else None},
        next_command="hermes-state install-shim" if state.owner in ("hermes-agent", "missing") else "",
    )


def _surrounding(code: str, severity: Severity, path: Path, sentence: str, facts: Mapping[str, object]) -> Finding:
    return Finding(code=code, severity=severity, object=str(path), sentence=sentence, facts=facts)
