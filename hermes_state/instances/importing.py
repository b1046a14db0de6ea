"""Bringing instances in from the files that older servers kept them in.

Invariant: files are read before any transaction, and never changed or deleted. Of a credential only its digest is
stored. What is here already stays as it is: a file never takes a revocation or a removal back, nor a name from
somebody. Each instance is one transaction, and what cannot be brought in is said with its reason.

Those servers kept `hermes-gateway-metadata-<id>` (JSON: nickname, connectorUrl, revoked, removed, lastSeen) and
`hermes-gateway-credential-<id>` (43 characters of base64url) in one folder, `<id>` being the id as base64url, with
`.bin` after it.

Not for: what was last seen of an instance, which the next connect tells anew. Making up instances that no file
describes was rejected: it is how removed ones came back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state import json_values, tombstones
from hermes_state.errors import InvalidInput, NicknameConflict, NotFound
from hermes_state.instances import credentials, nicknames, registry, removal
from hermes_state.instances.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

_NAME = re.compile(r"hermes-gateway-(metadata|credential)-([A-Za-z0-9_-]+)={0,2}(?:\.bin)?")
_CREDENTIAL = re.compile(r"[A-Za-z0-9_-]{43}")
# A metadata blob has some hundred bytes.
MOST_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Older:
    """One instance as older files describe it."""

    instance_id: str
    nickname: str
    connector_url: str | None
    revoked: bool
    removed: bool
    credential: str | None = field(repr=False)
    without: tuple[str, ...] = ()  # what of it is not brought in, and why


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import did."""

    added: tuple[tuple[str, State], ...]  # id and state of what was brought in
    present: tuple[str, ...]  # ids that were here before, or removed here; unchanged
    problems: tuple[tuple[str, str], ...]  # id or file name, and why it, or what of it, was not brought in


def read_folder(folder: Path) -> tuple[list[Older], list[tuple[str, str]]]:
    """What the files of a folder describe, by id, and what cannot be read with its reason.

    Raises `NotFound`, also for a folder without such files.
    """
    if not folder.is_dir():
        raise NotFound(
            f"There is no folder {folder}.", hint="Give the folder with the hermes-gateway-metadata- files.",
            path=folder,
        )
    found: list[Older] = []
    problems: list[tuple[str, str]] = []
    keys: dict[str, bytes | str] = {}  # of a file that cannot be read, why
    blobs: dict[str, tuple[Path, bytes]] = {}
    for kind, instance_id, path in _files(folder, problems):
        try:
            with path.open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            problems.append((path.name, why))
            if kind == "credential":
                keys[instance_id] = why
            continue
        if kind == "credential":
            keys[instance_id] = content
        else:
            blobs[instance_id] = path, content
    if not (blobs or keys or problems):
        raise NotFound(
            f"There is no file of an older server in {folder}.",
            hint="Give the folder with the hermes-gateway-metadata- files.", path=folder,
        )
    for instance_id, (path, content) in blobs.items():
        try:
            found.append(_older(instance_id, content, keys.get(instance_id)))
        except (InvalidInput, ValueError) as error:
            problems.append((path.name, str(error)))
    for instance_id in sorted(keys.keys() - blobs.keys()):
        problems.append((instance_id, "has a credential and no metadata"))
    return found, problems


def with_free_name(reader: Reader, older: Older) -> Older:
    """A revoked instance whose nickname another one has, with one that is free: its revocation is brought in all the
    same. Everybody else as it is."""
    if older.revoked and not older.removed:
        try:
            registry.refuse_taken(reader, older.nickname, nicknames.nickname_key(older.nickname), older.instance_id)
        except NicknameConflict:
            free = fallback(older.instance_id)
            why = f"is brought in as {free!r}: {older.nickname!r} is taken"
            return replace(older, nickname=free, without=(*older.without, why))
    return older


def refuse_or_state(reader: Reader, older: Older) -> State | None:
    """The state that an instance would be brought in with; None when the id is here, or was removed here.

    Raises `NicknameConflict`.
    """
    gone = tombstones.find(reader, registry.KIND, older.instance_id) is not None
    if gone or registry.find(reader, older.instance_id) is not None:
        return None
    if older.removed:
        return State.REMOVED
    if older.revoked:
        return State.REVOKED
    registry.refuse_taken(reader, older.nickname, nicknames.nickname_key(older.nickname), older.instance_id)
    return State.CONFIGURED if older.credential is None else State.ENROLLED


def bring_in(
    tx: Transaction, older: Older, *, actor: str, at: float, horizon_seconds: float
) -> tuple[State | None, tuple[str, ...]]:
    """Add one instance, and give its state and what of it was left out; None when the id is here, or was removed here.

    Raises `NicknameConflict`.
    """
    state = refuse_or_state(tx, older)
    if state is None:
        return None, ()
    older = with_free_name(tx, older)
    registry.add(
        tx, older.instance_id, nickname=older.nickname, connector_url=older.connector_url, actor=actor, at=at,
        state=state, reason="brought in from older files",
    )
    if state is State.ENROLLED and older.credential is not None:
        credentials.keep(tx, older.instance_id, older.credential, at=at)
    if state is State.REMOVED:
        removal.entomb(
            tx, older.instance_id, actor=actor, reason="was removed in older files", at=at,
            horizon_seconds=horizon_seconds,
        )
    return state, older.without


def _files(folder: Path, problems: list[tuple[str, str]]) -> Iterator[tuple[str, str, Path]]:
    """(kind, instance id, path) of every file that is named as one of ours."""
    for path in sorted(folder.iterdir()):
        named = _NAME.fullmatch(path.name)
        if named is None or not path.is_file():
            continue
        try:
            decoded = base64.urlsafe_b64decode(named[2] + "=" * (-len(named[2]) % 4)).decode()
            yield named[1], nicknames.instance_id(decoded), path
        except (binascii.Error, ValueError, InvalidInput):
            problems.append((path.name, "its name holds no instance id"))


def _older(instance_id: str, content: bytes, key: bytes | str | None) -> Older:
    """One instance. Raises `ValueError`, `InvalidInput`: it is not brought in.

    A revocation and a removal are brought in whatever else the file says: left out, anybody could take the id.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    try:
        fields: Any = json_values.load(content.decode())
    except ValueError:
        raise ValueError("is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("is no JSON object")
    revoked, removed = (_flag(fields, name) for name in ("revoked", "removed"))
    over = revoked or removed
    without: list[str] = []
    url = fields.get("connectorUrl") or None
    try:
        connector_url = None if url is None else nicknames.connector_url(url)
    except InvalidInput as error:
        connector_url = None
        without.append(f"is brought in without its connector: {error.message}")
    try:
        nickname = nicknames.nickname(fields.get("nickname"))[0]
    except InvalidInput as error:
        if not over:
            raise
        nickname = fallback(instance_id)
        without.append(f"is brought in as {nickname!r}: {error.message}")
    if isinstance(key, str) and not over:
        raise ValueError(f"has a credential beside it that {key}; try again when it can be read")
    return Older(
        instance_id=instance_id, nickname=nickname, connector_url=connector_url, revoked=revoked, removed=removed,
        credential=None if key is None or isinstance(key, str) or over else _credential(key),
        without=tuple(without),
    )


def fallback(instance_id: str) -> str:
    """The nickname of a revoked or removed instance that cannot have its own: what its id begins with, and a mark."""
    return f"{instance_id[:40].strip()} {hashlib.sha256(instance_id.encode()).hexdigest()[:12]}"


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"says neither true nor false of {name!r}")
    return value


def _credential(content: bytes) -> str:
    """The text that the plugin sends: what is in the file, or its base64url where that is 32 raw bytes."""
    if len(content) == credentials.SECRET_BYTES:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")
    text = content.decode("ascii", "replace").strip()
    if _CREDENTIAL.fullmatch(text) is None:
        raise ValueError("has a credential beside it that is no base64url of 32 bytes")
    return text
