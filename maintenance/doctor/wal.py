"""The WAL: what still has to be copied, what keeps it from being copied, and whether its end can be read.

Invariant: sizes in bytes are never taken for work to do; a WAL file keeps its length after every frame was copied. The
bytes of the WAL are read through SQLite's own descriptor, and a broken end is only called so when no writer was at work
while it was read. Not for: checkpoints; this never makes one.

Trusting the page check was rejected: it says "ok" for every way of losing the end of a WAL (measured: 3 to 11 % of the
rows gone).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hermes_state.engine import ReadStore, WalState
from lockowners import LockOwner, LockReport
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import human_bytes, plural

MAGICS = {0x377F0682: "<", 0x377F0683: ">"}
HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
LARGE_BYTES = 64 << 20
MOST_FRAMES_READ = 200_000
MOST_FRAMES_CHECKED = 10_000
NO_COMMIT = b"\0\0\0\0"


def wal_findings(store: ReadStore, owners: Callable[[], LockReport]) -> list[Finding]:
    """What the WAL of an open store looks like now. `owners` gives a fresh lock report."""
    state = store.wal_state()
    if state is None:
        if store.journal_mode == "wal":
            return [
                _note("wal_not_seen", store, "The WAL index cannot be looked at: another process has it for itself.")
            ]
        return []
    found = [_size_finding(store, state, owners())]
    if store.recovered_frames:
        sentence = (
            f"Nobody had the store open, so this look built the index of the {plural(store.recovered_frames, 'frame')} "
            "in its WAL anew, as every first open does."
        )
        found.append(_note("wal_index_rebuilt", store, sentence, {"frames": store.recovered_frames}))
    found.extend(end_findings(store, owners))
    return found


def _size_finding(store: ReadStore, state: WalState, report: LockReport) -> Finding:
    pending_bytes = state.pending_frames * state.page_size
    facts = {
        "frames": state.frames,
        "backfilled_frames": state.backfilled_frames,
        "pending_frames": state.pending_frames,
        "wal_bytes": state.wal_bytes,
        "readers": [_reader(owner) for owner in pinning(state, report.owners)],
    }
    words = (
        f"The WAL has {plural(state.pending_frames, 'frame')} to copy of {state.frames:,} in use; "
        f"its file has {human_bytes(state.wal_bytes)}"
    )
    pins = pinning(state, report.owners)
    if pins and state.pending_frames:
        who = "; ".join(_named(owner) for owner in pins)
        return Finding(
            code="wal_pinned",
            severity=Severity.WARNING if pending_bytes > LARGE_BYTES else Severity.INFO,
            object=f"{store.path}-wal",
            sentence=f"{words}. Kept from being copied by {who}.",
            facts=facts,
            next_command=command("locks", store.path, "--watch"),
        )
    if pending_bytes > LARGE_BYTES:
        return Finding(
            code="wal_pending",
            severity=Severity.WARNING,
            object=f"{store.path}-wal",
            sentence=f"{words}. No reader that holds it back was seen; the writers do not checkpoint.",
            facts=facts,
            next_command=command("locks", store.path, "--watch"),
        )
    tail = "; the length of the file is no work to do." if state.wal_bytes > LARGE_BYTES else "."
    return Finding(code="wal", severity=Severity.OK, object=f"{store.path}-wal", sentence=words + tail, facts=facts)


def pinning(state: WalState, owners: Sequence[LockOwner]) -> list[LockOwner]:
    """The readers that a checkpoint cannot pass: their snapshot ends before the last frame."""
    found = []
    for owner in owners:
        if owner.lock != "reader" or owner.slot is None or (owner.process and owner.process.pid == os.getpid()):
            continue
        mark = state.read_marks[owner.slot] if owner.slot < len(state.read_marks) else None
        if owner.slot == 0 or (mark is not None and mark < state.frames):
            found.append(owner)
    return found


def _reader(owner: LockOwner) -> dict[str, object]:
    process = owner.process
    return {
        "pid": process.pid if process else None,
        "command": process.command if process else None,
        "slot": owner.slot,
        "age_seconds": owner.age_seconds,
    }


def _named(owner: LockOwner) -> str:
    who = f"PID {owner.process.pid} ({owner.process.command})" if owner.process else "a process that is not visible"
    # The looks of one run are moments apart: a shorter time would say how long the run took.
    age = f", reading for {owner.age_seconds:,.0f} s" if owner.age_seconds and owner.age_seconds >= 1 else ""
    return f"{who}{age}"


# --- the end of the WAL ------------------------------------------------------------------------------------------


def end_findings(store: ReadStore, owners: Callable[[], LockReport]) -> list[Finding]:
    """Whether committed frames stand behind a place that SQLite does not read past; the gate asks this before writes.

    `owners` is only called when something looks wrong.
    """
    state, wal = store.wal_state(), store.descriptors.wal
    if state is None or wal is None or state.wal_bytes <= HEADER_BYTES:
        return []
    header = os.pread(wal, HEADER_BYTES, 0)
    order = _byte_order(header)
    if order is None:
        if not undisturbed(store, state, owners):
            return []
        sentence = (
            f"The header of the WAL is damaged, so SQLite ignores all {human_bytes(state.wal_bytes)} of it; committed "
            "rows may be in there. Copy both files before Hermes runs again."
        )
        return [_damage("wal_header_damaged", store, sentence, {"wal_bytes": state.wal_bytes})]
    # By the header: the WAL index has no page size before the first commit, and then every frame would look damaged.
    state = replace(state, page_size=int.from_bytes(header[8:12], "big"))
    salt = header[16:24]
    bad = _first_bad_frame(wal, state, salt, order)
    if bad is None:
        return []
    behind, commits = _frames_from(wal, state, salt, bad + 1)
    if not commits:
        unfinished = bad - state.frames + _frames_from(wal, state, salt, bad, most=1)[0] + behind
        if not unfinished or not undisturbed(store, state, owners):
            return []
        sentence = (
            f"{plural(unfinished, 'frame')} at the end of the WAL {'belongs' if unfinished == 1 else 'belong'} to no "
            "complete commit; SQLite does not read them."
        )
        return [_note("wal_unfinished", store, sentence, {"frames": unfinished})]
    if not undisturbed(store, state, owners):
        return []
    sentence = (
        f"Frame {bad + 1:,} of the WAL is damaged, so SQLite stops before it; {plural(commits, 'commit')} in "
        f"{plural(behind, 'frame')} behind it cannot be seen. Copy both files before Hermes runs again."
    )
    facts = {"first_bad_frame": bad + 1, "frames_behind": behind, "commits_behind": commits}
    return [_damage("wal_end_damaged", store, sentence, facts)]


def _byte_order(header: bytes) -> str | None:
    """How the checksums of this WAL are counted; None when SQLite would not take the header for one.

    The checksum covers the page size and the salt, without which no frame is known as one of this WAL.
    """
    order = MAGICS.get(int.from_bytes(header[:4], "big"))
    if order is None or len(header) < HEADER_BYTES:
        return None
    return order if _checksum(header[:24], 0, 0, order) == struct.unpack(">II", header[24:32]) else None


def _first_bad_frame(wal: int, state: WalState, salt: bytes, order: str) -> int | None:
    """Number from 0 of the first frame behind the last used one that does not continue the chain of checksums.

    None when the chain reaches another commit: then those frames are good and only not in the index yet.
    """
    size = FRAME_HEADER_BYTES + state.page_size
    at = HEADER_BYTES + state.frames * size
    # The running checksum stands in the last good frame, or in the header when there is none.
    seed = struct.unpack(">II", os.pread(wal, 8, at - size + 16 if state.frames else 24))
    for number in range(state.frames, state.frames + MOST_FRAMES_CHECKED):
        frame = os.pread(wal, size, HEADER_BYTES + number * size)
        if len(frame) < size or frame[8:16] != salt:
            return number
        seed = _checksum(frame[:8] + frame[FRAME_HEADER_BYTES:], seed[0], seed[1], order)
        if seed != struct.unpack(">II", frame[16:24]):
            return number
        if frame[4:8] != NO_COMMIT:
            return None
    return None


def _frames_from(
    wal: int, state: WalState, salt: bytes, start: int, *, most: int = MOST_FRAMES_READ
) -> tuple[int, int]:
    """Frames of this generation from number `start` on, and how many of them end a commit."""
    size = FRAME_HEADER_BYTES + state.page_size
    found = commits = 0
    last = (state.wal_bytes - HEADER_BYTES) // size
    for number in range(start, min(last, start + most)):
        head = os.pread(wal, FRAME_HEADER_BYTES, HEADER_BYTES + number * size)
        if len(head) == FRAME_HEADER_BYTES and head[8:16] == salt:
            found += 1
            commits += head[4:8] != NO_COMMIT
    return found, commits


def _checksum(data: bytes, first: int, second: int, order: str) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def undisturbed(store: ReadStore, before: WalState, owners: Callable[[], LockReport]) -> bool:
    """No writer is at work now, and none finished since `before`."""
    if any(owner.lock in ("wal-writer", "recovery", "exclusive") for owner in owners().owners):
        return False
    after = store.wal_state()
    return after is not None and (after.frames, after.salt, after.wal_bytes) == (
        before.frames,
        before.salt,
        before.wal_bytes,
    )


def _note(code: str, store: ReadStore, sentence: str, facts: Mapping[str, object] | None = None) -> Finding:
    return Finding(code=code, severity=Severity.INFO, object=f"{store.path}-wal", sentence=sentence, facts=facts or {})


def _damage(code: str, store: ReadStore, sentence: str, facts: Mapping[str, object]) -> Finding:
    return Finding(
        code=code,
        severity=Severity.DAMAGE,
        object=f"{store.path}-wal",
        sentence=sentence,
        facts=facts,
        next_command=recover_command(store.path),
    )
