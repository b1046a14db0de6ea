"""One of many processes that append to one store until they are done or killed.

Every append carries its own idempotency key, and its id is written to the process's own file of acknowledgements before
the next one begins. A process that is started again goes on behind its last acknowledgement, so the append whose
acknowledgement the kill swallowed is repeated under the same key.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes_state import open_store


def main(db: str, acknowledged: str, name: str, count: int, shared: str) -> None:
    known = Path(acknowledged)
    done = len(known.read_bytes().splitlines()) if known.exists() else 0
    out = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open_store(path=db) as store:
        store.sessions.ensure(name, source="cli")
        print("started", flush=True)
        for number in range(done, count):
            # Every fourth message goes to the session that all processes share.
            session = shared if number % 4 == 0 else name
            key = f"{name}-{number:05}"
            row = store.messages.append(session, role="user", content=f"{key} " + "x" * (number % 300), client_key=key)
            os.write(out, f"{row} {key}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
