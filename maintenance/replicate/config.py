"""Litestream's configuration for one store.

Invariant: a file that we wrote says so in its first line and is replaced as a whole; any other file is a person's and
is only read, by Litestream itself. What we write keeps Litestream from truncating checkpoints (`truncate-page-n: 0`),
which wait for every reader and let every writer wait. Secrets are never written: Litestream takes them from the
environment.

Not for: other people's YAML. Parsing it here was rejected: Litestream says by itself which stores a file names.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hermes_state.errors import InvalidInput
from hermes_state.flushing import sync_folder
from maintenance.replicate.program import query

MARK = "# Written by `hermes-state sessions replicate`, which replaces this file."
ENDING = ".hermes-state.litestream.yml"
RETENTION_HOURS = 168
SNAPSHOT_HOURS = 24
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration to run Litestream with."""

    # the file
    path: Path
    # whether we write it; False for a person's file
    ours: bool
    # where the replica is, None when only the file says so
    replica: str | None
    # its text, "" for a person's file
    text: str

    def arguments(self) -> list[str]:
        """How Litestream is told. Only a person's file may speak of variables of the environment."""
        return ["-config", str(self.path), *(["-no-expand-env"] if self.ours else [])]


def default_path(store: Path) -> Path:
    """Where the configuration lies unless told otherwise."""
    return store.with_name(f"{store.name}{ENDING}")


def config_for(
    store: Path, to: str | None, path: Path | None, *, retention_hours: int = RETENTION_HOURS
) -> Config:
    """The configuration to use. Writes nothing; `write` does.

    Raises `InvalidInput` when neither a target nor a file is there, or a target is given for a person's file.
    """
    file = Path(os.path.abspath(path)) if path is not None else default_path(store)
    ours = _is_ours(file)
    if to is None:
        if not file.exists():
            raise InvalidInput(
                f"It is not said where the replica of {store} is, and there is no {file}.",
                hint="Name a folder or an address with --to, or a configuration with --config.", path=file,
            )
        return Config(path=file, ours=ours, replica=_said_replica(file) if ours else None, text=_text(file, ours))
    if file.exists() and not ours:
        raise InvalidInput(
            f"{file} was not written by this program, so --to does not change it.",
            hint="Leave --to away to use that file as it is, or name another one with --config.", path=file,
        )
    if retention_hours < 1:
        raise InvalidInput("The replica is kept for at least one hour.", hint="Name a larger --retention-hours.")
    replica = target(store, to)
    return Config(path=file, ours=True, replica=replica, text=render(store, replica, retention_hours))


def target(store: Path, to: str) -> str:
    """An address as it is, or a folder by its whole path. Raises `InvalidInput` for what cannot hold a replica."""
    if _URL.match(to) and not to.startswith("file://"):
        if "@" in to.partition("://")[2].partition("/")[0] and ":" in to.partition("://")[2].partition("@")[0]:
            raise InvalidInput(
                "The address has a password in it, which would be written to a file.",
                hint="Give it to Litestream in its environment, or write a configuration and name it with --config.",
            )
        return to
    folder = Path(os.path.abspath(Path(to.removeprefix("file://")).expanduser()))
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder.", hint="Name a folder or an address with --to.", path=folder)
    if folder == store.parent:
        raise InvalidInput(
            f"{folder} holds the store itself.", hint="Name a folder of the replica's own, on another disk.",
            path=folder,
        )
    return str(folder)


def render(store: Path, replica: str, retention_hours: int = RETENTION_HOURS) -> str:
    """The configuration as text. Every value is a JSON string, which is YAML."""
    place = f"url: {json.dumps(replica)}" if _URL.match(replica) else f"type: file\n      path: {json.dumps(replica)}"
    return (
        f"{MARK}\n"
        "logging:\n"
        "  stderr: true\n"
        "snapshot:\n"
        f"  interval: {min(SNAPSHOT_HOURS, retention_hours)}h\n"
        f"  retention: {retention_hours}h\n"
        "dbs:\n"
        f"  - path: {json.dumps(str(store))}\n"
        "    # Never a truncating checkpoint: it waits for every reader, and every writer waits for it.\n"
        "    truncate-page-n: 0\n"
        "    replica:\n"
        f"      {place}\n"
    )


def write(config: Config) -> None:
    """Put our file in place in one step, for its owner only. A person's file stays as it is."""
    if not config.ours:
        return
    staged = config.path.with_name(f".{config.path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(config.text)
            out.flush()
            os.fsync(descriptor)
        os.replace(staged, config.path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(config.path.parent)


@contextmanager
def usable(config: Config) -> Iterator[Config]:
    """The configuration as a file that is there, for looking only: ours is written to a private folder meanwhile."""
    if not config.ours:
        yield config
        return
    with TemporaryDirectory(prefix="hermes-state-") as folder:
        private = Config(
            path=Path(folder) / "litestream.yml", ours=True, replica=config.replica, text=config.text
        )
        write(private)
        yield private


def require_names(config: Config, store: Path) -> None:
    """Raise `InvalidInput` unless Litestream finds this store in the file, by the path that we use."""
    listed = query(["databases", *config.arguments()], store)
    if not any(line.split()[:1] == [str(store)] or line.startswith(f"{store} ") for line in listed.splitlines()):
        raise InvalidInput(
            f"{config.path} does not name {store}.",
            hint="Litestream must find the store by this very path: add it under `dbs`.", path=config.path,
        )


def _is_ours(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            return lines.readline().rstrip() == MARK
    except FileNotFoundError:
        return True


def _text(file: Path, ours: bool) -> str:
    return file.read_text(encoding="utf-8") if ours else ""


def _said_replica(file: Path) -> str | None:
    found = re.search(r"^      (?:url|path): (\".*\")$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return str(json.loads(found[1])) if found else None
