"""Titles: one name for one conversation.

Invariant: a title is unique among all sessions of a store and belongs to a conversation, not to one session of it: it
is kept by the tip, and whoever asks for it there takes it from an earlier session of the same chain. A title that a
person gave is never overwritten by a derived one, nor one of a language model.

Not for: finding words in titles (see `listing` and `search`). Making a taken title unique without being asked was
rejected: two conversations that differ by " #2" only because of a race are not what anybody named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from hermes_state import changes
from hermes_state.conversation.lineage import chain_numbers, tip_no
from hermes_state.conversation.session_rows import Session, TitleSource, load, scrub, session_no, wall_time
from hermes_state.errors import InvalidInput, Refused, TitleTaken

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

LONGEST = 100  # characters, as hermes-agent allows
_RANK = {"derived": 0, "llm": 1, "user": 2}
# Control characters but tab and line ends, and characters that are invisible or turn the direction of writing.
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffc]")
_NUMBERED = re.compile(r"(.+) #([1-9]\d{0,8})\Z", re.DOTALL)


def sanitize(title: str | None) -> str | None:
    """A title as it is kept: no control or invisible characters, one space for any white space; None when nothing is
    left.

    Raises `InvalidInput` for more than 100 characters, and for what is not a text.
    """
    if title is None:
        return None
    if not isinstance(title, str):
        raise InvalidInput(f"A title is a text, not {type(title).__name__}.", argument="title")
    text = " ".join(_UNSEEN.sub("", scrub(title)).split())
    if len(text) > LONGEST:
        raise InvalidInput(
            f"The title has {len(text)} characters; at most {LONGEST} are kept.", hint="Shorten it.",
            argument="title", characters=len(text),
        )
    return text or None


def give(tx: Transaction, no: int, title: str | None, source: TitleSource | None) -> None:
    """Give the session of number `no` a sanitized title, taken from an earlier session of its conversation if need be.

    Raises `TitleTaken` when a session of another conversation has it.
    """
    if title is not None:
        holder = tx.row("SELECT no, id FROM sessions WHERE title = ?", (title,))
        if holder is not None and holder[0] != no:
            if holder[0] not in chain_numbers(tx, no):
                raise TitleTaken(
                    f"The title {title!r} belongs to session {holder[1]} in {tx.path}.",
                    hint="Choose another title, or rename that session first.",
                    path=tx.path, title=title, session_id=holder[1],
                )
            tx.execute("UPDATE sessions SET title = NULL, title_source = NULL WHERE no = ?", (holder[0],))
    tx.execute(
        "UPDATE sessions SET title = ?, title_source = ? WHERE no = ?",
        (title, None if title is None else source, no),
    )


def move(tx: Transaction, from_no: int, to_no: int) -> None:
    """Take the title of one session of a conversation to another one of it."""
    title, source = tx.rows("SELECT title, title_source FROM sessions WHERE no = ?", (from_no,))[0]
    if title is not None:
        tx.execute("UPDATE sessions SET title = NULL, title_source = NULL WHERE no = ?", (from_no,))
        tx.execute("UPDATE sessions SET title = ?, title_source = ? WHERE no = ?", (title, source, to_no))


class Titles:
    """`store.titles`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @staticmethod
    def sanitize(title: str | None) -> str | None:
        """A title as it would be kept, None when nothing is left of it. Raises `InvalidInput` above 100 characters."""
        return sanitize(title)

    def set(self, session_id: str, title: str | None, *, source: TitleSource = "user") -> Session:
        """Name the conversation of a session, or take its name away (None, or nothing left of it); returns its tip.

        Overwrites whatever title is there; for titles that nobody asked for see `set_auto_if_empty`.
        Raises `TitleTaken`, `InvalidInput`, `SessionNotFound`, `SessionDeleted`, and `Refused` for a hidden session
        that has its title already.
        """
        wanted = sanitize(title)
        _check_source(source)

        def work(tx: Transaction) -> Session:
            no = tip_no(tx, session_no(tx, session_id))
            tip_id, hidden, current = tx.rows("SELECT id, hidden, title FROM sessions WHERE no = ?", (no,))[0]
            if hidden and current is not None and current != wanted:
                raise Refused(
                    f"Session {tip_id!r} of {tx.path} is a hidden one with a fixed title; it was not renamed.",
                    hint="Leave its title as it is.", path=tx.path, session_id=tip_id,
                )
            give(tx, no, wanted, source)
            changes.record(tx, "sessions", tip_id, "update", wall_time(self._core.clock))
            return load(tx, no)

        return self._core.write(work)

    def set_auto_if_empty(
        self, session_id: str, title: str, *, source: TitleSource = "derived", expected: str | None = None
    ) -> bool:
        """Name a conversation by itself, unless something better is there; True when the title was set.

        It is set when the conversation has no title, or one of a lower rank (derived < llm < user; a title of unknown
        source counts as a person's), or exactly `expected`, the title the caller saw before it thought of a better
        one, of the same rank. Compared and set in one transaction, so a rename that came first stays.
        Raises `TitleTaken` (see `next_in_lineage`), `InvalidInput`, `SessionNotFound`, `SessionDeleted`.
        """
        wanted = sanitize(title)
        _check_source(source)
        if wanted is None:
            return False

        def work(tx: Transaction) -> bool:
            no = tip_no(tx, session_no(tx, session_id))
            tip_id, hidden, current, of = tx.rows(
                "SELECT id, hidden, title, title_source FROM sessions WHERE no = ?", (no,)
            )[0]
            if current is not None:
                here, ours = _RANK[of or "user"], _RANK[source]
                if hidden or here > ours or (here == ours and current != expected):
                    return False
            give(tx, no, wanted, source)
            changes.record(tx, "sessions", tip_id, "update", wall_time(self._core.clock))
            return True

        return self._core.write(work)

    def get(self, session_id: str) -> str | None:
        """The title of a session's conversation, or None. Raises `SessionNotFound`, `SessionDeleted`."""
        with self._core.reader() as reader, reader.snapshot():
            no = tip_no(reader, session_no(reader, session_id))
            found: str | None = reader.rows("SELECT title FROM sessions WHERE no = ?", (no,))[0][0]
            return found

    def by_title(self, title: str) -> Session | None:
        """The session that has exactly this title, or None."""
        wanted = sanitize(title)
        with self._core.reader() as reader, reader.snapshot():
            row = reader.row("SELECT no FROM sessions WHERE title = ?", (wanted,))
            return None if row is None else load(reader, row[0])

    def resolve(self, title: str) -> Session | None:
        """The session that a person means by a title, as its conversation's tip; None when there is none.

        A title with a number ("plan #2") means itself. One without means the highest numbered of its lineage
        ("plan", "plan #2", "plan #3" -> "plan #3"), or itself when there is no other.
        """
        wanted = sanitize(title)
        if wanted is None:
            return None
        with self._core.reader() as reader, reader.snapshot():
            highest = 0 if _NUMBERED.match(wanted) else _highest_number(reader, wanted)
            name = f"{wanted} #{highest}" if highest else wanted
            row = reader.row("SELECT no FROM sessions WHERE title = ?", (name,))
            return None if row is None else load(reader, tip_no(reader, row[0]))

    def next_in_lineage(self, title: str) -> str:
        """The next free title of a lineage: "plan" -> "plan #2" when "plan" is there, "plan #3" -> "plan #4", ...

        A title that nothing of its lineage has comes back as it is. Shortened where the number would make it longer
        than 100 characters. Raises `InvalidInput` when nothing is left of the title.
        """
        wanted = sanitize(title)
        if wanted is None:
            raise InvalidInput("An empty title has no next one.", argument="title")
        numbered = _NUMBERED.match(wanted)
        base = numbered.group(1) if numbered else wanted
        with self._core.reader() as reader, reader.snapshot():
            highest = _highest_number(reader, base)
            if not highest and reader.row("SELECT 1 FROM sessions WHERE title = ?", (base,)) is None:
                return base
            while True:
                highest = max(highest, 1) + 1
                suffix = f" #{highest}"
                candidate = base[: LONGEST - len(suffix)].rstrip() + suffix
                if reader.row("SELECT 1 FROM sessions WHERE title = ?", (candidate,)) is None:
                    return candidate


def _highest_number(reader: Reader, base: str) -> int:
    """The highest N of the titles "base #N", 0 when there is none.

    Reads the titles that begin so, through their index.
    """
    start = f"{base} #"
    row = reader.row(
        "SELECT max(CAST(substr(title, ?3) AS INTEGER)) FROM sessions WHERE title >= ?1 AND title < ?2"
        " AND length(title) BETWEEN ?3 AND ?3 + 8 AND substr(title, ?3) NOT GLOB '*[^0-9]*'"
        " AND substr(title, ?3, 1) BETWEEN '1' AND '9'",
        (start, f"{base} $", len(start) + 1),
    )
    return 0 if row is None or row[0] is None else int(row[0])


def _check_source(source: str) -> None:
    if source not in get_args(TitleSource):
        raise InvalidInput(f"A title comes from derived, llm or user, not from {source!r}.", argument="source")
