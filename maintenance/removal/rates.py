"""How much work deleting is, in bytes of rewriting, so that one rate serves every estimate of a lock's time.

Invariant: an estimate is rather too long than too short. Not for: pacing, which measures each transaction.
"""

from __future__ import annotations

from maintenance.gate.hold import REWRITE_BYTES_PER_SECOND

# Text whose rows leave the search indexes, which tokenize it again. Measured on 29 MB of text in 50,000 messages of a
# 455 MB file, ext4, 2 busy cores: 2.3 to 4.4 MB/s, with the tokenizer in Python 3.6 MB/s. Rounded down.
TEXT_BYTES_PER_SECOND = 2_000_000


def bytes_of_work(text_bytes: int) -> int:
    """Bytes of rewriting that take as long as deleting rows with this much text."""
    return int(text_bytes / TEXT_BYTES_PER_SECOND * REWRITE_BYTES_PER_SECOND)
