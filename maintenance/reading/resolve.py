"""From what a person typed to one session.

Invariant: an exact id wins, then the only id that starts with the text, then a title (its newest numbered form). What
fits several sessions is refused, never guessed. Not for: filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, NotFound
from hermes_state.shell_words import shell_word
from maintenance.dialects.base import Dialect

if TYPE_CHECKING:
    from hermes_state.engine import Reader

SHOWN_CANDIDATES = 5


def resolve_session(reader: Reader, dialect: Dialect, text: str, *, titles: bool = True) -> str:
    """The id of the session that `text` names. `titles=False` for verbs that delete: those want an id."""
    wanted = text.strip()
    if not wanted:
        raise InvalidInput("The name of a session is empty.", hint="Give an id, the start of one, or a title.")
    ids = dialect.ids_with_prefix(reader, wanted, SHOWN_CANDIDATES + 1)
    if wanted in ids:
        return wanted
    if len(ids) == 1:
        return ids[0]
    if ids:
        more = ", …" if len(ids) > SHOWN_CANDIDATES else ""
        raise InvalidInput(
            f"{wanted!r} is the start of several session ids: {', '.join(ids[:SHOWN_CANDIDATES])}{more}.",
            hint="Give more of the id.",
            candidates=tuple(ids),
        )
    if titles:
        titled = dialect.ids_with_title(reader, wanted, 1)
        if titled:
            return titled[0]
    also = ", or that title" if titles else ""
    raise NotFound(
        f"No session in {reader.path} has an id that starts with {wanted!r}{also}.",
        hint=f"`hermes-state sessions list --all --db {shell_word(reader.path)}` shows every session.",
        session=wanted,
    )
