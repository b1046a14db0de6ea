"""The list of conversations: newest activity first, one entry each, at a cost that does not grow with the store.

Invariant: the order is by exact last activity, though a session's row has it only to the minute: candidates come from
the index on `active_at` in order, each with its newest message, and reading stops when no later one can be newer than
the last entry wanted (`active_at` + 60 s). `count` counts what `list` shows. Statements per page: one for the
candidates, one each for their chains, shared parts and previews, whatever the page's size; `list_candidates.py` has the
two exceptions.

An entry is a conversation: its id, title, state and place are those of the tip, its start is the root's.
`message_count` is what is stored for the conversation as a whole: all its sessions from root to tip and, for a branch,
the part that it shares; what compaction or rewind hides is counted. The preview is the first user message of the root,
of the tip when the root has none, else of what a branch shares.

Not for: finding words in messages (see `search`). Counters and previews in the session's row were rejected: every
append would write a second page.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.lineage import chain_numbers, continuations, next_no, root_no
from hermes_state.conversation.list_candidates import ACTIVITY_SECONDS, NEWEST, NOWHERE, Filter, Place, candidates
from hermes_state.conversation.session_rows import Relation, State, left_over
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine import Reader

__all__ = ["Filter", "SessionSummary", "count", "count_by_source", "page"]
PREVIEW_CHARACTERS = 60
_FIRST_MESSAGES = 50  # how far into a session the preview is looked for
_LOOKED_AT = 256  # characters of a message that its preview is made from
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TEXT_PART = re.compile(r'"text"\s*:\s*("(?:[^"\\]|\\.)*)')


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSummary:
    """One entry of the list: a conversation. Times are epoch seconds UTC."""

    # the session in which it goes on, and the first one; equal when it was never compressed
    id: str
    root_id: str
    # how many sessions it is made of
    sessions: int
    source: str
    state: State
    title: str | None
    # first 60 characters of the first user message, white space as one space; "" when there is none
    preview: str
    # messages stored for all of it, hidden ones and those that a compression repeated for the model included
    message_count: int
    # when the root began, and the exact time of the last activity
    started_at: float
    active_at: float
    ended_at: float | None
    end_reason: str | None
    # what the root is to the session it came from, and that session's id; None when it came from none. A branch whose
    # parent was deleted has only the first
    relation: Relation | None
    parent_id: str | None
    model: str | None
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    display_name: str | None
    profile: str | None
    cwd: str | None
    git_branch: str | None
    git_repo_root: str | None
    archived_at: float | None
    pinned_at: float | None


@dataclass(frozen=True, slots=True)
class _Chain:
    """The conversation of a tip that is a continuation."""

    root_no: int
    root_id: str
    root_relation: Relation | None
    root_parent: str | None
    started_at: float
    sessions: int
    messages: int


# UNION drops repeated pairs, so a circle ends.
_CHAINS = """
WITH RECURSIVE up (tip, no) AS (
    SELECT value, value FROM json_each(?)
    UNION SELECT up.tip, s.parent_no FROM up JOIN sessions s ON s.no = up.no
        WHERE s.relation = 'continuation' AND s.parent_no IS NOT NULL
)
SELECT up.tip, s.no, s.id, s.relation, s.started_at, coalesce(n.seq, 0) - s.deleted_messages,
    (SELECT count(*) FROM sessions c WHERE c.parent_no = s.no AND c.relation = 'continuation'),
    (SELECT id FROM sessions p WHERE p.no = s.parent_no AND NOT {gone})
FROM up JOIN sessions s ON s.no = up.no
""".format(gone=left_over("p")) + NEWEST
# Continuations that are no entries, with what continues them.
_NO_ENTRIES = """
WITH RECURSIVE off (no) AS (
    {seeds}
    UNION SELECT c.no FROM off JOIN sessions c ON c.parent_no = off.no WHERE c.relation = 'continuation'
)
"""
_OF_CHILDREN = """
    UNION SELECT c.no FROM sessions c JOIN sessions p ON p.no = c.parent_no
        WHERE c.parent_no IS NOT NULL AND c.relation = 'continuation' AND p.relation IN ('delegate', 'other')
"""
# A bound below 1 shares so much less of the session above, see `lineage.reaches`.
_SHARED = """
WITH RECURSIVE up (branch, no, upto) AS (
    SELECT s.no, s.parent_no, s.branched_at_seq FROM json_each(?) j JOIN sessions s ON s.no = j.value
        WHERE s.relation = 'branch' AND s.parent_no IS NOT NULL
    UNION SELECT up.branch, s.parent_no, max(s.branched_at_seq + min(coalesce(up.upto, 0), 0), -10000)
        FROM up JOIN sessions s ON s.no = up.no
        WHERE s.relation = 'branch' AND s.parent_no IS NOT NULL
)
SELECT up.branch, up.no, max(coalesce(up.upto, 0), 0),
    iif(s.deleted_messages = 0 AND s.seq_floor = 0, max(coalesce(up.upto, 0), 0),
        (SELECT count(*) FROM messages m WHERE m.session_no = up.no AND m.seq <= up.upto))
FROM up JOIN sessions s ON s.no = up.no
"""
# The bytes, because SQLite's text functions stop at a NUL. A body kept elsewhere leaves its beginning in the row.
_PREVIEWS = """
SELECT j.key, m.content_type, iif(m.content_type = 'json', substr(CAST(m.content AS BLOB), 1, 65536),
    substr(CAST(m.content AS BLOB), 1, 1024))
FROM json_each(?) j JOIN messages m ON m.id = (
    SELECT x.id FROM messages x
    WHERE x.session_no = j.value ->> 0 AND x.seq <= j.value ->> 1 AND x.role = 'user' AND NOT EXISTS (
        SELECT 1 FROM view_edits e
        WHERE e.session_no = x.session_no AND e.action = 'rewind' AND x.seq BETWEEN e.from_seq AND e.to_seq
            AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id))
    ORDER BY x.seq LIMIT 1)
"""


def page(reader: Reader, wanted: Filter, *, limit: int = 50, offset: int = 0) -> list[SessionSummary]:
    """The entries `offset` to `offset + limit` of the list. Call it inside a snapshot. Raises `InvalidInput`."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidInput(f"{name} is a whole number from 0, not {value!r}.", argument=name)
    if limit == 0:
        return []
    found: list[tuple[float, int, tuple[Any, ...], _Chain | None]] = []
    heap: list[tuple[float, int]] = []
    def last() -> Place:
        """The last place wanted so far."""
        return heap[0] if len(heap) == limit + offset else NOWHERE

    for exact, row, chain in _tips(reader, wanted, last):
        if len(heap) == limit + offset and row[1] + ACTIVITY_SECONDS <= heap[0][0]:
            break
        if exact is None:
            continue
        found.append((exact, row[0], row, chain))
        if len(heap) < limit + offset:
            heapq.heappush(heap, (exact, row[0]))
        else:
            heapq.heappushpop(heap, (exact, row[0]))
    found.sort(key=lambda one: (one[0], one[1]), reverse=True)
    return _summaries(reader, found[offset : offset + limit])


def count(reader: Reader, wanted: Filter) -> int:
    """How many entries the list has. Call it inside a snapshot."""
    if wanted.before is not None or wanted.after is not None:
        return sum(exact is not None for exact, _row, _chain in _tips(reader, wanted))
    return int(_counted(reader, wanted, "SELECT count(*)", "")[0][0])


def count_by_source(reader: Reader, wanted: Filter) -> dict[str, int]:
    """How many entries the list has of each source, without regard to `before` and `after`."""
    return dict(_counted(reader, wanted, "SELECT s.source, count(*)", "GROUP BY s.source"))


def _counted(reader: Reader, wanted: Filter, select: str, group: str) -> list[tuple[Any, ...]]:
    off = _NO_ENTRIES.format(seeds="SELECT value FROM json_each(?)" + ("" if wanted.include_children else _OF_CHILDREN))
    return reader.rows(
        f"{off} {select} FROM sessions s"
        f" WHERE {wanted.where} AND (s.relation IS NOT 'continuation' OR s.no NOT IN off) {group}",
        (json.dumps(_stale_siblings(reader)), *wanted.params),
    )


def _stale_siblings(reader: Reader) -> list[int]:
    """The continuations that lost against another one of the same session; next to none."""
    several = reader.rows(
        "SELECT parent_no FROM sessions WHERE parent_no IS NOT NULL AND relation = 'continuation'"
        " GROUP BY parent_no HAVING count(*) > 1"
    )
    return [
        row[0] for (parent,) in several for row in continuations(reader, parent) if row[0] != next_no(reader, parent)
    ]


def _tips(
    reader: Reader, wanted: Filter, last: Callable[[], Place] = lambda: NOWHERE
) -> Iterator[tuple[float | None, tuple[Any, ...], _Chain | None]]:
    """The candidates in the order of `active_at`, each with its exact last activity, None when it is no entry.

    After many of them the rest may come in the order of exact activity, without those behind `last()`.
    """
    for chunk in candidates(reader, wanted, last):
        continued = [row[0] for row in chunk if row[4] == "continuation"]
        chains = _chains(reader, continued, include_children=wanted.include_children) if continued else {}
        for row in chunk:
            chain = chains.get(row[0])
            exact = max(row[1], row[2])
            entry = (row[4] != "continuation" or chain is not None) and wanted.within(exact)
            yield exact if entry else None, row, chain


def _chains(reader: Reader, tips: Sequence[int], *, include_children: bool) -> dict[int, _Chain]:
    """The conversations that end in these sessions; without those in which another session is the tip."""
    members: dict[int, list[tuple[Any, ...]]] = {}
    for tip, *member in reader.rows(_CHAINS, (json.dumps(tips),)):
        members.setdefault(tip, []).append(tuple(member))
    chains: dict[int, _Chain] = {}
    for tip, chain in members.items():
        roots = [member for member in chain if member[2] != "continuation" or member[6] is None]
        top = root_no(reader, tip) if len(roots) != 1 else roots[0][0]
        no, root_id, relation, started_at, _messages, _children, parent = next(one for one in chain if one[0] == top)
        if any(member[5] > 1 for member in chain) and chain_numbers(reader, no)[-1] != tip:
            continue
        if not include_children and relation in ("delegate", "other"):
            continue
        chains[tip] = _Chain(
            root_no=no, root_id=root_id, root_relation=None if parent is None else relation, root_parent=parent,
            started_at=started_at, sessions=len(chain), messages=sum(member[4] for member in chain),
        )
    return chains


def _summaries(
    reader: Reader, found: Sequence[tuple[float, int, tuple[Any, ...], _Chain | None]]
) -> list[SessionSummary]:
    roots = [no if chain is None else chain.root_no for _exact, no, _row, chain in found]
    branched = [
        root for root, (_exact, _no, row, chain) in zip(roots, found, strict=True)
        if (row[4] if chain is None else chain.root_relation) == "branch"
    ]
    shared: dict[int, list[tuple[int, int, int]]] = {}
    if branched:
        for branch, no, upto, messages in reader.rows(_SHARED, (json.dumps(branched),)):
            shared.setdefault(branch, []).append((no, upto, messages))
    places: list[tuple[int, int]] = []
    for root, (_exact, no, _row, _chain) in zip(roots, found, strict=True):
        places += [(root, _FIRST_MESSAGES)]
        places += [(no, _FIRST_MESSAGES)] if no != root else []
        places += [(other, min(upto, _FIRST_MESSAGES)) for other, upto, _messages in shared.get(root, ())]
    previews = _previews(reader, places)
    parents = _ids(reader, [row[12] for _exact, _no, row, chain in found if chain is None and row[12] is not None])
    summaries, at = [], 0
    for root, (exact, no, row, chain) in zip(roots, found, strict=True):
        parts = shared.get(root, ())
        places_here = 1 + (no != root) + len(parts)
        preview = next((text for text in previews[at : at + places_here] if text), "")
        at += places_here
        (_no, _active, _newest, messages, relation, id_, source, state, title, started_at, ended_at, end_reason, parent,
         model, user_id, session_key, chat_id, display_name, profile, cwd, git_branch, git_repo_root, archived_at,
         pinned_at) = row
        summaries.append(SessionSummary(
            id=id_, root_id=id_ if chain is None else chain.root_id, sessions=1 if chain is None else chain.sessions,
            source=source, state=state, title=title, preview=preview,
            message_count=(messages if chain is None else chain.messages) + sum(part[2] for part in parts),
            started_at=started_at if chain is None else chain.started_at, active_at=exact, ended_at=ended_at,
            end_reason=end_reason, relation=relation if chain is None else chain.root_relation,
            parent_id=parents.get(parent) if chain is None else chain.root_parent, model=model, user_id=user_id,
            session_key=session_key, chat_id=chat_id, display_name=display_name, profile=profile, cwd=cwd,
            git_branch=git_branch, git_repo_root=git_repo_root, archived_at=archived_at, pinned_at=pinned_at,
        ))
    return summaries


def _ids(reader: Reader, numbers: Sequence[int]) -> dict[int, str]:
    if not numbers:
        return {}
    return dict(reader.rows(
        f"SELECT no, id FROM sessions s WHERE no IN (SELECT value FROM json_each(?)) AND NOT {left_over('s')}",
        (json.dumps(numbers),),
    ))


def _previews(reader: Reader, places: Sequence[tuple[int, int]]) -> list[str]:
    texts = [""] * len(places)
    if places:
        for key, content_type, beginning in reader.rows(_PREVIEWS, (json.dumps(places),)):
            texts[key] = _preview(content_type, beginning)
    return texts


def _preview(content_type: str | None, beginning: bytes | None) -> str:
    text = (beginning or b"").decode("utf-8", "ignore")
    if content_type == "json":
        # Parsed as far as it goes: the row may hold only the beginning.
        text = " ".join(_json_text(part) for part in _TEXT_PART.findall(text))
    elif content_type == "bytes":
        return ""
    return " ".join(_CONTROL.sub(" ", text[:_LOOKED_AT]).split())[:PREVIEW_CHARACTERS]


def _json_text(quoted: str) -> str:
    for tail in ("", '"'):
        try:
            return str(json.loads(quoted + tail, strict=False))
        except ValueError:
            continue
    return quoted[1:]
