"""The program of the child process that reads a store's files as bytes: it copies, compares and hashes them.

Invariant: it runs alone, as a process of its own. A process that has a store open must not open its files by other
means: closing them there would cancel SQLite's locks. Every copy is new, private and synced, and a file that differs
from an earlier copy is copied again under another name, never over it.

Not for: deciding anything. It takes one JSON object on its standard input, and answers with one JSON line a step and
one at the end. Nothing but the standard library is imported, so that `python -I` runs it wherever the package lies.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import sys
from typing import Any

CHUNK = 1 << 20
SAY_EVERY = 64 << 20
# Bytes of the first page that the backup API sets itself: file format versions (18, 19; they follow the journal mode),
# change counter (24 to 27), schema cookie (40 to 43), version for which the counter holds, and library version.
OF_THE_FILE = ((18, 20), (24, 28), (40, 44), (92, 100))
LOCK_BYTE = 1 << 30  # the page with this byte belongs to SQLite's locks and holds nothing


def main() -> None:
    """Do the one task that stands on standard input."""
    task = json.load(sys.stdin)
    say({"done": TASKS[task["task"]](task)})


def copy_family(task: dict[str, Any]) -> dict[str, Any]:
    """Copy the files that are there into the folder; what was copied, by name."""
    copied = {}
    for name in task["names"]:
        found = copy_file(os.path.join(task["source"], name), os.path.join(task["to"], task.get("target", name)))
        if found is not None:
            copied[name] = found
    sync_folder(task["to"])
    return copied


def copy_file(source: str, target: str) -> dict[str, Any] | None:
    """Copy one file; None when there is none."""
    try:
        descriptor = os.open(source, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return None
    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb", buffering=0) as reading:
        state = os.fstat(reading.fileno())
        head = b""
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as writing:
            done = 0
            while chunk := reading.read(CHUNK):
                head = head or chunk[:100]
                digest.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[writing.write(view) :]
                done += len(chunk)
                if done // SAY_EVERY != (done - len(chunk)) // SAY_EVERY:
                    say({"copied": done})
            os.fsync(writing.fileno())
    return {
        "bytes": done, "sha256": digest.hexdigest(), "device": state.st_dev, "inode": state.st_ino, "head": head.hex(),
    }


def verify_family(task: dict[str, Any]) -> dict[str, Any]:
    """Compare the files with their copies byte for byte; a file that differs by now is copied again beside."""
    again = {}
    for name in task["names"]:
        live, copy = os.path.join(task["source"], name), os.path.join(task["to"], name)
        if not os.path.exists(live) or (not os.path.exists(copy) and os.path.getsize(live) == 0):
            continue
        if not os.path.exists(copy) or not same(live, copy):
            found = copy_file(live, f"{copy}.under-lock")
            if found is None or not same(live, f"{copy}.under-lock"):
                raise SystemExit(f"{live} changes while it is copied")
            again[f"{name}.under-lock"] = found
    sync_folder(task["to"])
    return again


def same(one: str, other: str) -> bool:
    """Whether two files have the same bytes."""
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        done = 0
        while True:
            left, right = read_full(first), read_full(second)
            if left != right:
                return False
            if not left:
                return True
            done += len(left)
            if done % SAY_EVERY == 0:
                say({"compared": done})


def same_content(task: dict[str, Any]) -> dict[str, Any]:
    """Whether two database files hold the same pages, but for what SQLite sets in each file's header by itself."""
    one, other = task["one"], task["other"]
    if os.path.getsize(one) != os.path.getsize(other):
        return {"same": False, "offset": min(os.path.getsize(one), os.path.getsize(other))}
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        offset = 0
        while True:
            left, right = bytearray(read_full(first)), bytearray(read_full(second))
            if offset == 0:
                page_size = int.from_bytes(left[16:18], "big") if len(left) > 18 else 4096
                for begin, end in OF_THE_FILE:
                    left[begin:end] = right[begin:end]
            if offset <= LOCK_BYTE < offset + len(left):
                # The chunk begins on a page boundary, and so does the lock-byte page.
                begin = LOCK_BYTE - offset
                page = 65536 if page_size == 1 else page_size
                left[begin : begin + page] = right[begin : begin + page]
            if left != right:
                place = next(number for number in range(len(left)) if left[number] != right[number])
                return {"same": False, "offset": offset + place}
            if not left:
                return {"same": True, "offset": None}
            offset += len(left)
            if offset % SAY_EVERY == 0:
                say({"compared": offset})


def wal_frames(task: dict[str, Any]) -> dict[str, Any]:
    """How many pages of whole commits in a WAL the database file does not have as they are there."""
    with open(task["wal"], "rb") as wal:
        head = wal.read(32)
        if len(head) < 32 or head[:4] not in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"):
            return {"missing": 0}
        order: Any = "big" if head[3] & 1 else "little"
        size = int.from_bytes(head[8:12], "big")
        state = checksum(head[:24], (0, 0), order)
        if size < 512 or state != (int.from_bytes(head[24:28], "big"), int.from_bytes(head[28:32], "big")):
            return {"missing": 0}
        last: dict[int, int] = {}
        pending: dict[int, int] = {}
        while len(frame := wal.read(24 + size)) == 24 + size:
            state = checksum(frame[24:], checksum(frame[:8], state, order), order)
            said = (int.from_bytes(frame[16:20], "big"), int.from_bytes(frame[20:24], "big"))
            if frame[8:16] != head[16:24] or state != said:
                break
            pending[int.from_bytes(frame[:4], "big")] = wal.tell() - size
            pages = int.from_bytes(frame[4:8], "big")
            if pages:
                last |= pending
                last = {page: place for page, place in last.items() if page <= pages}
                pending = {}
        return {"missing": sum(not has_page(task["main"], wal, size, page, place) for page, place in last.items())}


def checksum(data: bytes, start: tuple[int, int], order: Any) -> tuple[int, int]:
    """SQLite's checksum of a WAL, going on from `start`."""
    words = array.array("I", data)
    if sys.byteorder != order:
        words.byteswap()
    one, two = start
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return one, two


def has_page(main: str, wal: Any, size: int, page: int, place: int) -> bool:
    """Whether the database file has this page as the frame at `place` has it."""
    wal.seek(place)
    wanted = wal.read(size)
    with open(main, "rb") as file:
        file.seek((page - 1) * size)
        return bool(file.read(size) == wanted)


def hash_file(task: dict[str, Any]) -> dict[str, Any]:
    """SHA-256 and size of one file."""
    with open(task["path"], "rb") as reading:
        digest = hashlib.file_digest(reading, "sha256")
        return {"sha256": digest.hexdigest(), "bytes": os.fstat(reading.fileno()).st_size}


def read_full(file: Any) -> bytes:
    """The next whole chunk; shorter only at the end."""
    parts, wanted = [], CHUNK
    while wanted and (part := file.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def sync_folder(folder: str) -> None:
    """Wait until the names in a folder are on the disk."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def say(answer: dict[str, Any]) -> None:
    """One line for the parent; when that is gone, this process ends by the broken pipe."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def hidden_commits(task: dict[str, Any]) -> dict[str, Any]:
    """Whether a WAL has commits of its generation behind the end that SQLite finds, or a header that says nothing."""
    with open(task["wal"], "rb") as wal:
        head = wal.read(32)
        if not head.strip(b"\0"):
            return {"hidden": bool(wal.read(1))}
        if len(head) < 32 or head[:4] not in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"):
            return {"hidden": True}
        order: Any = "big" if head[3] & 1 else "little"
        size = int.from_bytes(head[8:12], "big")
        state = checksum(head[:24], (0, 0), order)
        if size < 512 or state != (int.from_bytes(head[24:28], "big"), int.from_bytes(head[28:32], "big")):
            return {"hidden": True}
        linked = True
        while len(frame := wal.read(24 + size)) == 24 + size:
            ours = frame[8:16] == head[16:24]
            if linked:
                state = checksum(frame[24:], checksum(frame[:8], state, order), order)
                said = (int.from_bytes(frame[16:20], "big"), int.from_bytes(frame[20:24], "big"))
                linked = ours and state == said
            # What a rollback left behind the end has no mark of a commit.
            if not linked and ours and frame[4:8] != bytes(4):
                return {"hidden": True}
    return {"hidden": False}


TASKS = {
    "copy": copy_family, "verify": verify_family, "same_content": same_content, "hash": hash_file,
    "wal_frames": wal_frames, "hidden_commits": hidden_commits,
}

if __name__ == "__main__":
    main()
