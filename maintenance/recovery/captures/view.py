"""The store as the process that lost its WAL saw it: a private copy made of a capture's files.

Invariant: the capture is only read; the copy lies in a folder of its own that goes afterwards; a copy whose pages are
not sound is refused. Where the main file was kept apart from the WAL, the store as it was before the WAL is there
too, so that what was in it already is not taken for something that only the capture holds.

Not for: captures without a main file or copy. Laying their WAL over the live store's file was rejected: others have
written to that file since, and pages of two histories give a store that nobody ever had.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine.private import open_private
from hermes_state.errors import CaptureRefused, InsufficientSpace, StateError
from hermes_state.shell_words import shell_word
from maintenance.recovery.captures.manifest import Capture
from maintenance.space.verify import first_line

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.dialects.native.owed import Ask

_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class View:
    """Private copies of one capture."""

    # the capture
    capture: Capture
    # the store with everything in the captured WAL
    whole: Path
    # the main file alone, without the WAL; None when it was not kept apart
    before: Path | None

    @contextmanager
    def opened(self, has: Callable[[Ask], bool]) -> Iterator[tuple[Reader, Reader | None] | None]:
        """Both copies, read, the second None where it lacks the tables that `has` asks for; None: neither has them."""
        with ExitStack() as opened:
            whole = opened.enter_context(open_private(self.whole, search_modules=False))
            if not has(whole.rows):
                yield None
                return
            before = None
            if self.before is not None:
                before = opened.enter_context(open_private(self.before, search_modules=False))
            yield whole, before if before is not None and has(before.rows) else None


@contextmanager
def view_of(capture: Capture, folder: Path) -> Iterator[View]:
    """Private copies below `folder`, gone at the end. Raises `CaptureRefused`, `InsufficientSpace`."""
    source = capture.main or capture.copy
    if source is None:
        raise CaptureRefused(
            f"The capture {capture.folder} holds a WAL without the store that it belongs to.",
            hint=f"Run `hermes-state sessions recover --source {shell_word(capture.folder)}`: it reads the rows in "
            "the WAL.",
            path=capture.folder, kind="header_only",
        )
    wal = capture.wal if capture.main is not None else None
    needed = 2 * source.stat().st_size + (0 if wal is None else 2 * wal.stat().st_size) + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InsufficientSpace(
            f"Reading the capture {capture.folder} needs {needed} bytes in {folder}, and {free} are free.",
            hint="Free some space there.", path=folder, needed_bytes=needed, free_bytes=free,
        )
    with tempfile.TemporaryDirectory(prefix=".capture-", dir=folder) as private:
        whole = Path(private) / "whole.db"
        shutil.copyfile(source, whole)
        if wal is not None:
            shutil.copyfile(wal, f"{whole}-wal")
        before = None
        if capture.main is not None:
            before = Path(private) / "before.db"
            shutil.copyfile(source, before)
        for path in (whole, before):
            if path is not None:
                _require_sound(capture, path)
        yield View(capture=capture, whole=whole, before=before)


def _require_sound(capture: Capture, path: Path) -> None:
    """Open a copy, which brings its WAL in, and check its pages."""
    try:
        with open_private(path, search_modules=False) as copy:
            said = [str(text) for (text,) in copy.rows("PRAGMA quick_check(3)")]
    except StateError as error:
        if error.exit_code != 65:
            raise  # the disk, not the capture
        said = [error.message]
    if said != ["ok"]:
        raise CaptureRefused(
            f"The store in the capture {capture.folder} is damaged: {first_line(said)}.",
            hint=f"Run `hermes-state sessions recover --source {shell_word(capture.folder)}`, then import what it "
            "gives.",
            path=capture.folder, kind="base",
        )
