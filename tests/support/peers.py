"""Real hermes-agent releases, each in an environment of its own, driven through short-lived processes.

Invariant: nothing of hermes-agent is ever imported into the calling process; a peer is a path to a Python and a JSON
request to `peer_program.py`. Where a peer is not installed it is absent (`find` returns None), never imitated.

Not for: our own processes (see the `child` fixture). Installing the releases into the test environment was rejected:
six of them cannot live in one environment, and each must use the sqlite3 library that it ships against.

The variable HERMES_PEERS names a directory that holds `<version>/bin/python`; `tests/campaigns/install_peers.py`
creates it from the package index.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY_VARIABLE = "HERMES_PEERS"
VERSIONS = ("0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0")
PROGRAM = Path(__file__).with_name("peer_program.py")


class PeerFailed(Exception):
    """A real release refused or crashed; the text is its own last words."""


@dataclass(frozen=True, kw_only=True)
class IndexCheck:
    """What a release's own sqlite3 library says about a file."""

    # Library version that judged.
    sqlite: str
    # Check name (pages, foreign keys, messages_fts, messages_fts_trigram) to "ok", "absent" or the error text.
    verdicts: dict[str, str]
    # Number of triggers of the search indexes that the file has.
    triggers: int

    @property
    def problems(self) -> dict[str, str]:
        """Every verdict that is neither ok nor absent."""
        return {name: text for name, text in self.verdicts.items() if text not in ("ok", "absent")}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Texts of a file to search for; None where the file has none of the kind."""

    # (message id, a word of at least six letters).
    word: tuple[int, str] | None
    # (message id, up to four CJK characters).
    cjk: tuple[int, str] | None
    # (message id, the inner part of a word).
    piece: tuple[int, str] | None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Ids of a file, read by a release's own library."""

    # (id, source, started_at, ended_at) of each session.
    sessions: tuple[tuple[Any, ...], ...]
    # (id, session id, True when the content has a NUL character) of each message.
    messages: tuple[tuple[Any, ...], ...]
    # Number in `schema_version`.
    schema: int


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One installed release."""

    # Release number.
    version: str
    # Its interpreter.
    python: Path

    def command(self, do: str, **request: Any) -> list[str]:
        """The command line of one request, for callers that start it themselves (under strace, in the background)."""
        return [str(self.python), str(PROGRAM), json.dumps({"do": do, **request})]

    def environment(self, home: Path) -> dict[str, str]:
        """Variables under which the release sees only `home`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES", "PYTHON"))}
        return {**kept, "HERMES_HOME": str(home), "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}

    def ask(self, do: str, *, timeout: float = 120.0, **request: Any) -> dict[str, Any]:
        """One request, one answer."""
        db = Path(request["db"])
        done = subprocess.run(
            self.command(do, **{**request, "db": str(db)}),
            env=self.environment(db.parent),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            tail = " | ".join(done.stderr.strip().splitlines()[-3:])
            raise PeerFailed(f"hermes-agent {self.version}, {do}: {tail}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def open_and_append(
        self,
        db: Path,
        *,
        session: str,
        texts: Sequence[str | list[dict[str, str]]],
        source: str = "cli",
        end: bool = False,
    ) -> list[int]:
        """Open with the release's SessionDB, add a session with these messages, close; the new message ids.

        A text that is a list is structured content, which the release stores behind a NUL marker.
        """
        ids: list[int] = self.ask("append", db=db, session=session, texts=list(texts), source=source, end=end)["ids"]
        return ids

    def search(self, db: Path, *queries: str, limit: int = 500) -> dict[str, list[int]]:
        """Message ids that the release's own search returns, by query."""
        found: dict[str, list[int]] = self.ask("search", db=db, queries=list(queries), limit=limit)["found"]
        return found

    def substring(self, db: Path, text: str) -> list[int]:
        """Message ids whose text the trigram index finds `text` in."""
        ids: list[int] = self.ask("substring", db=db, text=text)["ids"]
        return ids

    def index_check(self, db: Path) -> IndexCheck:
        """Pages, foreign keys and both search indexes by the release's library."""
        answer = self.ask("check", db=db)
        return IndexCheck(sqlite=answer["sqlite"], verdicts=answer["verdicts"], triggers=answer["triggers"])

    def sample(self, db: Path) -> Sample:
        """Texts in the file to search for later."""
        picked = self.ask("sample", db=db)["picked"]
        return Sample(**{kind: None if value is None else (value[0], value[1]) for kind, value in picked.items()})

    def rows(self, db: Path) -> Rows:
        """Every session and message id."""
        answer = self.ask("rows", db=db)
        return Rows(
            sessions=tuple(map(tuple, answer["sessions"])),
            messages=tuple(map(tuple, answer["messages"])),
            schema=answer["schema"],
        )

    def contents(self, db: Path) -> dict[str, str]:
        """A hash of all messages of each session."""
        hashes: dict[str, str] = self.ask("contents", db=db)["hashes"]
        return hashes

    def timed(self, db: Path, call: str, **arguments: Any) -> dict[str, Any]:
        """Wall seconds of `optimize` or `prune` inside the release's process."""
        return self.ask("timed", db=db, call=call, arguments=arguments, timeout=900.0)

    def cli(self, *arguments: str, home: Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """The release's own command line, as its users run it."""
        return subprocess.run(
            [str(self.python.with_name("hermes")), *arguments],
            env=self.environment(home),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )


def find(version: str) -> Peer | None:
    """The installed release, or None when HERMES_PEERS does not hold it."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return None
    python = Path(directory) / version / "bin" / "python"
    return Peer(version=version, python=python) if python.exists() else None


def same_and_next(version: str) -> tuple[Peer, ...]:
    """The release and the one after it, as far as they are installed."""
    at = VERSIONS.index(version)
    return tuple(peer for name in VERSIONS[at : at + 2] if (peer := find(name)) is not None)
