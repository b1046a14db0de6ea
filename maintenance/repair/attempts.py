"""What was tried on which damage, in `<db>.hermes-state.repairs.json` beside the store.

Invariant: an attempt is written down before the store is touched and again when it ends, by one process at a time (the
repair lock); the file is whole or not there. Damage is told by its fingerprint, so that what a repair cannot heal is
not tried for ever, and no second copy of the same damage is kept.

Not for: what was kept before a repair, which is a folder of its own. A counter without a fingerprint was rejected:
other damage would find the door closed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_state.errors import Refused, RepairFailed
from hermes_state.file_lock import CLOSE_ON_EXEC
from hermes_state.flushing import sync_folder
from maintenance.beside import share_like_store
from maintenance.doctor.findings import recover_command
from maintenance.output.text import rfc3339

FORMAT = 1
MOST_ATTEMPTS = 3
# Seconds that must pass after the first and the second failed attempt at one damage.
WAITS = (60.0, 900.0)
# Damages remembered; the oldest is forgotten first.
MOST_REMEMBERED = 20
RUNNING, REPAIRED, FAILED = "running", "repaired", "failed"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at one damage."""

    # when, epoch seconds
    began: float
    pid: int
    # "running" until it says otherwise: what is still "running" without a holder of the lock was killed
    result: str = RUNNING
    # when it ended, None while it runs or when it was killed
    ended: float | None = None
    # why it failed, "" otherwise
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One damage and what was tried."""

    fingerprint: str
    # names of the damaged objects
    objects: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    # the copy made before the first change, None when there is none
    kept: Path | None = None

    @property
    def failed(self) -> int:
        """Attempts that did not end in a repaired store, killed ones included."""
        return sum(attempt.result != REPAIRED for attempt in self.attempts)

    @property
    def given_up(self) -> bool:
        """Whether it will not be tried again."""
        return len(self.attempts) >= MOST_ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Everything that the file says."""

    path: Path
    damages: tuple[Damage, ...] = field(default=())

    def of(self, fingerprint: str) -> Damage:
        """The damage of that fingerprint, new when it was not seen before."""
        found = [damage for damage in self.damages if damage.fingerprint == fingerprint]
        return found[0] if found else Damage(fingerprint=fingerprint)

    def with_damage(self, damage: Damage) -> Memory:
        """The same with `damage` as the newest."""
        others = [one for one in self.damages if one.fingerprint != damage.fingerprint]
        return replace(self, damages=tuple([*others, damage][-MOST_REMEMBERED:]))


def attempts_path(db: Path) -> Path:
    """The file of a store; one store has one, whatever link names it."""
    real = Path(os.path.realpath(db))
    return real.with_name(f"{real.name}.hermes-state.repairs.json")


def read_memory(db: Path) -> Memory:
    """What was tried. Raises `Refused` when the file is there and cannot be understood."""
    path = attempts_path(db)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        damages = tuple(_damage(item) for item in document["damages"])
    except FileNotFoundError:
        return Memory(path=path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(
            f"The record of repairs {path} cannot be read, so it is not known what was tried before.",
            hint="Move it away if nobody knows more; then the next repair is the first.", path=path,
        ) from error
    return Memory(path=path, damages=damages)


def write_memory(db: Path, memory: Memory) -> None:
    """Put the record in place in one step, synced. For whoever has the repair lock."""
    document = {"format": FORMAT, "damages": [_plain(damage) for damage in memory.damages]}
    path = memory.path
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        share_like_store(descriptor, db)
        json.dump(document, out, indent=1)
        out.write("\n")
        out.flush()
        os.fsync(descriptor)
    os.replace(staged, path)
    sync_folder(path.parent)


def refuse_hopeless(db: Path, damage: Damage, now: float) -> None:
    """Raise when this damage was tried often enough, or too short a while ago."""
    if damage.given_up:
        raise RepairFailed(
            f"{db} was repaired {len(damage.attempts)} times for the same damage of {_named(damage.objects)}, and it "
            "is there again; it is not tried again.",
            hint=f"Run `{recover_command(db)}`: it reads the rows into a new file.",
            path=db, attempts=len(damage.attempts), fingerprint=damage.fingerprint,
        )
    ended = [attempt for attempt in damage.attempts if attempt.ended is not None]
    if not ended:
        return  # nothing was tried, or what was tried was killed: that goes on at once
    wait = WAITS[min(len(ended), len(WAITS)) - 1]
    until = (ended[-1].ended or 0.0) + wait
    if now < until:
        raise Refused(
            f"The same damage of {_named(damage.objects)} in {db} was tried {_ago(now - (until - wait))} ago; the next "
            f"try is from {rfc3339(until)} on.",
            hint=f"Or run `{recover_command(db)}` now: it reads the rows into a new file.",
            path=db, attempts=len(damage.attempts), retry_at=until, fingerprint=damage.fingerprint,
        )


def given_up_objects(db: Path) -> frozenset[str]:
    """Objects whose damage will not be tried again. Raises `Refused` when the record cannot be read."""
    return frozenset(name for damage in read_memory(db).damages if damage.given_up for name in damage.objects)


def began(damage: Damage, objects: Sequence[str], now: float) -> Damage:
    """The damage with one more attempt by this process."""
    attempts = (*damage.attempts, Attempt(began=now, pid=os.getpid()))
    return replace(damage, objects=tuple(dict.fromkeys(objects)), attempts=attempts)


def ended(damage: Damage, result: str, now: float, why: str = "") -> Damage:
    """The damage with its last attempt ended."""
    last = replace(damage.attempts[-1], result=result, ended=now, why=why)
    return replace(damage, attempts=(*damage.attempts[:-1], last))


def _named(objects: Sequence[str]) -> str:
    return ", ".join(objects[:5]) + (", …" if len(objects) > 5 else "") if objects else "the file"


def _ago(seconds: float) -> str:
    return f"{max(0, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _plain(damage: Damage) -> dict[str, Any]:
    return {
        "fingerprint": damage.fingerprint,
        "objects": list(damage.objects),
        "kept": str(damage.kept) if damage.kept else None,
        "attempts": [
            {
                "began_at": _stamp(attempt.began), "pid": attempt.pid, "result": attempt.result,
                "ended_at": None if attempt.ended is None else _stamp(attempt.ended), "why": attempt.why,
            }
            for attempt in damage.attempts
        ],
    }


def _damage(item: Mapping[str, Any]) -> Damage:
    return Damage(
        fingerprint=str(item["fingerprint"]),
        objects=tuple(map(str, item["objects"])),
        kept=Path(item["kept"]) if item["kept"] else None,
        attempts=tuple(
            Attempt(
                began=_seconds(one["began_at"]), pid=int(one["pid"]), result=str(one["result"]), why=str(one["why"]),
                ended=None if one["ended_at"] is None else _seconds(one["ended_at"]),
            )
            for one in item["attempts"]
        ),
    )


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
