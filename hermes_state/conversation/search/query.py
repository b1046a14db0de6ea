"""What a person typed, as filters and terms.

    words                 all must be there, in any order; case and accents do not matter
    "some words"          as a phrase
    -word  -"a phrase"    must not be there; also -source:cron and -role:tool
    a OR b                one of its two neighbours is enough; OR binds more closely than a space
    source:telegram  role:user  title:budget  title:"my budget"
    after:2026-05-01  before:2026-06  after:7d       UTC; a year, month, day, ISO moment, or an age in m, h, d, w

Invariant: no text is an error. What is not one of these forms is taken literally, punctuation included: `it's`,
`a/b.py`, `me@example.org`, `50%`, `wrong-book` and `snake_case` are phrases of their parts. A term without any letter
or digit counts only when there is no other: then it is looked for as it stands. Of a very long query the first 2,048
characters and 64 terms count.

Not for: time arguments of the call, which may be wrong and are then refused (`moment`). FTS5's own query syntax was
rejected as a user's language: everyday words are syntax errors in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hermes_state.conversation.search.text import CJK_RUN, bare, fold, is_cjk, pieces, separated
from hermes_state.errors import InvalidInput

MOST_CHARACTERS = 2048
MOST_TERMS = 64
_FIELD = re.compile(r'(source|role|title|after|before):(?:"([^"]+)"|([^\s"]\S*))')
_AGE = re.compile(r"(\d{1,5})([mhdw])\Z")
_AGE_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A word or phrase."""

    # for FTS5, quoted; "" when nothing of it is indexed
    match: str
    # folded parts that must all be in a text that matches; a single one is the whole term
    parts: tuple[str, ...]
    # the parts in a row, in folded text; None when there is only one
    pattern: re.Pattern[str] | None = None
    # a letter may not stand directly before or after it, as it would be another word
    begins_word: bool = False
    ends_word: bool = False

    def find(self, folded: str, at: int = 0) -> tuple[int, int] | None:
        """Where the term is in folded text, from `at` on: the first begin and end, or None."""
        while True:
            span = self._next(folded, at)
            if span is None:
                return None
            start, end = span
            joined = (self.begins_word and start > 0 and _is_letter(folded[start - 1])) or (
                self.ends_word and end < len(folded) and _is_letter(folded[end])
            )
            if not joined:
                return span
            at = start + 1

    def spans(self, folded: str) -> Iterator[tuple[int, int]]:
        """Every place in folded text where the term is."""
        span = self.find(folded)
        while span is not None:
            yield span
            span = self.find(folded, span[1])

    def within(self, folded: str) -> bool:
        """Whether folded text holds the term."""
        if self.pattern is not None and not all(part in folded for part in self.parts):
            return False  # far cheaper to see than by the pattern
        return self.find(folded) is not None

    def _next(self, folded: str, at: int) -> tuple[int, int] | None:
        if self.pattern is not None:
            found = self.pattern.search(folded, at)
            return None if found is None else found.span()
        start = folded.find(self.parts[0], at)
        return None if start < 0 else (start, start + len(self.parts[0]))


def _is_letter(character: str) -> bool:
    return character.isalnum() and (character.isascii() or not is_cjk(character))


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A parsed query. Every clause must be met, by one of its terms; no negative term may be."""

    clauses: tuple[tuple[Term, ...], ...] = ()
    negatives: tuple[Term, ...] = ()
    sources: tuple[str, ...] = ()
    without_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    without_roles: tuple[str, ...] = ()
    # parts of a title, each of which must be in it
    titles: tuple[str, ...] = ()
    # from this moment on, and up to but not including that one; epoch seconds
    after: float | None = None
    before: float | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The positive terms, in order."""
        return tuple(term for clause in self.clauses for term in clause)

    @property
    def indexable(self) -> bool:
        """Whether the index can answer it."""
        return bool(self.clauses) and all(term.match for term in (*self.terms, *self.negatives))

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing at all."""
        filters = (self.sources, self.without_sources, self.roles, self.without_roles, self.titles)
        return not (self.clauses or self.negatives or any(filters)) and self.after is None and self.before is None

    def matches(self, folded: str) -> bool:
        """Whether a folded text meets every clause."""
        return all(any(term.within(folded) for term in clause) for clause in self.clauses) and not any(
            term.within(folded) for term in self.negatives
        )


def parse(text: str, *, now: float) -> Query:
    """Read a query; `now` (epoch seconds) is what ages such as `after:7d` count from. Never raises for a text."""
    return _Parser(text[:MOST_CHARACTERS].replace("\0", " "), now).query()


def substring(text: str) -> Query:
    """A query for `text` exactly as it stands, inside words as well; case and accents do not matter."""
    return Query(clauses=((_literal(text[:MOST_CHARACTERS]),),)) if text else Query()


class _Parser:
    def __init__(self, text: str, now: float) -> None:
        self.text = text
        self.now = now
        self.clauses: list[list[Term]] = []
        self.negatives: list[Term] = []
        self.values: dict[str, list[str]] = {}
        self.after: float | None = None
        self.before: float | None = None
        self.or_pending = False

    def query(self) -> Query:
        at = 0
        while at < len(self.text):
            if self.text[at].isspace():
                at += 1
            elif len(self.clauses) + len(self.negatives) >= MOST_TERMS:
                break
            else:
                at = self._take(at)
        if self.or_pending:
            self.or_pending = False
            self._add(make_term("OR"), negative=False)
        clauses = [clause for clause in (self._indexed(clause) for clause in self.clauses) if clause]
        if not clauses:
            clauses = self.clauses
        get = self.values.get
        return Query(
            clauses=tuple(tuple(clause) for clause in clauses),
            negatives=tuple(term for term in self.negatives if term.match),
            sources=tuple(get("source", ())), without_sources=tuple(get("-source", ())),
            roles=tuple(get("role", ())), without_roles=tuple(get("-role", ())),
            titles=tuple(get("title", ())), after=self.after, before=self.before,
        )

    @staticmethod
    def _indexed(clause: list[Term]) -> list[Term]:
        return [term for term in clause if term.match]

    def _take(self, at: int) -> int:
        """Read what begins at `at`; gives where the next begins."""
        text = self.text
        negative = text[at] == "-" and at + 1 < len(text) and (text[at + 1].isalnum() or text[at + 1] == '"')
        start = at + 1 if negative else at
        field = _FIELD.match(text, start)
        if field is not None and self._filter(field[1], field[2] or field[3], negative):
            return field.end()
        if text[start] == '"':
            end = text.find('"', start + 1)
            if end < 0:
                return start + 1
            self._add(make_term(text[start + 1 : end]), negative)
            return end + 1
        end = start
        while end < len(text) and not text[end].isspace():
            end += 1
        word = text[start:end]
        if word == "OR" and not negative and self.clauses and not self.or_pending:
            self.or_pending = True
        else:
            self._add(make_term(word), negative)
        return end

    def _add(self, term: Term | None, negative: bool) -> None:
        if term is None:
            return
        if negative:
            self.negatives.append(term)
        elif self.or_pending and self.clauses:
            self.clauses[-1].append(term)
        else:
            self.clauses.append([term])
        self.or_pending = False

    def _filter(self, name: str, value: str, negative: bool) -> bool:
        """Use a filter; False when it cannot be one and is text like any other."""
        if name in ("after", "before"):
            when = None if negative else moment_in(value, self.now)
            if when is None:
                return False
            if name == "after":
                self.after = when if self.after is None else max(self.after, when)
            else:
                self.before = when if self.before is None else min(self.before, when)
        elif negative and name == "title":
            return False
        else:
            self.values.setdefault(f"-{name}" if negative else name, []).append(value)
        return True


# --- terms -------------------------------------------------------------------------------------------------------


def make_term(text: str) -> Term | None:
    """The term for a word or phrase; None for nothing but space."""
    found = pieces(fold(text))
    if not found:
        return _literal(text.strip()) if text.strip() else None
    text = separated(text)
    last = found[-1]
    open_end = is_cjk(last[0])
    runs = list(CJK_RUN.finditer(text))
    spread = CJK_RUN.sub(
        lambda run: f" {_pairs(bare(run[0]), open_end=open_end and run.start() == runs[-1].start())} ", text
    )
    # A single character at the end may be the beginning of a pair.
    star = " *" if open_end and len(last[0]) == 1 else ""
    match = '"' + spread.replace('"', " ").strip() + '"' + star
    parts = tuple(piece[0] for piece in found)
    pattern = None
    if len(found) > 1:
        # A gap is needed between two of a kind only: between CJK and other letters a term ends anyway.
        gaps = [
            r"[\W_]*" if is_cjk(left[0]) != is_cjk(right[0]) else r"[\W_]+" for left, right in pairwise(found)
        ]
        pattern = re.compile("".join(
            f"{gap}{re.escape(part)}" for gap, part in zip(["", *gaps], parts, strict=True)
        ))
    return Term(
        match=_utf8(match), parts=parts, pattern=pattern, begins_word=not is_cjk(found[0][0]),
        ends_word=not is_cjk(last[0]),
    )


def _literal(text: str) -> Term:
    return Term(match="", parts=(fold(text),))


def _pairs(run: str, *, open_end: bool) -> str:
    """A run as the index has it. At the open end of a term a text may go on, so the last letter alone is left out."""
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return " ".join(pairs if open_end and pairs else [*pairs, run[-1]])


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


# --- moments -----------------------------------------------------------------------------------------------------


def moment_in(value: str, now: float) -> float | None:
    """The moment that a filter names, in epoch seconds; None when it names none."""
    age = _AGE.match(value)
    if age is not None:
        return now - int(age[1]) * _AGE_SECONDS[age[2]]
    month = _MONTH.match(value)
    try:
        if month is not None:
            return datetime(int(month[1]), int(month[2] or 1), 1, tzinfo=UTC).timestamp()
        when = datetime.fromisoformat(value)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def moment(name: str, value: object) -> float | None:
    """A time argument of a call: epoch seconds, or an aware datetime. Raises `InvalidInput` for anything else."""
    if value is None:
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12:
        return float(value)
    raise InvalidInput(
        f"{name} is a time in epoch seconds or a datetime with a time zone, not {value!r}.", argument=name
    )
