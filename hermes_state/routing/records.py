"""A routing entry as it stands, and reading it.

Invariant: every column of a row is here, read by one list of columns, with the content of the store that it was read
from. A store from before routing has no entries, and is read as such.

Not for: changing rows (see `changing`). Objects that follow their row were rejected: a change must name what it was
decided on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import Corrupt, InvalidInput
from hermes_state.outbox.inputs import text, whole
from hermes_state.routing.identity import Source
from hermes_state.routing.keys import SessionKey
from hermes_state.routing.states import TABLE, Act, Outcome, State
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader

COLUMNS = (
    "session_key, home, runtime_profile, transport_profile, platform, chat_type, chat_id, thread_id, user_id, origin,"
    " session_id, state, state_at, state_reason, reset_reason, reset_had_activity, fresh, model_override, generation,"
    " version, created_at, updated_at, (SELECT incarnation FROM store)"
)
# Rows of one page.
MOST_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Route:
    """One row: where the messages of one chat go on. A change names the row as it was read."""

    key: SessionKey
    home: str  # store_id of the home that it runs in
    transport_profile: str | None  # whose bot received it and alone may answer; None: from before this was kept
    origin: Source  # where answers go
    session_id: str  # as it was bound: it may have been deleted or continued since
    state: State
    state_at: float  # epoch seconds UTC
    state_reason: str  # of the mark; "" when active
    reset_reason: str | None  # why the newest reset was made; None: there was none
    reset_had_activity: bool | None  # whether the session before it had any messages
    fresh: bool  # it was reset, and nothing came since
    model_override: Mapping[str, str] | None  # of model, provider, base_url; never a secret
    generation: int  # of the conversation: rises with every reset and never falls
    version: int  # rises with every change
    created_at: float
    updated_at: float
    incarnation: str  # of the store's content: a row of replaced content is another one

    @property
    def session_key(self) -> str:
        """The key as text."""
        return self.key.text

    @property
    def runtime_profile(self) -> str:
        """Where it runs."""
        return self.key.profile

    @property
    def platform(self) -> str:
        """Of the chat."""
        return self.key.platform

    @property
    def goes_on(self) -> bool:
        """Whether the next message goes on in its session. False: only a new one does, with `reset`."""
        return TABLE[self.state, Act.GO_ON] is not Outcome.STOPPED


def has_routing(reader: Reader) -> bool:
    """Whether the store has the tables: they come with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'routing_entries'") is not None


def read(reader: Reader, session_key: str) -> Route | None:
    """The entry of a key."""
    row = reader.row(f"SELECT {COLUMNS} FROM routing_entries WHERE session_key = ?", (session_key,))
    return None if row is None else route(reader, row)


def page(
    reader: Reader, *, states: Sequence[State] | None, platform: str | None, session_id: str | None, limit: int,
    after: str | None,
) -> list[Route]:
    """Up to `limit` entries in the order of their keys, after the key `after`. Raises `InvalidInput`."""
    whole("limit", limit, 1, MOST_PAGE)
    wanted = None if states is None else json.dumps([str(known(state)) for state in states])
    for name, value in (("platform", platform), ("session_id", session_id), ("after", after)):
        if value is not None:
            text(name, value, most=4_000, of="")
    return [
        route(reader, row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM routing_entries WHERE (?1 IS NULL OR session_key > ?1)"
            " AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR platform = ?3)"
            " AND (?4 IS NULL OR session_id = ?4) ORDER BY session_key LIMIT ?5",
            (after, wanted, platform, session_id, limit),
        )
    ]


def known(state: Any) -> State:
    """One of the states, also by its name."""
    try:
        return State(state)
    except ValueError:
        raise InvalidInput(
            f"{state!r:.80} is no state of a routing entry.", hint=f"The states are {', '.join(State)}.",
            argument="states",
        ) from None


def route(reader: Reader, row: Sequence[Any]) -> Route:
    """A row of `COLUMNS`. Raises `Corrupt` for one that nothing here wrote."""
    (
        session_key, home, profile, transport_profile, platform, chat_type, chat_id, thread_id, user_id, origin,
        session_id, state, state_at, state_reason, reset_reason, reset_had_activity, fresh, model_override, generation,
        version, created_at, updated_at, incarnation,
    ) = row
    key = SessionKey(
        profile=profile, platform=platform, chat_type=chat_type, chat_id=chat_id, thread_id=thread_id, user_id=user_id
    )
    try:
        source = Source.from_json(origin)
        if key.text != session_key:
            raise InvalidInput(f"its parts are those of {key.text!r}")
    except InvalidInput as error:
        raise Corrupt(
            f"The routing entry {session_key!r} of {reader.path} is not what was written: {error}",
            hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.",
            path=reader.path, session_key=session_key,
        ) from error
    return Route(
        key=key, home=home, transport_profile=transport_profile, origin=source, session_id=session_id,
        state=State(state), state_at=state_at, state_reason=state_reason, reset_reason=reset_reason,
        reset_had_activity=None if reset_had_activity is None else bool(reset_had_activity), fresh=bool(fresh),
        model_override=None if model_override is None else json.loads(model_override), generation=generation,
        version=version, created_at=created_at, updated_at=updated_at, incarnation=incarnation,
    )
