"""Which rows are of processes that still live.

Invariant: a run is ended for others only with proof of its death (see `owners.death`), or when it is of another boot
and has shown no sign of life for a week. A row of another uid is left alone whatever it says.

Not for: the host's owner, whose life the lock tells. Ages alone were rejected: a suspended machine has no age.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.engine import Transaction
from hermes_state.host.folder import our_uid
from hermes_state.host.records import Gateway
from hermes_state.owners import OwnerIdentity, Verdict, lock_file, provably_dead
from hermes_state.owners.identity import PROC, pid_namespace

FORGET_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run and what is known of its life."""

    gateway: Gateway
    verdict: Verdict
    same_boot: bool  # whether it ran in this boot of this machine
    is_ours: bool  # of our uid, with an identity that can be read; everything else is ignored

    @property
    def may_live(self) -> bool:
        """Whether it counts as alive until it is proven otherwise."""
        return self.is_ours and not self.verdict.dead and self.gateway.ended_at is None


def judge(gateway: Gateway, folder: Path, clock: Clock) -> Judged:
    """Look at the process that a row names. Takes some system calls and changes nothing."""
    identity = gateway.identity
    if identity is None or gateway.uid != our_uid():
        because = "it was written by something that this version cannot read"
        if identity is not None:
            because = f"its row belongs to user {gateway.uid} and is ignored"
        return Judged(gateway=gateway, verdict=Verdict(dead=False, because=because), same_boot=False, is_ours=False)
    boot = clock.domain().boot_id
    return Judged(
        gateway=gateway, verdict=provably_dead(identity, folder, clock=clock), is_ours=True,
        same_boot=bool(boot) and identity.boot_id == boot,
    )


def holds_its_presence(judged: Judged, folder: Path) -> bool:
    """Whether the process certainly lives: in this boot, with its own lock file still held."""
    identity = judged.gateway.identity
    return (
        judged.may_live and judged.same_boot and identity is not None and lock_file(folder, identity.nonce).exists()
    )


def is_stopped(identity: OwnerIdentity, *, proc_root: Path = PROC) -> bool:
    """Whether that process, of this pid namespace, stands still until somebody has it go on; False where not known."""
    if not identity.pid_namespace or identity.pid_namespace != pid_namespace(proc_root):
        return False
    try:
        said = (proc_root / str(identity.pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The name may hold spaces and parentheses; the state is what follows its last one.
    return said[said.rfind(")") + 1 :].split()[:1] in (["T"], ["t"])


def end_the_dead(tx: Transaction, judged: list[Judged], *, at: float) -> int:
    """Write down that they ended; gives how many did. What changed since it was judged is left alone."""
    ended = 0
    for one in judged:
        because = one.verdict.because if one.verdict.dead else ""
        if one.is_ours and not one.same_boot and at - one.gateway.updated_at > FORGET_SECONDS:
            because = f"another boot's, without a sign of life for {FORGET_SECONDS / 86_400:g} days"
        if not one.is_ours or not because:
            continue
        ended += tx.execute(
            "UPDATE gateways SET state = 'stopped', exit_reason = ?, ended_at = ?, updated_at = ?"
            " WHERE no = ? AND beats = ? AND ended_at IS NULL",
            (f"died: {because}", at, at, one.gateway.no, one.gateway.beats),
        )
    return ended
