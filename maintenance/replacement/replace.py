"""Replacing everything that is in a store by the content of another file, and keeping what was there.

Invariant, in this order: nobody else has the store open; its files are copied aside as they are; SQLite's exclusive
lock; a second scan and the verdict; the copies are compared with the files byte for byte; a note says where either is;
one transaction puts the new content in place on the same inode; the file is compared with the new one page by page;
the note goes. A kill at any point leaves the old content or the new one, whole, and the old files aside from the moment
that anything could change.

A native store gets another incarnation and its fences never fall: that is written into a private copy of the new file
beforehand, so it arrives with the content.

Not for: what the new file holds. Whoever calls has verified it. Renaming it over the old one was rejected: programs
that have the old file open would go on writing into it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_state.engine.connection import page_verdict
from hermes_state.engine.filesystem import check_wal_allowed
from hermes_state.engine.replace import Replacement, open_replacement, replaceable_file
from hermes_state.engine.whole_file import drop_sidecars
from hermes_state.errors import Corrupt, InvalidInput, NotFound, Refused
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.owed import Carried
from maintenance.dialects.native.routed import Moved
from maintenance.dialects.native.scheduled import Kept
from maintenance.dialects.native.serving import Brought
from maintenance.gate.rows import require_exclusive
from maintenance.replacement import aside as kept_aside
from maintenance.replacement.alone import require_alone, require_nobody
from maintenance.replacement.child import run
from maintenance.replacement.marker import Note, Unfinished, remove_note, unfinished, write_note
from maintenance.replacement.prepare import Prepared, old_facts, prepare, remove_working
from maintenance.space.disk import Need, require_room, rooms

if TYPE_CHECKING:
    from maintenance.gate.doors import Scanner
    from maintenance.replacement.where import Where

Mode = Literal["wal", "delete"]
# What is being done, and how many bytes of how many; the number is None when it is not known.
Progress = Callable[[str, int, int | None], None]
DEADLINE_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """What was done."""

    path: Path  # the store
    aside: Path | None  # folder with the files as they were; None when a killed run had done the work already
    aside_bytes: int  # how much is kept there
    bytes: int  # size of the store now
    new_sha256: str  # of the file that the content came from
    journal_mode: Mode  # of the store now
    incarnation: str | None  # the new one of a native store
    fences: int  # leases whose fence was carried over or raised
    obligations: Carried  # what became of what the new content and the old one owe
    gateways: Brought  # what became of instances, turns and questions of both
    routing: Moved  # what became of chats of both, and of who is paired
    cron: Kept  # what became of jobs and slots of both
    earlier: Unfinished | None  # a replacement that had not come to its end, and is settled now
    seconds: float  # in all
    locked_seconds: float  # of them under the exclusive lock

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "aside": str(self.aside) if self.aside else None, "aside_bytes": self.aside_bytes, "bytes": self.bytes,
            "journal_mode": self.journal_mode, "incarnation": self.incarnation, "fences_kept": self.fences,
            "obligations": self.obligations.document(),
            "gateways": self.gateways.document(), "routing": self.routing.document(),
            "cron": self.cron.document(),
            "settled_earlier_run": self.earlier is not None, "seconds": round(self.seconds, 3),
            "locked_seconds": round(self.locked_seconds, 3),
        }


def replace_content(
    ctx: Where,
    verb: str,
    new: Path,
    *,
    aside: Path | None = None,
    private: bool = False,
    own_rows: Callable[[kept_aside.Aside], bool] = lambda _kept: False,
    journal_mode: Mode | None = None,
    progress: Progress | None = None,
    scanner: Scanner | None = None,
    step: Callable[[str], None] = lambda _done: None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Replaced:
    """Put the content of the database file `new` into the store `ctx.db`, whatever state that is in, or is missing.

    `verb`: a row of the gate with the exclusive lock, such as "sessions restore". `aside`: the folder for the old
    files, which must not exist (default: a dated one beside the store). `private`: `new` is a working file of the
    caller that nobody has open and that may be changed; otherwise it is copied first. `journal_mode`: None keeps the
    store's own where its header can be read. `own_rows(aside)`: whether `new` was made of just these files: then the
    obligations in it are left as they are; otherwise what may have been sent since is not sent again. What `progress`
    raises before the content is replaced undoes all. `scanner` instead of looking at all processes; `step` hears the
    name of each step that is done.

    Raises `StoreHeld`, `GenerationLost`, `LockTimeout`, `InsufficientSpace`, `Corrupt` (the new file, or what stands
    there afterwards), `Refused`, `InvalidInput`, `ReadOnlyStore`, `IOFailure`, `DiskFull`.
    """
    row = require_exclusive(verb, force=False)
    started = ctx.clock.monotonic()
    db = replaceable_file(ctx.db)
    say = progress or (lambda _what, _done, _total: None)
    require_sound(new)
    require_nobody(ctx, row, db, scanner)
    _require_room(db, new, aside, private=private)
    sha256 = _sha256(new, say)
    earlier = unfinished(db, boot_id=ctx.clock.domain().boot_id)
    if earlier is not None and earlier.note is not None and earlier.note.new_sha256 == sha256:
        done = _finish(ctx, row.verb, db, earlier, scanner, started, deadline_seconds)
        if done is not None:
            return done
    _forget_killed(db, earlier)
    kept = kept_aside.copy_aside(
        db, aside, ctx.clock, lambda bytes_done: say("keeping the old files", bytes_done, kept_aside.family_bytes(db))
    )
    step("aside copied")
    prepared: Prepared | None = None
    locked_store: Replacement | None = None
    published = False
    try:
        with open_replacement(
            db, wal_page_size=kept.wal_page_size(), deadline_seconds=deadline_seconds, clock=ctx.clock
        ) as store:
            locked_store, locked = store, ctx.clock.monotonic()
            step("locked")
            require_alone(ctx, row, store, scanner)
            kept = kept_aside.verify_aside(db, kept, lambda done: say("comparing the copies", done, kept.bytes))
            step("aside verified")
            kept = kept_aside.publish(db, kept, verb, ctx.clock)
            published = True
            note = _note(ctx, verb, kept, new, sha256)
            write_note(db, note)
            step("noted")
            mode = journal_mode or _mode_of(db, kept)
            facts = old_facts(store, own_rows=own_rows(kept), hidden=kept_aside.has_hidden_commits(db, kept))
            prepared = prepare(
                db, new, facts, clock=ctx.clock, private=private, page_size=store.page_size()
            )
            note = replace(note, state="replacing", working=None if private else str(prepared.path))
            write_note(db, note)
            step("prepared")
            store.replace(
                prepared.path, journal_mode=mode,
                progress=lambda done, total: say("putting the new content in place", done, total),
            )
            step("content replaced")
            store.checkpoint(keep_wal=_is_replicated(db))
            step("checkpointed")
            write_note(db, replace(note, state="replaced"))
            _require_same(db, prepared.path, kept.folder, say)
            step("verified")
            if not private:
                remove_working(prepared.path)
            remove_note(db)
        step("note removed")
    except BaseException:
        if locked_store is None or not locked_store.replaced:
            # Nothing happened to the store: the copies of it are of no use, and the note would say nothing.
            if published:
                remove_note(db)
            kept_aside.discard(kept.working)
        raise
    finally:
        if prepared is not None and not private:
            remove_working(prepared.path)
    return Replaced(
        path=db, aside=kept.folder, aside_bytes=kept.bytes, bytes=db.stat().st_size, new_sha256=sha256,
        journal_mode=mode, incarnation=prepared.incarnation, fences=prepared.fences,
        obligations=prepared.obligations, gateways=prepared.gateways, routing=prepared.routing, cron=prepared.cron,
        earlier=earlier,
        seconds=ctx.clock.monotonic() - started, locked_seconds=ctx.clock.monotonic() - locked,
    )


def require_sound(new: Path) -> None:
    """Raise unless `new` is a database file whose pages are sound and whose WAL holds nothing."""
    if not new.is_file():
        raise NotFound(f"There is no file {new}.", hint="Name an existing file.", path=new)
    wal = Path(f"{new}-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise InvalidInput(
            f"{new} has a WAL beside it ({wal.stat().st_size} bytes), so the file alone may not be all of it.",
            hint="Make a backup of it with `hermes-state sessions backup`, and use that.", path=new,
        )
    said = page_verdict(new)
    drop_sidecars(new)  # empty ones, which the check has left
    if said != "ok":
        raise Corrupt(
            f"{new} is damaged: {said}. The store was not changed.",
            hint=f"Run `hermes-state doctor --db {shell_word(new)}`.", path=new, search_index=False,
        )


# --- parts -----------------------------------------------------------------------------------------------------------


def _finish(
    ctx: Where, verb: str, db: Path, earlier: Unfinished, scanner: Scanner | None, started: float, deadline: float
) -> Replaced | None:
    """The result when the killed run had put the same content in place already, else None."""
    note = earlier.note
    if note is None or note.state == "kept" or note.working is None or not Path(note.working).is_file():
        return None
    if not db.exists() or not _mode_in(db):
        return None  # not a database: nothing was put in place
    with open_replacement(db, deadline_seconds=deadline, clock=ctx.clock) as store:
        locked = ctx.clock.monotonic()
        require_alone(ctx, require_exclusive(verb, force=False), store, scanner)
        store.checkpoint()
        if not run("same_content", db, one=str(db), other=note.working)["same"]:
            return None
        remove_note(db)
    remove_working(Path(note.working))
    return Replaced(
        path=db, aside=Path(note.old), aside_bytes=0, bytes=db.stat().st_size, new_sha256=note.new_sha256,
        journal_mode=_mode_in(db) or "delete", incarnation=None, fences=0, obligations=Carried(),
        gateways=Brought(), routing=Moved(), cron=Kept(), earlier=earlier,
        seconds=ctx.clock.monotonic() - started, locked_seconds=ctx.clock.monotonic() - locked,
    )


def _forget_killed(db: Path, earlier: Unfinished | None) -> None:
    """Remove what killed runs left that holds nothing of its own; folders with old files of a changed store stay."""
    for folder in kept_aside.killed_copies(db):
        kept_aside.discard(folder)
    if earlier is None or earlier.note is None:
        return
    if earlier.note.working is not None:
        remove_working(Path(earlier.note.working))
    if earlier.note.state == "kept" and earlier.old_there:
        # The store is as it was then or newer, so the copy has nothing that it lacks.
        remove_note(db)
        kept_aside.discard(Path(earlier.note.old))


def _note(ctx: Where, verb: str, kept: kept_aside.Aside, new: Path, sha256: str) -> Note:
    from hermes_state.owners.identity import PROC, start_ticks

    main = kept.main
    return Note(
        verb=verb, state="kept", started_at=ctx.clock.now(), pid=os.getpid(),
        start_ticks=start_ticks(PROC, "self") or 0, boot_id=ctx.clock.domain().boot_id, old=str(kept.folder),
        old_sha256=main["sha256"] if main else None, new=str(new), new_sha256=sha256, working=None,
    )


def _require_room(db: Path, new: Path, aside: Path | None, *, private: bool) -> None:
    size, old = new.stat().st_size, kept_aside.family_bytes(db)
    folder = (aside or db).parent
    needs = [
        Need(directory=folder if folder.is_dir() else db.parent, bytes=old, what="the old files kept aside"),
        Need(directory=db.parent, bytes=max(size, old), what="the store's log"),
        Need(directory=db.parent, bytes=max(size - old, 0), what="the store itself"),
    ]
    if not private:
        needs.append(Need(directory=db.parent, bytes=size, what="a private copy of the new file"))
    require_room(rooms(needs), what=f"Replacing the content of {db}")


def _mode_of(db: Path, kept: kept_aside.Aside) -> Mode:
    """The journal mode of the old file where its header can be read; else WAL, where the file system allows that."""
    main = kept.main
    said = _mode_said(bytes.fromhex(main["head"])) if main else None
    if said is not None:
        return said
    try:
        check_wal_allowed(db.parent)
    except Refused:
        return "delete"
    return "wal"


def _mode_in(file: Path) -> Mode | None:
    # Private, or about to be looked at only: a live store is never read here while this process has it open.
    with open(file, "rb") as reading:
        return _mode_said(reading.read(100))


def _mode_said(head: bytes) -> Mode | None:
    if not head.startswith(b"SQLite format 3\x00") or len(head) < 20:
        return None
    return "wal" if head[18:20] == b"\x02\x02" else "delete"


def _is_replicated(db: Path) -> bool:
    return db.with_name(f".{db.name}-litestream").is_dir()


def _require_same(db: Path, new: Path, old: Path, say: Progress) -> None:
    total = new.stat().st_size
    found = run(
        "same_content", db, lambda done: say("comparing the store with the new file", done, total),
        one=str(db), other=str(new),
    )
    if not found["same"]:
        raise Corrupt(
            f"{db} does not hold what was put there: it differs from the new file at byte {found['offset']}.",
            hint=f"Check the disk. The files as they were are in {old}.", path=db, search_index=False,
        )


def _sha256(new: Path, say: Progress) -> str:
    digest, done, total = hashlib.sha256(), 0, new.stat().st_size
    with open(new, "rb", buffering=0) as reading:
        while chunk := reading.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            if done % (64 << 20) == 0:
                say("reading the new file", done, total)
    return digest.hexdigest()
