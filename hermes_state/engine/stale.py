"""Nobody goes on writing while another process still has a lost generation of the store open.

Invariant: an open for writing is refused while another process holds an unlinked or replaced file of the store: its
next checkpoint, at the latest at its close, would overwrite what we commit (measured), and no lock shows it. So it
looks at every visible process once (5 to 50 ms), always for a foreign file and under the exclusive lock. For a native
store it looks only when -wal or -shm is missing, so that this open makes a new generation: every other holder of a
native store is this engine, and a stale connection of it checkpoints nothing, neither at its next use (the generation
guard stops it) nor at its close (SQLite's checkpoint at close is off); and while it is the only one beside us, its lock
on the database file shows it (`refuse_other_sidecars`). A program that writes native files with SQLite's defaults is
outside that reasoning, and outside what a native store is for.

Not for: readers, which lose nothing. The kernel's lock table alone was rejected: a process whose locks were cancelled
is not in it and still writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine.busy import BusyWait
from hermes_state.engine.descriptors import identity_of, sidecars
from hermes_state.engine.files import unseen_descriptors
from hermes_state.engine.generation import user_sentence
from hermes_state.engine.own_lock import SHARED_FIRST, WAL_ALIVE_BYTE, others_lock
from hermes_state.errors import GenerationLost
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine.link import Link


def has_sidecars(path: Path) -> bool:
    """True when -wal and -shm are both there, so that an open makes no new generation."""
    _main, wal, shm = sidecars(path)
    return identity_of(wal) is not None and identity_of(shm) is not None


def refuse_stale_holders(path: Path) -> None:
    """Raise `GenerationLost` naming the processes that hold a lost generation of the store at `path`."""
    from lockowners import holders

    try:
        stale = tuple(holder for holder in holders(path).holders if holder.stale)
    except OSError as error:
        raise unseen_descriptors(path, error) from error
    if not stale:
        return
    pids = ", ".join(f"PID {holder.process.pid}" for holder in stale)
    detail = f"{pids} still has replaced or unlinked files of {path} open."
    raise GenerationLost(
        f"{user_sentence()} {detail}",
        hint=f"Stop {pids}, then repeat; `hermes-state doctor --db {shell_word(path)}` shows when none is left.",
        path=path, lost=("wal",), capture=None, committed=False,
        user_sentence=user_sentence(), operator_detail=detail, holders=stale,
    )


def stale_here(path: Path, lost: tuple[str, ...]) -> GenerationLost:
    """The error for an open while a connection of this process itself still has a lost generation open."""
    detail = f"This process itself still has replaced or unlinked files of {path} open."
    return GenerationLost(
        f"{user_sentence()} {detail}",
        hint="Use or close the older connection first: it captures what only it still sees.",
        path=path, lost=lost, capture=None, committed=False, user_sentence=user_sentence(), operator_detail=detail,
    )


def lost_to_reader(path: Path, lost: tuple[str, ...]) -> GenerationLost:
    """The error for a read through a connection whose files were replaced, unlinked or overwritten by an older copy."""
    names = {"main": path.name, "wal": f"{path.name}-wal", "shm": f"{path.name}-shm"}
    which = " and ".join(names[item] for item in lost)
    detail = f"{which} of {path} was replaced, unlinked or overwritten under an open reader; nothing was read."
    return GenerationLost(
        f"{user_sentence()} {detail}",
        hint=f"Stop all Hermes processes of this profile, then run `hermes-state doctor --db {shell_word(path)}`.",
        path=path, lost=lost, capture=None, committed=False, user_sentence=user_sentence(), operator_detail=detail,
    )


def other_store_here(path: Path) -> GenerationLost:
    """The error for a first write that finds another store in the place of the one that was opened."""
    detail = f"{path} holds another store than the one that was opened here; nothing was written to it."
    return GenerationLost(
        f"{user_sentence()} {detail}",
        hint=f"Stop all Hermes processes of this profile, then run `hermes-state doctor --db {shell_word(path)}`.",
        path=path, lost=("main",), capture=None, committed=False, user_sentence=user_sentence(), operator_detail=detail,
    )


def refuse_other_sidecars(store: Link, wait: BusyWait) -> None:
    """Raise when another process is at work on the same database file with another -wal and -shm than ours.

    Such as through a second name of the file (hard link, a bind mount of the file alone), or unlinked sidecars. A
    process that is just opening looks the same for a moment, so this is asked again for up to a second.
    """
    main, shm = store.descriptors.main, store.descriptors.shm
    if store.journal_mode != "wal" or main is None or shm is None:
        return
    wait.arm(1.0)
    tries = 0
    while others_lock(main, SHARED_FIRST) and not others_lock(shm, WAL_ALIVE_BYTE):
        if wait.nap(tries):
            tries += 1
            continue
        path = store.path
        store.close()
        detail = (
            f"Another process has the same database file as {path} open, but not its -wal and -shm: it uses another "
            "name of the file, or unlinked sidecars."
        )
        raise GenerationLost(
            f"{user_sentence()} {detail}",
            hint=f"Run `hermes-state locks --db {shell_word(path)}` and stop what it names, then repeat.",
            path=path, lost=("wal",), capture=None, committed=False,
            user_sentence=user_sentence(), operator_detail=detail,
        )
