"""What a power cut leaves: every crash prefix of a recording, with what was not synced lost, kept or torn.

Invariant: content is durable once its own file was synced, a name once its folder was; whatever came later may be
there, in part, in another order, or not at all. A crash is the same for the same recording, position, mode and seed.

Not for: faults that a program sees (see `faults`). Cutting real power, or a device mapper, was rejected: a test could
neither choose the moment nor repeat it.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hermes_state.testing.recording import Event, Recording

__all__ = ["MODES", "PAGE_BYTES", "SECTOR_BYTES", "Crash", "Event", "Mode", "Recording", "crashes"]

Mode = Literal["lost", "kept", "names", "contents", "last", "torn"]
MODES: tuple[Mode, ...] = ("lost", "kept", "names", "contents", "last", "torn")
SECTOR_BYTES, PAGE_BYTES = 512, 4096


@dataclass(frozen=True, kw_only=True)
class Crash:
    """The files as a power cut left them."""

    # number of events that had happened
    position: int
    # lost: nothing unsynced is there · kept: everything is (as after kill -9) · names: names are, contents are not
    # contents: the reverse · last: of each file only the last write · torn: sectors or pages and names by chance
    mode: Mode
    seed: int
    # by name relative to the folder
    files: dict[str, bytes] = field(repr=False)
    # labels of the marks before the crash, in order
    marks: tuple[Any, ...]

    def write(self, folder: Path | str) -> Path:
        """Put the files into `folder`, which is made; the folder."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(content)
        return target


def crashes(
    recording: Recording, *, every: Literal["event", "sync", "mark"] = "event", modes: Sequence[Mode] = MODES,
    seeds: Sequence[int] = (0, 1), start: int = 0,
) -> Iterator[Crash]:
    """Every distinct crash of a recording that has ended.

    `every="sync"` cuts the power only right before each sync and at the end, where most is at stake; `every="mark"`
    only before everything and right after each mark. `seeds` are those of the mode `torn`: even ones tear sectors of
    512 bytes, odd ones pages of 4,096. `start`: the first position.
    """
    disk = _Disk(recording)
    seen: set[bytes] = set()
    marks: list[Any] = []
    events = recording.events
    for position in range(len(events) + 1):
        if position:
            disk.apply(events[position - 1])
            if events[position - 1].kind == "mark":
                marks.append(events[position - 1].label)
        if position < start or not _is_boundary(events, position, every):
            continue
        for mode in modes:
            for seed in seeds if mode == "torn" else (0,):
                contents = disk.after_crash(mode, random.Random(f"{position}:{seed}"), seed)
                digest = _digest(contents, marks)
                if digest not in seen:
                    seen.add(digest)
                    files = {name: content.bytes for name, content in contents.items()}
                    yield Crash(position=position, mode=mode, seed=seed, files=files, marks=tuple(marks))


def _is_boundary(events: Sequence[Event], position: int, every: Literal["event", "sync", "mark"]) -> bool:
    if every == "mark":
        return position == 0 or events[position - 1].kind == "mark"
    return every == "event" or position == len(events) or events[position].kind in ("sync", "sync_folder")


class _Content:
    """What a file holds; its hash is made once, since most files stay as they are from one crash to the next."""

    def __init__(self, content: bytes) -> None:
        self.bytes = content

    @functools.cached_property
    def digest(self) -> bytes:
        return hashlib.blake2b(self.bytes, digest_size=16).digest()


class _File:
    """One file: what is durable, and what was done since, oldest first."""

    def __init__(self, durable: bytes = b"") -> None:
        self._durable = _Content(durable)
        self._now = bytearray(durable)
        # what `_now` holds, until it changes
        self._kept: _Content | None = self._durable
        self._pending: list[Event] = []

    def do(self, event: Event) -> None:
        self._pending.append(event)
        _do(self._now, event)
        self._kept = None

    def sync(self) -> None:
        if self._pending:
            self._durable = self._as_it_is()
            self._pending.clear()

    def content(self, mode: Mode, chance: random.Random, unit: int) -> _Content:
        if not self._pending or mode in ("lost", "names"):
            return self._durable
        if mode in ("kept", "contents"):
            return self._as_it_is()
        if mode == "last":
            found = bytearray(self._durable.bytes)
            _do(found, self._pending[-1])
            return _Content(bytes(found))
        return _Content(self._torn(chance, unit))

    def _as_it_is(self) -> _Content:
        if self._kept is None:
            self._kept = _Content(bytes(self._now))
        return self._kept

    def _torn(self, chance: random.Random, unit: int) -> bytes:
        """Each sector as one of the versions that it had since the last sync, and one of the sizes."""
        sizes = [len(self._durable.bytes)]
        state = bytearray(self._durable.bytes)
        versions: dict[int, list[bytes]] = {}
        for event in self._pending:
            _do(state, event)
            sizes.append(len(state))
            if event.kind == "write":
                first, last = event.offset // unit, (event.offset + max(len(event.data), 1) - 1) // unit
                for number in range(first, last + 1):
                    versions.setdefault(number, []).append(bytes(state[number * unit : (number + 1) * unit]))
        size = chance.choice(sizes)
        found = bytearray(self._durable.bytes[:size].ljust(size, b"\0"))
        for number, contents in sorted(versions.items()):
            choice = chance.randrange(len(contents) + 1)
            if choice and number * unit < size:
                found[number * unit : number * unit + len(contents[choice - 1])] = contents[choice - 1]
        return bytes(found[:size].ljust(size, b"\0"))


class _Disk:
    def __init__(self, recording: Recording) -> None:
        self._files = {number: _File(recording.before[name]) for name, number in recording.file_of.items()}
        self._durable_names = dict(recording.file_of)
        self._names = dict(recording.file_of)
        self._pending: list[Event] = []

    def apply(self, event: Event) -> None:
        if event.kind in ("write", "truncate"):
            self._files[event.file].do(event)
        elif event.kind == "sync":
            self._files[event.file].sync()
        elif event.kind == "sync_folder":
            self._sync_folder(event.name)
        elif event.kind != "mark":
            if event.kind == "create":
                self._files.setdefault(event.file, _File())
            _rename(self._names, event)
            self._pending.append(event)

    def _sync_folder(self, folder: str) -> None:
        left = []
        for event in self._pending:
            if folder in (_folder_of(event.name), _folder_of(event.old_name or event.name)):
                _rename(self._durable_names, event)
            else:
                left.append(event)
        self._pending = left

    def after_crash(self, mode: Mode, chance: random.Random, seed: int) -> dict[str, _Content]:
        kept = {"lost": 0, "contents": 0, "torn": chance.randint(0, len(self._pending))}.get(mode, len(self._pending))
        names = dict(self._durable_names)
        for event in self._pending[:kept]:
            _rename(names, event)
        unit = PAGE_BYTES if seed % 2 else SECTOR_BYTES
        # One choice for a file, whatever its names.
        contents = {
            number: self._files[number].content(mode, chance, unit) for number in sorted(set(names.values()))
        }
        return {name: contents[number] for name, number in sorted(names.items())}


def _do(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
    else:
        content.extend(bytes(max(0, event.offset - len(content))))
        content[event.offset : event.offset + len(event.data)] = event.data


def _rename(names: dict[str, int], event: Event) -> None:
    if event.kind == "create":
        names[event.name] = event.file
    elif event.kind == "remove":
        names.pop(event.name, None)
    elif event.old_name in names:
        names[event.name] = names.pop(event.old_name)


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _digest(files: dict[str, _Content], marks: Sequence[Any]) -> bytes:
    found = hashlib.blake2b(repr(marks).encode(), digest_size=16)
    for name, content in files.items():
        found.update(f"\0{name}\0{len(content.bytes)}\0".encode())
        found.update(content.digest)
    return found.digest()
