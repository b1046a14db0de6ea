"""What a WAL still shows of commits that no reader sees: a last frame that was cut, or frames of another generation.

Invariant: SQLite takes both for an ordinary WAL and every check says ok; here only bytes are compared, through SQLite's
own descriptors, and nothing is called damage while a writer is at work.

Not for: a damaged header or frame before the end (`wal`), which keeps committed frames that still fit the WAL.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hermes_state.engine import ReadStore, WalState
from lockowners import LockReport
from maintenance.doctor.evidence import evidence_beside
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.doctor.wal import FRAME_HEADER_BYTES, HEADER_BYTES, MOST_FRAMES_READ, NO_COMMIT, undisturbed
from maintenance.output.text import plural


def remains_findings(store: ReadStore, owners: Callable[[], LockReport]) -> list[Finding]:
    """Both looks. `owners` is only called when something looks wrong."""
    state, wal = store.wal_state(), store.descriptors.wal
    if state is None or wal is None or state.wal_bytes <= HEADER_BYTES:
        return []
    return [*_cut(store, state, wal, owners), *_other_generation(store, state, wal, owners)]


def _cut(store: ReadStore, state: WalState, wal: int, owners: Callable[[], LockReport]) -> list[Finding]:
    """A WAL that ends inside a frame of its own.

    SQLite writes the head of a frame and its page one after the other, so a killed writer leaves the head alone; part
    of a page is left by a full disk, a power cut or a cut file.
    """
    page_size = store.page_size
    size = FRAME_HEADER_BYTES + page_size
    over = (state.wal_bytes - HEADER_BYTES) % size
    if over <= FRAME_HEADER_BYTES:
        return []
    head = os.pread(wal, FRAME_HEADER_BYTES, state.wal_bytes - over)
    if head[8:16] != state.salt or not undisturbed(store, state, owners):
        return []
    sentence = (
        f"The WAL ends inside a frame, {over:,} bytes behind the last whole one: it was cut, or the disk was full. "
        "Commits that stood behind it are not in the store."
    )
    # A list of what lies beside the store helps only where something does that can have them.
    beside = any(one.kind in ("backup", "capture") for one in evidence_beside(store.path, store.path.parent))
    if not beside:
        sentence += " No backup and no capture lies beside it; the next write to the store takes that place again."
    return [
        Finding(
            code="wal_cut", severity=Severity.WARNING, object=f"{store.path}-wal", sentence=sentence,
            facts={"bytes_of_the_last_frame": over, "frames": state.frames},
            next_command=command("sessions leftovers", store.path) if beside else "",
        )
    ]


def _other_generation(store: ReadStore, state: WalState, wal: int, owners: Callable[[], LockReport]) -> list[Finding]:
    """Frames of another generation whose pages differ from the file: they were never copied into it.

    A WAL that started over keeps frames of the generation before, and those were all copied first.
    """
    if state.frames:
        return []
    page_size = store.page_size  # the index of a WAL without a frame does not say it
    size = FRAME_HEADER_BYTES + page_size
    number = min((state.wal_bytes - HEADER_BYTES) // size, MOST_FRAMES_READ)
    newest: dict[int, int] = {}
    pending: dict[int, int] = {}
    salt, pages = b"", 0
    for frame in range(number):
        head = os.pread(wal, FRAME_HEADER_BYTES, HEADER_BYTES + frame * size)
        salt = salt or head[8:16]
        if head[8:16] != salt:
            break
        pending[int.from_bytes(head[:4], "big")] = frame
        if head[4:8] != NO_COMMIT:
            newest |= pending
            pending, pages = {}, int.from_bytes(head[4:8], "big")
    main = store.descriptors.main
    differing = [
        page
        for page, frame in sorted(newest.items())
        if main is not None
        and page <= pages
        and os.pread(wal, page_size, HEADER_BYTES + frame * size + FRAME_HEADER_BYTES)
        != os.pread(main, page_size, (page - 1) * page_size)
    ]
    if not differing or not undisturbed(store, state, owners):
        return []
    sentence = (
        f"The WAL holds frames of another generation, and {plural(len(differing), 'page')} of them "
        f"{'differs' if len(differing) == 1 else 'differ'} from the file: commits that nobody sees, of this store or "
        "of another one."
    )
    return [
        Finding(
            code="wal_other_generation", severity=Severity.DAMAGE, object=f"{store.path}-wal", sentence=sentence,
            facts={"pages": differing[:1000], "frames": number}, next_command=recover_command(store.path),
        )
    ]
