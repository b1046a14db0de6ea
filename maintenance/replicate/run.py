"""`replicate` and `replicate_once`: checks, configuration, Litestream.

Not for: proving the replica (`drill`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.errors import ReplicationFailed
from maintenance.replicate.config import Config, require_names, write
from maintenance.replicate.position import copied, covers
from maintenance.replicate.program import failed, query_json, require_program
from maintenance.replicate.refusing import look, only_one
from maintenance.replicate.supervise import Ended, Patience, Stop, run_to_end, supervise

if TYPE_CHECKING:
    from maintenance.store_context import Context

# Litestream stops after one round; a store that is written to all the time may need another for what came before.
MOST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Synced:
    """What `replicate_once` reached."""

    # the store
    store: Path
    # Litestream's newest transaction, in the store's folder and in the replica
    transaction: str
    # rounds that it took
    rounds: int
    # whether Litestream's own files prove that everything up to the call was copied; None when they lie elsewhere
    proven: bool | None


def replicate(
    ctx: Context, config: Config, *, quiet: bool = False, stop: Stop | None = None, patience: Patience | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Ended:
    """Write the configuration and run Litestream until a signal, or `stop.tell`.

    Raises `Refused` (no extra, no WAL mode, another Litestream), `LockTimeout` (another run of this), `GenerationLost`,
    `Corrupt`, `ReplicationFailed`.
    """
    require_program()
    told = stop or Stop()
    with told.on_signals(), only_one(ctx.db):
        look(ctx)
        write(config)
        require_names(config, ctx.db)
        return supervise(
            ctx.db, ["replicate", *config.arguments()], quiet=quiet, stop=told, patience=patience, say=say
        )


def replicate_once(ctx: Context, config: Config, *, quiet: bool = False, stop: Stop | None = None) -> Synced:
    """Copy everything that was committed before the call, and return when the replica has it.

    Raises what `replicate` raises; `ReplicationFailed` also when it does not have it after several rounds.
    """
    require_program()
    told = stop or Stop()
    with told.on_signals(), only_one(ctx.db):
        wanted = look(ctx).position
        write(config)
        require_names(config, ctx.db)
        newest = ""
        for rounds in range(1, MOST_ROUNDS + 1):
            status, output = run_to_end(
                ctx.db, ["replicate", *config.arguments(), "-once"], quiet=quiet, stop=told
            )
            if status or told.signal:
                raise failed("replicate", ctx.db, status, output)
            done = copied(ctx.db)
            proven = covers(done, wanted)
            newest = newest_in_replica(ctx.db, config)
            if proven is not False and newest and (done is None or newest >= done.transaction):
                return Synced(store=ctx.db, transaction=newest, rounds=rounds, proven=proven)
    raise ReplicationFailed(
        f"The replica of {ctx.db} does not have everything that was committed before, after {MOST_ROUNDS} rounds.",
        hint="Run it again; its lines above say what Litestream did.", path=ctx.db, status=status, output=output,
    )


def newest_in_replica(store: Path, config: Config) -> str:
    """The newest transaction in the replica; "" when there is none."""
    listed: list[dict[str, Any]] = query_json(["ltx", *config.arguments(), "-level", "all", "-json", str(store)], store)
    return max((str(one["max_txid"]) for one in listed or ()), default="")
