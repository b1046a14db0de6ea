"""`sessions restore`: a verified backup takes the store's place, and what was there stays aside.

Invariant: nothing is changed before the backup is verified, its identity fits, nobody has the store open, the WAL
beside it holds no commit that the database file lacks (or the caller said that it may go), the gap was shown, and the
caller agreed. Then `replacement` does it: old or new, whole, and the old files kept.

Not for: damaged backups (`recover`). Renaming the backup over the store was rejected: the WAL that lies there would be
replayed over it, and programs that have the old file open would go on writing into it (both measured).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import Refused
from hermes_state.shell_words import shell_word
from maintenance.backups import cron, owing, routing, serving
from maintenance.backups.gap import Gap, gap_between
from maintenance.backups.making import hearing
from maintenance.backups.staging import Staged, staged
from maintenance.backups.wal_beside import frames_not_in_file
from maintenance.dialects.native.routed import Moved
from maintenance.dialects.native.scheduled import Kept
from maintenance.dialects.native.serving import Brought
from maintenance.marks import set_mark
from maintenance.replacement.alone import require_nobody
from maintenance.replacement.replace import Mode, Replaced, replace_content
from maintenance.replacement.where import Place

if TYPE_CHECKING:
    from maintenance.gate.doors import Scanner
    from maintenance.replacement.replace import Progress

VERB = "sessions restore"


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """What a restore would do."""

    store: Path  # what gets the content
    backup: Path  # what it comes from
    verified: bool  # True: a manifest proves it; False: there is none, and the file was checked as far as it can be
    created_at: float | None  # epoch seconds UTC when it was made, None without a manifest
    staged: Staged  # what is in it
    gap: Gap  # what would be gone
    owed: owing.OwedThen  # what becomes of obligations
    gateways: Brought  # what becomes of gateway instances, turns and questions
    routing: Moved  # what becomes of chats and of who is paired
    cron: Kept  # what becomes of cron's jobs and slots
    wal_frames: int  # pages of commits in the WAL beside the store that the database file lacks

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        content = self.staged.content
        return {
            "store": str(self.store), "backup": str(self.backup), "verified_by_manifest": self.verified,
            "created_at": self.created_at, "sessions": content.sessions, "messages": content.messages,
            "dialect": content.dialect, "gap": self.gap.document(),
            "obligations_then": self.owed.document(), "gateways_then": self.gateways.document(),
            "routing_then": self.routing.document(),
            "cron_then": self.cron.document(),
            "wal_pages_kept_aside": self.wal_frames,
        }


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What was done."""

    plan: RestorePlan  # as it was agreed to
    replaced: Replaced | None  # None: the caller did not agree, or only asked

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return self.plan.document() | (self.replaced.document() if self.replaced is not None else {})


def restore(
    backup: Path | str, store: Path | str, *, passphrase: str | Callable[[], str] | None = None,
    new_store: bool = False, over_wal: bool = False, aside: Path | None = None,
    agreed: Callable[[RestorePlan], bool] = lambda _plan: True, progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None, clock: Clock = SYSTEM, profile: str | None = None,
    scanner: Scanner | None = None, step: Callable[[str], None] = lambda _done: None,
) -> Restored:
    """Replace the content of `store`, whatever state it is in, by that of `backup`.

    `backup`: made by `backup`, or any sound database file of a store, zstd or gzip packed or not; its WAL beside it is
    taken in. `new_store`: it may be another store's. `over_wal`: commits that only the WAL beside the store holds may
    go (they are kept aside). `agreed` is asked once everything is known; False changes nothing. `aside`: folder for
    the old files. Raises what `staging.staged` and `replace_content` raise, and `Refused`.
    """
    db = Path(os.path.realpath(store))
    source = Path(os.path.abspath(backup))
    say = hearing(db, progress, cancel)
    where = Place(db=db, clock=clock, profile=profile)
    from maintenance.gate.rows import require_exclusive

    require_nobody(where, require_exclusive(VERB, force=False), db, scanner)
    with staged(source, db, passphrase=passphrase, say=say) as found:
        step("staged")
        frames = frames_not_in_file(db)
        gap = gap_between(db, found.path, clock)
        plan = RestorePlan(
            store=db, backup=source, verified=found.manifest is not None,
            created_at=found.manifest.created_at if found.manifest else None, staged=found, gap=gap, wal_frames=frames,
            owed=owing.foresee(db, found.path, hidden=bool(frames), clock=clock),
            gateways=serving.foresee(db, found.path, hidden=bool(frames), clock=clock),
            routing=routing.foresee(db, found.path, hidden=bool(frames), clock=clock),
            cron=cron.foresee(db, found.path, hidden=bool(frames), clock=clock),
        )
        _require_same_store(plan, new_store=new_store)
        if frames and not over_wal:
            raise _wal_refusal(plan)
        if not agreed(plan):
            return Restored(plan=plan, replaced=None)
        marks = found.manifest if found.content.dialect != "native" else None
        if marks is not None:
            set_mark(db, marks.pinned, "pinned", True)  # first: what is pinned is never there without its pin
        mode = found.manifest.journal_mode if found.manifest is not None and not gap.readable else None
        replaced = replace_content(
            where, VERB, found.path, aside=aside, private=True, progress=say, scanner=scanner, step=step,
            journal_mode=cast("Mode", mode) if mode in ("wal", "delete") else None,
        )
        if marks is not None:
            set_mark(db, marks.archived, "archived", True)
    return Restored(plan=plan, replaced=replaced)


def _require_same_store(plan: RestorePlan, *, new_store: bool) -> None:
    gap, content = plan.gap, plan.staged.content
    if new_store or not gap.readable:
        return
    problem = ""
    if gap.is_native is not (content.dialect == "native"):
        names = {True: "a native store", False: "a file of hermes-agent"}
        problem = f"{plan.store} is {names[bool(gap.is_native)]}, and the backup is {names[not gap.is_native]}"
    elif gap.store_id != content.store_id:
        problem = f"{plan.store} is store {gap.store_id}, and the backup is of store {content.store_id}"
    elif gap.store_id is None and gap.sessions and content.sessions and not gap.sessions_shared:
        problem = f"{plan.store} and the backup have no session in common"
    if problem:
        raise Refused(
            f"{plan.backup} is not a backup of this store: {problem}. Nothing was changed.",
            hint="Name the store that it belongs to with --db, or add --new-store if this one is to become it.",
            path=plan.store, backup=plan.backup,
        )


def _wal_refusal(plan: RestorePlan) -> Refused:
    db = plan.store
    return Refused(
        f"The WAL beside {db} holds {plan.wal_frames} pages of commits that are not in the database file. "
        f"{plan.backup} does not have them, and a restore would take them out of use. Nothing was changed.",
        hint=f"Keep them first: `hermes-state sessions backup --db {shell_word(db)}`, or, when the store is damaged, "
        f"`hermes-state sessions recover --source {shell_word(db)} --output {shell_word(f'{db}.recovered')}`. "
        "Then restore with --over-wal; the WAL is kept aside either way.",
        path=db, wal_frames=plan.wal_frames,
    )
