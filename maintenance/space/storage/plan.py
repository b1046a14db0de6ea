"""What `sessions optimize-storage` would do, and about how large the file will be afterwards.

Invariant: reading only. The estimate takes the postings of the old indexes in proportion to the text that the new ones
read; it is called an estimate wherever it is shown.

Not for: an exact size. Building the new index in memory to measure it was rejected: that is the conversion itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from maintenance.gate import hold_lines
from maintenance.output.text import human_bytes, plural
from maintenance.plan import Plan
from maintenance.space.disk import Need, Room, rooms
from maintenance.space.litestream import Litestream, litestream
from maintenance.space.merge import PAGES_A_TRANSACTION
from maintenance.space.reclaim import needs
from maintenance.space.sizes import ObjectSize, Sizes, by_object, directory_of, sizes
from maintenance.space.storage.convert import BACKFILL_BYTES
from maintenance.space.storage.layout import INDEXES, TOOL_CHARACTERS, TRIGRAM, WORDS
from maintenance.space.storage.state import StorageState, storage_state

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore, Store
    from lockowners import Scan

Switch = Literal["on", "off"]

# Backfill, index check and rewrite together: a 200 MB file, 38 MB of text for the two indexes, took 3.5 s on an idle
# 2-core virtual machine and 8 s on a busy one.
CONVERT_BYTES_PER_SECOND = 4_000_000
# Bytes a row that FTS5 keeps for the lengths of its texts.
_DOCSIZE_BYTES = 12


@dataclass(frozen=True, kw_only=True)
class StorageChoices:
    """What the user asked for."""

    # Turn the trigram index off or on; None leaves it as it is.
    trigram: Switch | None = None
    # Return the freed pages at the end.
    vacuum: bool = True
    # Build the indexes anew even where the file has the layout already.
    rebuild: bool = False


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How much text the indexes read, in bytes."""

    # What the old layout reads: everything.
    everything: int
    # What the word index of the new layout reads: tool output only from its beginning.
    words: int
    # What the trigram index reads: no tool output, no scheduled jobs, no delegates.
    trigram: int
    # Messages.
    rows: int


@dataclass(frozen=True, kw_only=True)
class StoragePlan:
    """What was found and what would be done."""

    # The store.
    path: Path
    # Its search layout.
    state: StorageState
    # Its size now.
    sizes: Sizes
    # Every table and index by size; empty when there is nothing to do.
    objects: tuple[ObjectSize, ...]
    # Text that the indexes read; zero when there is nothing to do.
    texts: Texts
    # About the bytes in use afterwards.
    estimate_bytes: int
    # Signs of a replica.
    litestream: Litestream
    # File systems that would be written to.
    rooms: tuple[Room, ...]
    # What was asked for.
    choices: StorageChoices

    @property
    def converts(self) -> bool:
        """Whether the layout changes or a conversion goes on."""
        return self.choices.rebuild or not self.state.done

    @property
    def trigram_after(self) -> bool:
        """Whether the trigram index will hold text."""
        return self.state.trigram if self.choices.trigram is None else self.choices.trigram == "on"

    @property
    def switches(self) -> bool:
        """Whether only the trigram index changes."""
        return not self.converts and self.trigram_after != self.state.trigram

    @property
    def nothing_to_do(self) -> bool:
        """Whether the file is as asked already."""
        return nothing_to_do(self.state, self.choices)

    def index_bytes(self) -> int:
        """Bytes of the search indexes and their leftovers now."""
        return sum(item.bytes for item in self.objects if item.kind == "leftover" or item.name in INDEXES)

    def shown(self) -> Plan:
        """The plan for people and programs."""
        return Plan(title=f"Convert the search indexes of {self.path}", lines=self._lines(), facts=self._facts())

    def _lines(self) -> tuple[str, ...]:
        if self.nothing_to_do:
            return ("Nothing to do: the file has the smaller search layout already.",)
        lines = list(self.litestream.cost_lines(self.estimate_bytes)[:1])
        share = self.index_bytes() / self.sizes.used_bytes if self.sizes.used_bytes else 0.0
        lines.append(
            f"File {human_bytes(self.sizes.file_bytes)}; search takes {human_bytes(self.index_bytes())} "
            f"({100 * share:.0f} %)."
        )
        lines.append(self._what())
        lines.append(f"In use afterwards: about {human_bytes(self.estimate_bytes)} (an estimate).")
        if not self.choices.vacuum:
            lines.append("The freed pages stay in the file (--no-vacuum).")
        if not self.trigram_after:
            lines.append(
                "The trigram index is off: hermes-agent will find no CJK text and no parts of words. "
                "--trigram on brings it back."
            )
        lines.append(
            "If it is stopped midway, search finds only part of the text until it is run again; conversations are not "
            "touched."
        )
        lines.extend(hold_lines(self._work_bytes(), rate=CONVERT_BYTES_PER_SECOND))
        return tuple(lines)

    def _what(self) -> str:
        if self.switches:
            return f"Switch the trigram index {'on: index' if self.trigram_after else 'off: drop'} its text."
        if self.state.pending:
            done, of = self.state.progress or 0, self.state.high_water or 0
            return f"Go on with a conversion that was begun: {done} of {of} rows are indexed."
        return f"Index {plural(self.texts.rows, 'message')} anew, without storing their text a second time."

    def _work_bytes(self) -> int:
        text = self.texts.words + (self.texts.trigram if self.trigram_after else 0)
        return text + (self.estimate_bytes // 10 if self.choices.vacuum else 0)

    def _facts(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "already_done": self.nothing_to_do,
            "state": self.state.document(),
            "sizes": self.sizes.document(),
            "index_bytes": None if self.nothing_to_do else self.index_bytes(),
            "estimate_bytes": self.estimate_bytes,
            "trigram": self.trigram_after,
            "vacuum": self.choices.vacuum,
            "litestream": self.litestream.document(),
            "rooms": [room.document() for room in self.rooms],
        }


def look(reader: ReadStore | Store, choices: StorageChoices, scan: Scan | None = None) -> StoragePlan:
    """Make the plan; raises SchemaTooOld or SchemaTooNew where the layout is not defined.

    Estimating reads the whole file, so it is left out where there is nothing to do.
    """
    state = storage_state(reader)
    found = sizes(reader)
    objects: tuple[ObjectSize, ...] = ()
    texts = Texts(everything=0, words=0, trigram=0, rows=0)
    estimate = found.used_bytes
    room: tuple[Room, ...] = ()
    if not nothing_to_do(state, choices):
        objects = by_object(reader)
        texts = text_bytes(reader)
        trigram = state.trigram if choices.trigram is None else choices.trigram == "on"
        estimate = estimate_after(reader, state, found, objects, texts, trigram=trigram)
        room = _rooms(reader, found, estimate, texts, choices, trigram_only=state.done)
    return StoragePlan(
        path=reader.path,
        state=state,
        sizes=found,
        objects=objects,
        texts=texts,
        estimate_bytes=estimate,
        litestream=litestream(reader, scan),
        rooms=room,
        choices=choices,
    )


def nothing_to_do(state: StorageState, choices: StorageChoices) -> bool:
    """Whether a file in this state is as asked already; costs nothing but the look at the schema."""
    return state.done and not choices.rebuild and choices.trigram in (None, "on" if state.trigram else "off")


def again(reader: Store, plan: StoragePlan) -> StoragePlan:
    """The plan as the lock found the store: what may have moved is read again, without reading the whole file."""
    state, found = storage_state(reader), sizes(reader)
    return replace(
        plan,
        state=state,
        sizes=found,
        rooms=_rooms(reader, found, plan.estimate_bytes, plan.texts, plan.choices, trigram_only=state.done),
    )


def text_bytes(reader: ReadStore | Store) -> Texts:
    """How much text each index reads; one pass over the messages."""
    found = reader.row(
        f"""
        SELECT COALESCE(sum(content + calls), 0),
               COALESCE(sum(iif(tool, min(content, {TOOL_CHARACTERS}), content) + calls), 0),
               COALESCE(sum(iif(tool OR apart, 0, content)), 0), count(*)
        FROM (
            SELECT COALESCE(octet_length(m.content), 0) AS content, m.role = 'tool' AS tool,
                   COALESCE(octet_length(m.tool_calls), 0) + COALESCE(octet_length(m.tool_name), 0) AS calls,
                   COALESCE(s.source, '') IN ('cron', 'subagent')
                   OR json_extract(
                       iif(json_valid(s.model_config), s.model_config, '{{}}'), '$._delegate_from'
                   ) IS NOT NULL AS apart
            FROM messages AS m LEFT JOIN sessions AS s ON s.id = m.session_id
        )
        """
    )
    everything, words, trigram, rows = found or (0, 0, 0, 0)
    return Texts(everything=int(everything), words=int(words), trigram=int(trigram), rows=int(rows))


def estimate_after(
    reader: ReadStore | Store,
    state: StorageState,
    found: Sizes,
    objects: tuple[ObjectSize, ...],
    texts: Texts,
    *,
    trigram: bool,
) -> int:
    """About the bytes in use after the conversion."""
    by_name = {item.name: item.bytes for item in objects}
    if state.done:
        gone = by_name.get(TRIGRAM, 0) if not trigram else 0
        # A trigram index takes about two and a half times its text.
        return found.used_bytes - gone + (texts.trigram * 5 // 2 if trigram and not state.trigram else 0)
    rest = found.used_bytes - sum(
        size for name, size in by_name.items() if name in INDEXES or any(name == trash for trash in state.trash)
    )
    if state.layout != "inline" or not texts.everything:
        words, grams = texts.words // 2, texts.trigram * 5 // 2
    else:
        words = _postings(reader, WORDS) * texts.words // texts.everything
        grams = _postings(reader, TRIGRAM) * texts.trigram // texts.everything
    return rest + words + (grams if trigram else 0) + 2 * _DOCSIZE_BYTES * texts.rows


def _postings(reader: ReadStore | Store, index: str) -> int:
    """Bytes of an index without its copy of the text."""
    found = reader.row("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{index}_data",))
    if found is None:
        return 0
    size = reader.row("SELECT sum(pgsize) FROM dbstat WHERE name = ? AND aggregate = TRUE", (f"{index}_data",))
    return int(size[0] or 0) if size else 0


def _rooms(
    reader: ReadStore | Store, found: Sizes, estimate: int, texts: Texts, choices: StorageChoices, *, trigram_only: bool
) -> tuple[Room, ...]:
    beside = directory_of(reader.path)
    # The trigram switch indexes all of its text in one transaction; a conversion commits in batches.
    batch = 4 * texts.trigram if trigram_only else 4 * min(texts.everything, BACKFILL_BYTES)
    batch = max(batch, min(found.used_bytes, PAGES_A_TRANSACTION * found.page_size))
    if not choices.vacuum:
        return rooms([Need(directory=beside, bytes=2 * batch, what="the store's log")])
    after = Sizes(
        file_bytes=found.file_bytes,
        wal_bytes=0,
        page_size=found.page_size,
        page_count=max(found.page_count, estimate // found.page_size),
        free_pages=max(0, found.page_count - estimate // found.page_size),
    )
    return rooms(needs(reader.path, after, method="vacuum", journal_mode=reader.journal_mode, merge_bytes=batch))

