"""What can be done about damage that a repair would put right, while somebody has the store open.

Invariant: who stands in the way is named by PID with how to stop it, and what works beside them is said: a holder that
never ends must not make the same advice come back for ever. Not for: whether a repair may run (`maintenance.gate`).
Taking a damaged search index off beside its holder was rejected: hermes-agent changes its own schema while it runs, and
two programs that change one schema are how entries come to stand twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from lockowners import Scan
from maintenance.doctor.findings import Finding, Severity
from maintenance.gate.advice import how_to_stop, printable

REPAIR = "hermes-state sessions repair "
MEANWHILE = (
    "Until then every conversation can be read (`hermes-state sessions show`, `hermes-state sessions export`), and "
    "what is stored stays as it is."
)
# A trigger fills the index of hermes-agent's file in the same statement that stores the message.
NOT_STORED = "Messages may fail to be stored while this index is damaged, so do not leave the others running."


def with_holders(found: Iterable[Finding], scan: Scan | None) -> list[Finding]:
    """The same findings; of damage that waits for a repair it is said who keeps it waiting. `scan` None: not known."""
    seen = list(found)
    if scan is None or not scan.holders:
        return seen
    own_uid = os.geteuid() if hasattr(os, "geteuid") else None
    who = "; ".join(
        f"PID {holder.process.pid} ({printable(holder.process.command)}): "
        f"{how_to_stop(holder.process, own_uid=own_uid)}"
        for holder in scan.holders
    )
    sentence = f"It cannot be repaired while others have the store open: {who}. {MEANWHILE}"
    pids = [holder.process.pid for holder in scan.holders]
    return [_kept_waiting(one, sentence, pids) if _waits_for_repair(one) else one for one in seen]


def _waits_for_repair(finding: Finding) -> bool:
    return finding.severity is Severity.DAMAGE and finding.derived and finding.next_command.startswith(REPAIR)


def _kept_waiting(finding: Finding, sentence: str, pids: list[int]) -> Finding:
    more = f" {NOT_STORED}" if "layout" in finding.facts else ""
    facts = {**finding.facts, "kept_waiting_by": pids}
    return replace(finding, sentence=f"{finding.sentence} {sentence}{more}", facts=facts)
