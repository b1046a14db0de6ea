"""The private folder of one recovery: the raw copy, the file being filled, and which steps are done.

Invariant: a run owns its folder by a file lock that the kernel takes away when the process dies; `work.json` is
replaced as a whole after each step; a run that finds a folder of the same source, unchanged since, goes on with it. A
step that was begun twice and never ended is said to be so, and its caller leaves it out: what killed the process twice
would kill it again.

Not for: the rows themselves; they and their progress are in one database, so that they cannot disagree. Rejected: a
folder with a random name for each run; nobody could find what a killed run left.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hermes_state.errors import LockTimeout, RecoveryStopped
from hermes_state.file_lock import CLOSE_ON_EXEC, NO_LINK, try_lock_alone
from maintenance.recovery.copying import is_unchanged
from maintenance.recovery.records import FileFacts, Source

ENDING = ".recovering"
STATE = "work.json"
LOCK = "lock"
VERSION = 2
# The step that says under which names the finished files go; kept before the first of them has its name.
NAMED = "named"
MOST_BEGINS = 2


class Work:
    """The folder while a run has it."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder = folder
        self.resumed = False
        self._state: dict[str, Any] = {"version": VERSION, "source": str(source.given), "begun": {}, "done": {}}

    @property
    def copy(self) -> Path:
        """The raw copy of the database; it is not there when the source is a WAL alone."""
        return self.folder / "source.db"

    @property
    def wal(self) -> Path:
        """The raw copy of its WAL; it is not there when there was none."""
        return self.folder / "source.db-wal"

    @property
    def filled(self) -> Path:
        """The file that is being filled."""
        return self.folder / "filled.db"

    def result(self, step: str) -> Any:
        """What a finished step left behind, None when it is not finished."""
        return self._state["done"].get(step)

    def begin(self, step: str) -> bool:
        """Note that a step begins; False when it was begun before as often as it may be and never ended."""
        begun = self._state["begun"]
        if begun.get(step, 0) >= MOST_BEGINS:
            return False
        begun[step] = begun.get(step, 0) + 1
        self._save()
        return True

    def let_go(self, step: str) -> None:
        """A step ended without its work being done, as by a cancel: it was not what killed a process."""
        self._state["begun"].pop(step, None)
        self._save()

    def done(self, step: str, result: Any = True) -> None:
        """A step is finished; `result` is JSON."""
        self._state["done"][step] = result
        self._state["begun"].pop(step, None)
        self._save()

    def files(self) -> tuple[FileFacts, ...]:
        """The facts of the copied files; empty when nothing is copied yet."""
        return tuple(
            FileFacts(
                path=Path(said["path"]), part=said["part"], size_bytes=said["bytes"], mtime_ns=said["mtime_ns"],
                inode=said["inode"], sha256=said["sha256"],
            )
            for said in self.result("copied") or ()
        )

    def _load(self, source: Source) -> None:
        try:
            found = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return  # nothing yet, or a folder of which only the name was made
        if found.get("version") != VERSION or found.get("source") != str(source.given):
            return
        self._state = found
        self.resumed = is_unchanged(source, self.files())

    def _save(self) -> None:
        staged = self.folder / f".{STATE}"
        with staged.open("w", encoding="utf-8") as out:
            json.dump(self._state, out)
            out.flush()
            os.fsync(out.fileno())
        staged.replace(self.folder / STATE)

    def forget(self) -> None:
        """Remove everything but the lock: another source, or one that changed."""
        for path in self.folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._state["begun"], self._state["done"] = {}, {}
        self.resumed = False


@contextmanager
def working(source: Source, output: Path) -> Iterator[Work]:
    """The work folder of `output`, alone. Raises `LockTimeout` while another run has it."""
    folder = work_folder(output)
    folder.mkdir(mode=0o700, exist_ok=True)
    with _alone(folder, output):
        work = Work(folder, source)
        work._load(source)
        if not work.resumed:
            work.forget()
        yield work


def work_folder(output: Path) -> Path:
    """Where the work for `output` lies."""
    return output.with_name(output.name + ENDING)


def named_by_a_killed_run(source: Source, output: Path) -> frozenset[Path]:
    """Names that a run of the same recovery gave, or was about to give, to its files when it was killed."""
    try:
        found = json.loads((work_folder(output) / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    if found.get("version") != VERSION or found.get("source") != str(source.given):
        return frozenset()
    return frozenset(Path(name) for name in (found["done"].get(NAMED) or {}).values())


def finish(work: Work) -> None:
    """Remove the folder; its result has its own name by now."""
    shutil.rmtree(work.folder)


def stopped(source: Path, folder: Path) -> RecoveryStopped:
    """What a cancelled run raises."""
    return RecoveryStopped(
        f"The recovery of {source} was stopped. What was done so far is kept in {folder}.",
        hint="Run the same command again: it goes on from there. To give up, remove that folder.",
        path=source, work_folder=folder,
    )


@contextmanager
def _alone(folder: Path, output: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC | NO_LINK, 0o600)
    try:
        if not try_lock_alone(descriptor):
            raise LockTimeout(
                f"Another recovery is making {output}.",
                hint="Wait until it ends, or name another file with --output.", path=output, holders=(),
                waited_seconds=0.0,
            )
        yield
    finally:
        os.close(descriptor)
