"""A recovered file of hermes-agent as a native store, for `--native`.

Invariant: what adopting does to a sound file, with the same comparison of every row; the recovered file is only read.
Not for: adopting a store that anybody uses (`maintenance.interop.adopt.flow`). Recovering straight into native tables
was rejected: the comparison needs the foreign rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_state.clock import Clock
from hermes_state.engine import open_exclusive, open_read
from hermes_state.engine.create import fill_new_store
from hermes_state.engine.files import new_private_file
from hermes_state.engine.whole_file import drop_sidecars
from maintenance.interop.adopt.build import Builder
from maintenance.interop.adopt.places import remove
from maintenance.interop.adopt.source import read_source
from maintenance.interop.adopt.verify import verify_adopted
from maintenance.marks import Marks


def adopt_recovered(recovered: Path, target: Path, marks: Marks, clock: Clock) -> tuple[Path, dict[str, Any]]:
    """Make the new private native store `target` of a recovered file; its path, and what was compared.

    `marks`: those of the damaged store, which lie beside it and not beside the recovered file.
    """
    remove(target)
    new_private_file(target)
    with open_read(recovered, clock=clock) as reader, reader.snapshot():
        source = read_source(reader)
        fill_new_store(target, clock=clock, page_size=source.page_size)
        with open_exclusive(target, clock=clock) as store:
            built = Builder(reader, source, store, marks, clock).run()
            store.copy_back()
        verified = verify_adopted(reader, source, target)
    drop_sidecars(target)
    return target, {**built.document(), **verified.document()}
