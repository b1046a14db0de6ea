"""Results for programs: one JSON document on stdout.

Invariant: the document is valid JSON whatever a store held: times that are no time and infinite numbers are null, bytes
are described by their length, lone surrogates are replaced. Numbers are raw, times are RFC 3339 in UTC (made with
`text.rfc3339`). `docs/cli-json.md` promises the fields.

Not for: JSON lines of an export (see `maintenance.reading`). `json.dumps` alone was rejected: it writes `Infinity`,
which is not JSON, and a store of hermes-agent can hold it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any, TextIO


def plain(value: Any) -> Any:
    """`value` with nothing in it that JSON cannot say."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"blob_bytes": len(value)}
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")


def print_json(document: Any, *, out: TextIO | None = None) -> None:
    """Write one indented document and a newline."""
    stream = out or sys.stdout
    ascii_only = not (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf8")
    json.dump(plain(document), stream, ensure_ascii=ascii_only, allow_nan=False, indent=2)
    stream.write("\n")
