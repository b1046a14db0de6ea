"""Where the body of a message is kept: in its row, or once in `bodies` under its hash.

Invariant: a body is the same bytes whichever way it is kept; equal hashes are compared in full before two rows share
one. A row with a `body_no` keeps a preview in `content`, and nothing but this module tells the two apart.

The sizes. SHARE_BYTES: from one page (4 KiB) on a row spills into overflow pages anyway, so one look into the hash
index (3 microseconds) buys at least a page when the body is there already. OWN_BYTES: a new body in `bodies` touches
three more b-tree leaves than one in its row, 12 KiB of WAL. Measured in bytes written, that is 1.6 times the row at
4 KiB, 1.4 times at 16 KiB and 1.05 times at 64 KiB, against nothing at all for each repeat. COMPRESS_BYTES: below 1 KiB
what is saved is hardly more than the preview and the two index entries that replace it.

Not for: deciding when cold rows are compressed (the optimize command does). Reference counts were rejected: the index
on `messages.body_no` answers whether a body is used, and a count can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from hermes_state import json_values
from hermes_state.conversation.records import CompressResult
from hermes_state.conversation.row_check import HASHED_BYTES, Raw, digest
from hermes_state.engine import frames
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word

SHARE_BYTES = HASHED_BYTES
OWN_BYTES = 16 * 1024
COMPRESS_BYTES = 1024
PREVIEW_CHARACTERS = 240
WORTH_SAVING = 0.9  # a frame above this share of the raw size is not kept
BATCH = 500  # bound variables of one statement; SQLite's own limit is 32,766


class Reads(Protocol):
    """A reader or a transaction."""

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


class Frame(NamedTuple):
    """A body ready to be stored, hashed (and compressed) before the write lock is taken."""

    hash: int
    raw: bytes
    # the zstd frame, None for plain
    zstd: bytes | None
    # the body as a value, and its type
    value: Raw
    content_type: str | None
    # False: only share a body that is there already, else keep the content in its row
    own: bool

    @property
    def preview(self) -> str:
        """What the row shows in place of the body."""
        return preview_of(self.content_type, self.value)


def preview_of(content_type: str | None, raw: Raw) -> str:
    """The first 240 characters of a body as text, control characters kept; bytes are read as UTF-8."""
    if isinstance(raw, bytes):
        return raw[: PREVIEW_CHARACTERS * 4].decode("utf-8", "replace")[:PREVIEW_CHARACTERS]
    return "" if raw is None else str(raw)[:PREVIEW_CHARACTERS]


def prepare(content_type: str | None, raw: Raw, encoded: bytes, *, compress: bool) -> Frame | None:
    """What to store of a body of `encoded` bytes, or None when it stays in its row. Pure: call it outside the lock."""
    size = len(encoded)
    zstd = _worthwhile(encoded) if compress and size >= COMPRESS_BYTES else None
    if zstd is None and size < SHARE_BYTES:
        return None
    return Frame(digest(encoded), encoded, zstd, raw, content_type, zstd is not None or size >= OWN_BYTES)


def place(tx: Transaction, frame: Frame) -> int | None:
    """The `bodies` row that holds this body: an equal one, or a new one when it deserves its own; else None."""
    found = find(tx, frame.hash, frame.raw)
    if found is not None or not frame.own:
        return found
    return insert(tx, frame.hash, frame.raw, frame.zstd)


def find(tx: Reads, hash_: int, raw: bytes) -> int | None:
    """The number of the body that equals `raw`, compared in full."""
    for no, codec, same in tx.rows(
        "SELECT no, codec, frame = ? FROM bodies WHERE hash = ? AND raw_bytes = ?", (raw, hash_, len(raw))
    ):
        if same if codec == "plain" else _unpack(tx, no, *_frame(tx, no)) == raw:
            return int(no)
    return None


def there(tx: Reads, hashes: Sequence[int]) -> set[int]:
    """Those of the hashes that some body has, by one statement for 500."""
    found: set[int] = set()
    if not tx.rows("SELECT 1 FROM bodies LIMIT 1"):
        return found  # a store that was never optimized often has none: 2 us instead of 10
    for some in batches(hashes):
        marks = ",".join("?" * len(some))
        found.update(row[0] for row in tx.rows(f"SELECT hash FROM bodies WHERE hash IN ({marks})", some))
    return found


def insert(tx: Transaction, hash_: int, raw: bytes, zstd: bytes | None) -> int:
    """Add a body and return its number."""
    tx.execute(
        "INSERT INTO bodies (hash, codec, raw_bytes, frame) VALUES (?, ?, ?, ?)",
        (hash_, "plain" if zstd is None else "zstd", len(raw), raw if zstd is None else zstd),
    )
    return int(tx.last_insert_rowid())


def free(tx: Transaction, body_nos: Iterable[int]) -> int:
    """Remove those of the bodies that no message refers to any more; returns how many."""
    freed = 0
    for some in batches(sorted(set(body_nos))):
        marks = ",".join("?" * len(some))
        freed += tx.execute(
            f"DELETE FROM bodies WHERE no IN ({marks})"
            " AND NOT EXISTS (SELECT 1 FROM messages WHERE body_no = bodies.no)",
            some,
        )
    return freed


# --- reading -----------------------------------------------------------------------------------------------------


def read_contents(reader: Reads, rows: Sequence[Sequence[Any]]) -> list[Raw]:
    """The raw bodies of rows that begin with content_type, content, body_no, in their order; a shared one is read once.

    JSON stays text, as `row_check` covers it; `decode` makes Python values of it. Read the rows and their bodies in
    one snapshot or transaction: an online compression may move a body in between. Raises `Corrupt` when a frame does
    not give back what was recorded, with `body_no`.
    """
    wanted = sorted({row[2] for row in rows if row[2] is not None})
    if not wanted:
        return [row[1] for row in rows]
    loaded: dict[int, bytes] = {}
    for some in batches(wanted):
        marks = ",".join("?" * len(some))
        found = reader.rows(f"SELECT no, codec, raw_bytes, frame FROM bodies WHERE no IN ({marks})", some)
        for no, codec, size, frame in found:
            loaded[no] = _unpack(reader, no, codec, size, frame)
    texts: dict[int, str] = {}
    out: list[Raw] = []
    for row in rows:
        content_type, content, body_no = row[0], row[1], row[2]
        if body_no is None:
            out.append(content)
        elif body_no not in loaded:
            raise _damaged(reader, body_no, "is missing")
        elif content_type == "bytes":
            out.append(loaded[body_no])
        else:
            if body_no not in texts:
                texts[body_no] = _text(reader, body_no, loaded[body_no])
            out.append(texts[body_no])
    return out


def decode(content_type: str | None, raw: Raw) -> Any:
    """The Python value of a raw body. Only the type column says that a text is JSON, never the text itself.

    JSON that was damaged is given as the text it is: the rest of a conversation can still be read, and the row's check
    tells the doctor.
    """
    if content_type != "json" or not isinstance(raw, (str, bytes)):
        return raw
    try:
        return json_values.read(raw)
    except ValueError:
        return raw


# --- compressing cold rows ---------------------------------------------------------------------------------------


def compress_rows(tx: Transaction, message_ids: Iterable[int]) -> CompressResult:
    """Move the bodies of these messages to zstd frames where that saves a tenth; the rest stays as it is.

    Takes 10 to 20 ms of the write lock for a megabyte of bodies, so callers pass batches. Rows below 1 KiB and those
    compressed already are skipped; the row's check does not change. Raises `Corrupt`.
    """
    rows = raw_total = stored_total = 0
    for some in batches(sorted(set(message_ids))):
        marks = ",".join("?" * len(some))
        # One at a time: a batch of large bodies need not fit into memory together.
        for no, content_type, body_no in tx.rows(
            f"SELECT id, content_type, body_no FROM messages WHERE id IN ({marks})"
            f" AND content_type IN ('text', 'json', 'bytes')"
            f" AND (body_no IS NOT NULL OR octet_length(content) >= {COMPRESS_BYTES})",
            some,
        ):
            sizes = _compress_body(tx, body_no) if body_no else _compress_row(tx, no, content_type)
            if sizes is not None:
                rows, raw_total, stored_total = rows + 1, raw_total + sizes[0], stored_total + sizes[1]
    return CompressResult(rows=rows, raw_bytes=raw_total, stored_bytes=stored_total)


def _compress_row(tx: Transaction, message_id: int, content_type: str) -> tuple[int, int] | None:
    (raw,) = tx.rows("SELECT content FROM messages WHERE id = ?", (message_id,))[0]
    encoded = raw.encode("utf-8") if isinstance(raw, str) else raw
    hash_, stored = digest(encoded), 0
    body_no = find(tx, hash_, encoded)
    if body_no is None:
        zstd = _worthwhile(encoded)
        if zstd is None:
            return None
        body_no, stored = insert(tx, hash_, encoded, zstd), len(zstd)
    tx.execute(
        "UPDATE messages SET content = ?, body_no = ? WHERE id = ?",
        (preview_of(content_type, raw), body_no, message_id),
    )
    return len(encoded), stored


def _compress_body(tx: Transaction, body_no: int) -> tuple[int, int] | None:
    codec, size, frame = _frame(tx, body_no)
    zstd = _worthwhile(frame) if codec == "plain" and size >= COMPRESS_BYTES else None
    if zstd is None:
        return None
    tx.execute("UPDATE bodies SET codec = 'zstd', frame = ? WHERE no = ?", (zstd, body_no))
    return size, len(zstd)


def _worthwhile(raw: bytes) -> bytes | None:
    zstd = frames.compress(raw)
    return zstd if len(zstd) <= len(raw) * WORTH_SAVING else None


def _frame(reader: Reads, body_no: int) -> tuple[str, int, bytes]:
    codec, size, frame = reader.rows("SELECT codec, raw_bytes, frame FROM bodies WHERE no = ?", (body_no,))[0]
    return codec, size, frame


def _unpack(reader: Reads, body_no: int, codec: str, size: int, frame: bytes) -> bytes:
    if codec == "zstd":
        try:
            return frames.decompress(frame, size)
        except frames.FrameDamaged as error:
            raise _damaged(reader, body_no, f"is damaged ({error})") from error
    if len(frame) != size:
        raise _damaged(reader, body_no, f"has {len(frame)} bytes where {size} were recorded")
    return frame


def _text(reader: Reads, body_no: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(reader, body_no, f"is not UTF-8 ({error.reason})") from error


def _damaged(reader: Reads, body_no: int, how: str) -> Corrupt:
    path = getattr(reader, "path", None)
    return Corrupt(
        f"Message body {body_no} of {path} {how}.",
        hint=f"Run `hermes-state doctor --db {shell_word(str(path))}` to see which messages use "
        "it.", path=path, body_no=body_no,
    )


def batches(numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]
