"""`store.work.processes`: background processes from their registration to the notice of their end.

Invariant: the first end counts, whoever says it, and commits at `power` together with the one obligation that tells of
it. A process may end before it was said to run; its watcher may die at any moment: the next one finds the row, and
takes the process over or ends the row by what can be proven.

Not for: starting, reading and killing processes. A list of watchers that wait to be armed was rejected: what ended
before its watcher was armed was told to nobody.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.errors.work import BackgroundWorkFull
from hermes_state.outbox.inputs import MOST_ID, names, whole
from hermes_state.owners import OwnerIdentity, provably_dead
from hermes_state.owners.death import gone_before
from hermes_state.owners.identity import PROC, pid_namespace, start_ticks
from hermes_state.work import background_rows as rows
from hermes_state.work import callbacks, matches
from hermes_state.work.background import (
    NOBODY,
    Process,
    Tell,
    find,
    has_work,
    newest_spawn,
    open_work,
    page,
    process_key,
)
from hermes_state.work.group import Group, of_sort, optional
from hermes_state.work.orphans import as_judged
from hermes_state.work.states import Mode, ProcessEvent, ProcessState, Reason, Sort, to_event
from hermes_state.work.verbosity import Form, Moment, form

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import Presence
    from hermes_state.routing import Home

# Numbers of hermes-agent (facts on gateways, 5).
MOST_RUNNING = 64
MOST_OUTPUT = 200_000  # characters, the last ones
MOST_AGE_SECONDS = 86_400.0  # older ones do not keep a conversation from being reset
MOST_COMMAND = 100_000


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a caller found when it asked for a process itself, such as in its sandbox."""

    running: bool
    exit_code: int | None = None  # of one that has ended
    output: str = ""  # its last output, of one that has ended


# Asks for a process whose watcher is gone; None: it cannot tell.
Probe = Callable[[Process], Seen | None]


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What became of processes whose watcher was gone."""

    taken_over: tuple[Process, ...] = ()  # they run; this process watches over them now
    exited: tuple[Process, ...] = ()
    lost: tuple[Process, ...] = ()


class Processes(Group):
    """The background processes of one store. Safe for threads."""

    sort = Sort.PROCESS

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        super().__init__(core, presence=presence)
        self._held_back = matches.HeldBack()

    # --- from registration to the end ------------------------------------------------------------------------

    def register(
        self, process_id: str, home: Home, *, command: str, tell: Tell = NOBODY, epoch: str | None = None,
        cwd: str | None = None, task_id: str | None = None, session_id: str | None = None,
        session_key: str | None = None, patterns: Sequence[str] = (),
    ) -> Process:
        """Write down a process before it is started; from here on its end is told, whatever happens.

        `epoch` names this spawn of the id, a random one by default; the same id and epoch again is the same process.
        `session_key` is the routing key of its conversation, whose generation is kept: after a reset (`/new`) the end
        is not told there any more. Raises `BackgroundWorkFull` (64 run), `IdempotencyConflict`, `WrongHome`,
        `HomeRemoved`, `InvalidInput`.
        """
        key = process_key(process_id, rows.new_epoch() if epoch is None else epoch)
        described = {
            "command": _kept("command", command, MOST_COMMAND),
            "cwd": None if cwd is None else _kept("cwd", cwd, 4_000),
            "task_id": optional("task_id", task_id), "patterns": _patterns(patterns),
        }
        for argument, value in (("session_id", session_id), ("session_key", session_key)):
            optional(argument, value)
        here, at = self._watcher(), self._core.clock.now()

        def work(tx: Transaction) -> Process:
            known = tx.row("SELECT 1 FROM background_work WHERE key = ?", (key,)) is not None
            if not known:
                _refuse_full(tx)
            found, _new = rows.register(
                tx, key, Sort.PROCESS, home, state=ProcessState.REGISTERED, described=described, tell=tell,
                session_id=session_id, session_key=session_key, watched_by=here, at=at,
            )
            return _process(found)

        return self._write(home, work)

    def running(self, process: Process, home: Home, pid: int, *, scope: str = "host") -> Process:
        """It was started. `scope` is "sandbox" where the pid means nothing here. One that has ended stays so.

        A pid that is gone by now is kept as gone; its end is said as ever, or found by who recovers. Raises
        `BackgroundWorkNotFound`, `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        whole("pid", pid, 1, 2**31)
        if scope not in ("host", "sandbox"):
            raise InvalidInput(f"scope is 'host' or 'sandbox', not {scope!r:.80}.", argument="scope")
        identity = self._identity(pid) if scope == "host" else None
        at = self._core.clock.now()

        def work(tx: Transaction) -> Process:
            now = _process(rows.need(tx, process.key))
            state = to_event(now.state, ProcessEvent.START)
            if state is None:
                return now
            return _process(rows.move(
                tx, now, state, at=at,
                columns={"pid": pid, "pid_scope": scope, "identity": identity, "started_at": at},
            ))

        return self._write(home, work)

    def exited(
        self, process: Process, home: Home, *, exit_code: int | None, output: str = "",
        reason: Reason = Reason.EXITED, ended_by: str | None = None,
    ) -> Process:
        """It has ended; anybody may say so, as often as they like: the first counts, and is what is given back.

        Of `output` the last 200,000 characters are kept. `reason` is anything but lost; `failed_start` for one that
        never ran. Commits at `power`. Raises as `running`.
        """
        if exit_code is not None:
            whole("exit_code", exit_code, -MOST_ID, MOST_ID)
        if not isinstance(output, str):
            raise InvalidInput(f"output is a text, not {output!r:.80}.", argument="output")
        chosen = _reason(reason)
        by, at, here = rows.why("ended_by", ended_by), self._core.clock.now(), self._watcher()
        ended = self._write(
            home, lambda tx: _exit(tx, process.key, chosen, exit_code, output, by, at=at, here=here),
            durability="power",
        )
        self._held_back.take(process.key)
        return ended

    # --- while it runs ---------------------------------------------------------------------------------------

    def matched(self, process: Process, home: Home, pattern: str, lines: Sequence[str]) -> matches.Matched:
        """Lines of output matched a pattern: tell of it, or hold it back, by `hermes_state.work.watching`.

        Mostly no write: what is held back in a window that is struck already is only counted. When the patterns are
        turned off, one event says so, and the end of the process begins a turn. Raises as `running`.
        """
        pattern, here = _kept("pattern", pattern, MOST_COMMAND), self._watcher()
        shown = matches.shown([rows.readable(line) for line in lines])
        at = self._core.clock.now()
        with self._core.reader() as reader:
            now = _process(rows.need(reader, process.key))
            first = matches.decided(reader, now, at=at)
        if first not in matches.WRITES:
            self._held_back.add(process.key, len(lines))
            return matches.Matched(match=first, process=now)
        before = self._held_back.take(process.key)

        def work(tx: Transaction) -> matches.Matched:
            row = _process(rows.need(tx, process.key))
            match = matches.decided(tx, row, at=at)
            return matches.act(
                tx, row, match, pattern=pattern, text=shown, count=len(lines), held_back=before, at=at, here=here
            )

        try:
            done = self._write(home, work)
        except BaseException:
            self._held_back.add(process.key, before)
            raise
        self._held_back.add(process.key, done.held_back)
        return done

    def update(self, process: Process, home: Home, shown: str, number: int) -> bool:
        """Tell a person what it says while it runs, where its verbosity is "all"; whether anything is owed for it.

        `number` is the caller's, and the same number is told once. It never stands for the end, and is not told any
        more once that has come. Raises as `running`.
        """
        whole("number", number, 0, MOST_ID)
        if not isinstance(shown, str):
            raise InvalidInput(f"shown is a text, not {shown!r:.80}.", argument="shown")
        plain, at, here = rows.readable(shown)[-matches.MOST_SHOWN:], self._core.clock.now(), self._watcher()

        def work(tx: Transaction) -> bool:
            now = _process(rows.need(tx, process.key))
            wanted = (
                not now.ended and now.tell.mode is Mode.RECEIPT
                and form(now.tell.verbosity, Moment.RUNNING) is not Form.NOTHING
            )
            if wanted:
                rows.say(tx, now, "progress", number, {"text": plain}, at=at, here=here)
            return wanted

        return self._write(home, work)

    # --- after a restart -------------------------------------------------------------------------------------

    def recover(self, home: Home, *, probe: Probe | None = None) -> Recovered:
        """What was registered by a process that is gone: taken over where it runs, ended where that is provable.

        What this process has taken over before is looked at again, and ended once it is provably gone: nothing else
        polls it. `probe(process)`, a plain function, asks for one that cannot be judged from here, such as in a
        sandbox. Without an answer one whose watcher is gone is `lost`, which is told as every other end; one that was
        taken over stays. Do it at the start and every 30 s. Raises `WrongHome`, `HomeRemoved`, `LockTimeout`,
        `InvalidInput`, and what `probe` raises, once all others are done.
        """
        callbacks.plain("probe", probe)
        here = self._watcher()
        found: dict[str, list[Process]] = {"taken_over": [], "exited": [], "lost": []}
        failures: list[Exception] = []
        looked_at = self._orphans.looked_at()
        for process, because in looked_at:
            try:
                seen = self._asked(process, probe)
            except Exception as error:  # the caller's code: one sandbox that does not answer keeps no other waiting
                failures.append(error)
                continue
            if because is None and (seen is None or seen.running):
                continue
            work = _recovering(process, seen, because or "", here, self._core.clock.now())
            done = self._write(home, work, durability="power")
            if done is not None:
                what = "lost" if done.state is ProcessState.LOST else "exited" if done.ended else "taken_over"
                found[what].append(done)
        if failures:
            failures[0].add_note(f"probe raised for {len(failures)} of {len(looked_at)} processes; the rest is done.")
            raise failures[0]
        return Recovered(**{what: tuple(them) for what, them in found.items()})

    # --- looking ---------------------------------------------------------------------------------------------

    def get(self, process_id: str, epoch: str | None = None) -> Process | None:
        """One process; without `epoch` its newest spawn. None: it was never here, or was told of and is forgotten."""
        with self._core.reader() as reader:
            if not has_work(reader):
                return None
            if epoch is None:
                return newest_spawn(reader, process_id)
            row = find(reader, process_key(process_id, epoch))
        return None if row is None else _process(row)

    def page(self, **filters: Any) -> list[Process]:
        """Up to `limit` processes, newest first; `before` is the `no` that the last page ended at.

        Filters: `states`, `session_key`, `session_id`, `modes`, `undelivered`. Raises `InvalidInput`.
        """
        with self._core.reader() as reader:
            return [_process(row) for row in page(reader, Sort.PROCESS, **filters)]

    def active(self, *, session_key: str | None = None) -> list[Process]:
        """What runs now and is younger than a day: what keeps a conversation from being reset."""
        since = self._core.clock.now() - MOST_AGE_SECONDS
        with self._core.reader() as reader:
            found = [_process(row) for row in open_work(reader, Sort.PROCESS)] if has_work(reader) else []
        return [
            one for one in found
            if one.registered_at > since and (session_key is None or one.session_key == session_key)
        ]

    # --- inside ----------------------------------------------------------------------------------------------

    def _asked(self, process: Process, probe: Probe | None) -> Seen | None:
        """What `probe` says of a process, else what is proven; None: neither."""
        seen = None if probe is None else callbacks.run("probe", probe, process)
        if seen is not None and not isinstance(seen, Seen):
            raise InvalidInput(f"probe gives a Seen or None, not {type(seen).__name__}.", argument="probe")
        return self._seen(process) if seen is None else seen

    def _identity(self, pid: int) -> str | None:
        """Which process of which boot a pid is now, as JSON; None where that cannot be told."""
        domain, ticks = self._core.clock.domain(), start_ticks(PROC, pid)
        if ticks is None:
            gone = gone_before(pid, self._core.clock)
            return None if gone is None else gone.to_json()
        return OwnerIdentity(
            host=platform.node() or "unknown", boot_id=domain.boot_id, time_namespace=domain.time_namespace,
            pid_namespace=pid_namespace(PROC), pid=pid, start_ticks=ticks, nonce="0" * 32,  # it holds no lock file
        ).to_json()

    def _seen(self, process: Process) -> Seen | None:
        """Whether a process of this host runs; None when nothing is proven."""
        if process.identity is None:
            return None
        verdict = provably_dead(
            OwnerIdentity.from_json(process.identity), self._core.path.parent, clock=self._core.clock
        )
        return Seen(running=False) if verdict.dead else Seen(running=True) if verdict.runs else None


def _recovering(
    process: Process, seen: Seen | None, because: str, here: rows.Watcher, at: float
) -> Callable[[Transaction], Process | None]:
    """What is done about a process whose watcher is gone; None when somebody was there first."""

    def work(tx: Transaction) -> Process | None:
        if not as_judged(tx, process):
            return None
        if seen is not None and seen.running:
            return _process(rows.move(tx, process, process.state, at=at, columns={
                "owner": here.owner, "boot_id": here.boot_id, "time_namespace": here.time_namespace,
                "expires_boottime": here.expires_boottime, "renewals": 0, "taken_over_at": at,
            }))
        if seen is not None:
            return _exit(tx, process.key, Reason.ALREADY_EXITED, seen.exit_code, seen.output, None, at=at, here=here)
        state = to_event(process.state, ProcessEvent.LOSE)
        assert state is not None  # nothing open refuses to be lost: the table has it
        return _process(rows.end(
            tx, process, state, at=at, here=here, error=f"whoever watched over it is gone: {because}",
            columns={"reason": str(Reason.LOST)},
        ))

    return work


def _exit(
    tx: Transaction, key: str, reason: Reason, exit_code: int | None, output: str, ended_by: str | None, *, at: float,
    here: rows.Watcher,
) -> Process:
    now = _process(rows.need(tx, key))
    state = to_event(now.state, ProcessEvent.EXIT)
    if state is None:
        return now
    matches.suppress_progress(tx, now, at=at)
    return _process(rows.end(
        tx, now, state, at=at, here=here, result=rows.readable(output[-MOST_OUTPUT:])[-MOST_OUTPUT:],
        result_chars=len(output),
        columns={"exit_code": exit_code, "reason": str(reason), "ended_by": ended_by},
    ))


def _refuse_full(tx: Transaction) -> None:
    (count,) = tx.rows("SELECT count(*) FROM background_work WHERE ended_at IS NULL AND sort = 'process'")[0]
    if count >= MOST_RUNNING:
        raise BackgroundWorkFull(
            f"{count} background processes run for {tx.path}; {MOST_RUNNING} is the most.",
            hint="Wait until one has ended, or end one; what runs is never taken away.", path=tx.path,
            sort=str(Sort.PROCESS), most=MOST_RUNNING,
        )


def _reason(value: Any) -> Reason:
    try:
        found = Reason(value)
    except ValueError:
        found = Reason.LOST
    if found is Reason.LOST:
        raise InvalidInput(
            f"{value!r:.80} is no reason for which a process exits.",
            hint=f"It is one of {', '.join(one for one in Reason if one is not Reason.LOST)}.", argument="reason",
        )
    return found


def _kept(argument: str, value: Any, most: int) -> str:
    """A text of the system's, such as a file name that is no UTF-8: escaped and cut, so that nothing goes untold."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{argument} of a process is a text, not empty, not {value!r:.80}.", argument=argument)
    return rows.cut(value, most)


def _patterns(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        value = [rows.readable(one) for one in value]
    return names("patterns", value)


def _process(row: Any) -> Process:
    return of_sort(row, Process)


