"""Runs one scan as the user, and in the namespace, it was started in, and prints what a test needs as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(store: str, proc_root: str, lease: str) -> None:
    from types import SimpleNamespace

    from lockowners import holders, verdict

    descriptors, connection = None, None
    if lease == "lease":
        import os

        import apsw

        connection = apsw.Connection(store)
        connection.execute("SELECT * FROM t").fetchall()
        links = {os.path.realpath(f"/proc/self/fd/{number}"): int(number) for number in os.listdir("/proc/self/fd")}
        descriptors = SimpleNamespace(main=links[store], wal=links.get(store + "-wal"), shm=links.get(store + "-shm"))
    scan = holders(store, proc_root=Path(proc_root), descriptors=descriptors, ask_lease=descriptors is not None)
    in_place = verdict(scan, exclusive_obtained=True, replaces_inode=False)
    replacing = verdict(scan, exclusive_obtained=True, replaces_inode=True)
    print(
        json.dumps(
            {
                "holders": [holder.process.pid for holder in scan.holders],
                "containers": [holder.process.container for holder in scan.holders],
                "users": [holder.process.user for holder in scan.holders],
                "hidden": {row.user: row.count for row in scan.hidden},
                "excluded": scan.excluded_count,
                "complete": scan.complete,
                "note": scan.namespace_note,
                "sole": scan.sole_opener,
                "in_place": in_place.allowed,
                "reasons": in_place.reasons,
                "replacing": replacing.allowed,
                "not_visible": in_place.not_visible,
                "seconds": scan.elapsed_seconds,
            }
        )
    )
    if connection is not None:
        connection.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(*sys.argv[1:])
