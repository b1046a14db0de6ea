"""Compactions of a native store: heads, parents, running passes, what they cover.

Invariant: only reads, and every check is a finding; none of these things can lose a message, because rows are never
changed by a compaction. A generation whose covered messages are not those that it was made of is told apart from one
that says so itself (a recovery notes it).

Not for: how good a summary is. Checking every generation each time was rejected: it reads the checks of all messages
that were ever covered; those that sessions are seen through are looked at, all with --deep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.clock import Clock
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.compaction_source import source_of
from maintenance.dialects.native.compactions import NOTED, has_compactions
from maintenance.dialects.native.guards import running_compactions
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore

SAMPLE = 20  # generations whose source is compared without --deep

_HEADS = (
    "SELECT s.id, h.session_no, c.session_no, c.state, c.generation FROM compaction_heads AS h"
    " JOIN sessions AS s ON s.no = h.session_no LEFT JOIN compactions AS c ON c.id = h.compaction_id"
    " WHERE h.compaction_id IS NOT NULL"
)
_PARENTS = (
    "SELECT s.id, c.generation FROM compactions AS c JOIN sessions AS s ON s.no = c.session_no"
    " LEFT JOIN compactions AS p ON p.id = c.parent_id WHERE c.parent_id IS NOT NULL"
    " AND (p.id IS NULL OR (p.session_no = c.session_no AND p.generation >= c.generation)"
    " OR (c.state = 'done' AND p.state <> 'done'))"
)
_NEWEST = (
    "max(coalesce((SELECT max(seq) FROM messages WHERE session_no = s.no), 0), s.seq_floor)"
)
_OUTSIDE = (
    "SELECT s.id, c.generation FROM compactions AS c JOIN sessions AS s ON s.no = c.session_no"
    f" WHERE c.state <> 'superseded' AND (c.watermark > {_NEWEST} OR c.cut_at > c.watermark + 1)"
)


def compaction_findings(store: ReadStore, clock: Clock, *, deep: bool) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if not has_compactions(store):
            yield _fine("compactions", "Nothing was ever compacted: the tables come with the next schema step.", {})
            return
        yield running_finding(store, clock)
        found = [
            *head_findings(store), *shape_findings(store), *source_findings(store, deep=deep), *window_findings(store),
        ]
        yield from found
        if not found:
            (total, done, heads) = store.rows(
                "SELECT count(*), coalesce(sum(state = 'done'), 0), (SELECT count(*) FROM compaction_heads"
                " WHERE compaction_id IS NOT NULL) FROM compactions"
            )[0]
            yield _fine(
                "compactions",
                f"{plural(int(total), 'compaction')}, {done} done; {plural(int(heads), 'session is', 'sessions are')}"
                " seen through one." if total else "Nothing was compacted.",
                {"compactions": total, "done": done, "heads": heads},
            )


def running_finding(store: Reader, clock: Clock) -> Finding:
    """Passes that are at work, and those whose process is gone or late: the next pass settles them."""
    from hermes_state.leases.states import Standing

    running = running_compactions(store, clock)
    left = [session_id for session_id, _owner, seen in running if seen in (Standing.RUN_OUT, Standing.DEAD)]
    held = len(running) - len(left)
    if not left:
        sentence = f"{plural(held, 'session is', 'sessions are')} being compacted." if held else (
            "No session is being compacted."
        )
        return _fine("compactions_running", sentence, {"running": held})
    return Finding(
        code="compactions_left", severity=Severity.INFO, object="compactions",
        sentence=f"{plural(len(left), 'compaction')} of processes that are gone or late, in {_some(left)}: the view is "
        "what it was before, and the next compaction of the session settles it; nothing has to be done.",
        facts={"sessions": left[:100], "running": held},
    )


def head_findings(store: Reader) -> list[Finding]:
    """A session is seen through a finished generation, its own or one that it inherited."""
    from hermes_state.conversation.lineage import segments

    strange = []
    for session_id, no, owner_no, state, _generation in store.rows(_HEADS):
        if state != "done" or (
            owner_no != no and owner_no not in {part.session_no for part in segments(store, no)}
        ):
            strange.append(str(session_id))
    if not strange:
        return []
    return [
        _problem(
            "compaction_head_strange", "compaction_heads",
            f"{plural(len(strange), 'session is', 'sessions are')} seen through a compaction that is not done, not "
            f"there, or of another session: {_some(strange)}. An older one is used instead, or the whole history.",
            {"sessions": strange[:100]}, command("sessions compact", store.path, strange[0], "--plan"),
        )
    ]


def shape_findings(store: Reader) -> list[Finding]:
    """What the schema cannot enforce: parents come before, passes lie inside their session, JSON can be read."""
    found = []
    parents = [(str(one), int(number)) for one, number in store.rows(_PARENTS)]
    if parents:
        found.append(_strange(
            "compaction_parents", parents, "was made from one that is not there, not older or not done",
            "were made from ones that are not there, not older or not done",
        ))
    running = store.rows(
        "SELECT s.id FROM compactions AS c JOIN sessions AS s ON s.no = c.session_no WHERE c.state = 'running'"
        " GROUP BY c.session_no HAVING count(*) > 1"
    )
    if running:
        ids = [str(one) for (one,) in running]
        found.append(_problem(
            "compactions_twice", "compactions",
            f"Two compactions run in one session: {_some(ids)}. The index that forbids it was taken out.",
            {"sessions": ids[:100]}, "",
        ))
    outside = [(str(one), int(number)) for one, number in store.rows(_OUTSIDE)]
    if outside:
        found.append(_strange(
            "compaction_outside", outside, "covers positions that its session does not have",
            "cover positions that their sessions do not have",
        ))
    unread = []
    for session_id, number, anchors, cut_at, error in store.rows(
        "SELECT s.id, c.generation, c.anchors, c.cut_at, c.error FROM compactions AS c JOIN sessions AS s"
        " ON s.no = c.session_no"
    ):
        places = _parsed(anchors)
        good = isinstance(places, list) and all(type(one) is int and one < cut_at for one in places)
        if not good or (error is not None and not isinstance(_parsed(error), dict)):
            unread.append((str(session_id), int(number)))
    for session_id, number, clip in store.iterate(
        "SELECT s.id, c.generation, p.clip FROM compaction_clips AS p JOIN compactions AS c ON c.id = p.compaction_id"
        " JOIN sessions AS s ON s.no = c.session_no"
    ):
        if (str(session_id), int(number)) not in unread[-1:] and not _readable_clip(clip):
            unread.append((str(session_id), int(number)))
    if unread:
        found.append(_unreadable(store, list(dict.fromkeys(unread))))
    return found


def _unreadable(store: Reader, which: Sequence[tuple[str, int]]) -> Finding:
    """Rows whose JSON is damaged: none of them is used for a view, and going back makes a session free of them."""
    used = {(str(one), int(number)) for one, _no, _owner, state, number in store.rows(_HEADS) if state == "done"}
    seen = [one for one in which if one in used]
    having = "has" if len(which) == 1 else "have"
    sentence = (
        f"{plural(len(which), 'compaction')} {having} anchors, clips or an error that cannot be read: {_named(which)}. "
        "That touches no message: a message whose clip is damaged is shown whole until the next pass, and instead of a "
        "compaction whose anchors are, an older one is used, or the whole history."
    )
    return Finding(
        code="compaction_unreadable", severity=Severity.WARNING if seen else Severity.INFO, object="compactions",
        sentence=sentence, facts={"compactions": [list(item) for item in which[:100]]},
        next_command=command("sessions compact", store.path, shell_word(seen[0][0]), "--rollback 0") if seen else "",
    )


def window_findings(store: Reader) -> list[Finding]:
    """What is told of where a window was seen can be read."""
    unread = [
        (str(model), str(endpoint), str(kind)) for model, endpoint, kind, evidence in store.rows(
            "SELECT model, endpoint, kind, evidence FROM model_windows"
        ) if not isinstance(_parsed(evidence), (dict, str))
    ]
    if not unread:
        return []
    model, endpoint, kind = unread[0]
    name = shell_word(f"{model}@{endpoint}" if endpoint else model)
    return [
        _problem(
            "window_unreadable", "model_windows",
            f"Where {plural(len(unread), 'window')} was seen cannot be read: {kind} of {model}. The number counts all "
            "the same.", {"windows": [list(one) for one in unread[:100]]},
            command("sessions window", store.path, name, f"--forget {kind}"),
        )
    ]


def source_findings(store: Reader, *, deep: bool) -> list[Finding]:
    """The messages that finished generations cover are those that they were made of."""
    which = (
        "SELECT c.id, s.id, c.generation, c.source_digest, c.source_rows, c.error FROM compactions AS c"
        " JOIN sessions AS s ON s.no = c.session_no WHERE c.state = 'done'"
    )
    if not deep:
        which += f" AND c.id IN (SELECT compaction_id FROM compaction_heads) ORDER BY c.id DESC LIMIT {SAMPLE}"
    changed: list[tuple[str, int]] = []
    lost: list[tuple[str, int]] = []
    for number, session_id, generation, digest, count, error in store.rows(which):
        source = source_of(store, int(number))
        if source is None or (source.digest, source.rows) == (digest, count):
            continue
        said = _parsed(error) if error is not None else None
        noted = isinstance(said, dict) and said.get("code") in NOTED
        (lost if noted else changed).append((str(session_id), int(generation)))
    found = []
    if changed:
        found.append(_strange(
            "compaction_source_changed", changed, "stands for messages that are not those it was made of",
            "stand for messages that are not those they were made of",
        ))
    if lost:
        found.append(Finding(
            code="compaction_source_lost", severity=Severity.INFO, object="compactions",
            sentence=f"{plural(len(lost), 'compaction')} stand{'s' if len(lost) == 1 else ''} for messages of which a "
            f"recovery found only some, or that a scrub has not done with ({_named(lost)}): the summary stays in use.",
            facts={"compactions": [list(one) for one in lost[:100]]},
        ))
    return found


def _strange(code: str, which: Sequence[tuple[str, int]], one: str, more: str) -> Finding:
    return _problem(
        code, "compactions",
        f"{plural(len(which), 'compaction')} {one if len(which) == 1 else more}: {_named(which)}. That touches no "
        "message, only what a model gets of the session.",
        {"compactions": [list(item) for item in which[:100]]}, "",
    )


def _readable_clip(text: Any) -> bool:
    from hermes_state.compaction.clips import Clip

    return Clip.read(text) is not None


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _named(which: Sequence[tuple[str, int]]) -> str:
    shown = ", ".join(f"generation {number} of {session_id}" for session_id, number in which[:5])
    return shown + (", …" if len(which) > 5 else "")


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")


def _fine(code: str, sentence: str, facts: dict[str, Any]) -> Finding:
    return Finding(code=code, severity=Severity.OK, object="compactions", sentence=sentence, facts=facts)


def _problem(code: str, what: str, sentence: str, facts: dict[str, Any], next_command: str) -> Finding:
    return Finding(
        code=code, severity=Severity.WARNING, object=what, sentence=sentence, facts=facts, next_command=next_command
    )
