"""Whether a rewrite of a store may go on.

Invariant: allowed means all of: SQLite's exclusive lock was obtained; no process is shown by a kernel lock row or by
a visible descriptor, of the current file or of a deleted one; and nobody who could not be seen could be harmed. A
rewrite in place goes through SQLite, so processes that hold nothing SQLite knows of (unread openers) re-read what
changed: root's unreadable processes do not refuse it. They do refuse whatever replaces a file. All content may be
replaced in place beside them only when the kernel says that nobody else has the file open: a file lease counts every
opener, seen or not, and SQLite's exclusive lock keeps later ones out.

Not for: taking locks. Rejected: a single yes-or-no without reasons, which nobody can act on.
"""

from __future__ import annotations

from lockowners.records import Hidden, Holder, Scan, Verdict

NO_EXCLUSIVE = "SQLite's exclusive lock was not obtained"


def verdict(
    scan: Scan, *, exclusive_obtained: bool, replaces_inode: bool = False, replaces_content: bool = False
) -> Verdict:
    """Judge a scan. `replaces_inode`: the work puts another file at the path; `replaces_content`: it keeps the file and
    replaces all that is in it. Neither: it rewrites the same content in place."""
    strict = replaces_inode or (replaces_content and scan.sole_opener is not True)
    reasons: list[str] = []
    if not exclusive_obtained:
        reasons.append(NO_EXCLUSIVE)
    reasons.extend(_holder_reason(holder) for holder in scan.holders)
    reasons.extend(reason for row in scan.hidden if (reason := _hidden_reason(row, scan, strict)))
    if scan.namespace_note:
        if strict:
            reasons.append(f"not everything can be seen from here, and a file would be replaced: {scan.namespace_note}")
        elif scan.unlisted_users and scan.sole_opener is not True:
            reasons.append(f"other users may have the store open unseen: {scan.namespace_note}")
    return Verdict(
        allowed=not reasons,
        reasons=tuple(reasons),
        not_visible=scan.not_visible,
        holders=scan.holders,
    )


def _holder_reason(holder: Holder) -> str:
    who = f"PID {holder.process.pid} ({holder.process.command})"
    if holder.stale:
        return f"{who} works on a deleted file of the store"
    if "lock" in holder.via:
        return f"{who} has a lock on the store"
    return f"{who} has the store open"


def _hidden_reason(row: Hidden, scan: Scan, strict: bool) -> str:
    if row.holds:
        return f"{row.describe()}: its owner cannot be named from here"
    if strict:
        return f"{row.describe()} cannot be looked into, and a file would be replaced"
    if row.is_root or row.unlikely or scan.sole_opener is True:
        return ""
    return f"{row.describe()} cannot be looked into and may have the store open"
