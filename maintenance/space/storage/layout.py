"""The external-content search layout of hermes-agent, storage version 3, as objects in a file.

Invariant: names, columns, what the views show, the tables' options, when triggers fire and the two gates are those that
hermes-agent's newer releases look for; a schema test pins them. A row takes part in an index when its id is at most the
progress mark or above the high-water mark; without marks every row does. All six trigger names always exist, because a
release of the older layout that misses one installs its own and breaks the index (measured with 0.16.0 and 0.19.0).

Not for: `messages_fts_cjk`, which needs a library that is not in SQLite; an index of that name is left as it is.
Indexing the table instead of a view was rejected by hermes-agent itself: truncated inserts then differ from the text.
"""

from __future__ import annotations

STORAGE_VERSION = 3
# A tool's output is indexed up to this many characters.
TOOL_CHARACTERS = 8192
# The conversion relies on columns that this schema has; hermes-agent 0.17.0 was the first release to write it.
OLDEST_SCHEMA = 16
OLDEST_SCHEMA_RELEASE = "0.17.0"
# The newest schema whose search layout is known.
NEWEST_SCHEMA = 31

WORDS = "messages_fts"
TRIGRAM = "messages_fts_trigram"
INDEXES = (WORDS, TRIGRAM)
VIEWS = {WORDS: "messages_fts_src", TRIGRAM: "messages_fts_trigram_src"}
EVENTS = ("insert", "delete", "update")

HIGH_WATER = "fts_rebuild_high_water"
PROGRESS = "fts_rebuild_progress"
VERSION = "fts_storage_version"
# Keys that describe the old indexes and their troubles; they end with them.
SPENT_KEYS = ("fts_optimize_available", "fts_tool_full_content_high_water", "fts_stale", "fts_rebuild_deferral")


def trigger_names(index: str) -> tuple[str, ...]:
    """The three triggers of an index."""
    return tuple(f"{index}_{event}" for event in EVENTS)


ALL_TRIGGERS = trigger_names(WORDS) + trigger_names(TRIGRAM)


def _indexed(row: str) -> str:
    """What the word index reads of a message's content."""
    content, role = (f"{row}.content", f"{row}.role") if row else ("content", "role")
    return f"CASE WHEN {role} = 'tool' THEN substr(COALESCE({content}, ''), 1, {TOOL_CHARACTERS}) ELSE {content} END"


def _mark(key: str) -> str:
    return f"COALESCE((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{key}'), -1)"


def _takes_part(row: str) -> str:
    """Whether a row is in the indexes, by the two marks."""
    return f"({row}.id > {_mark(HIGH_WATER)} OR {row}.id <= {_mark(PROGRESS)})"


def _for_trigrams(session: str = "") -> str:
    """Whether a session's text goes into the trigram index: not that of scheduled jobs and of delegates."""
    at = f"{session}." if session else ""
    # A column that is no JSON must not make an append fail.
    config = f"CASE WHEN json_valid({at}model_config) THEN {at}model_config ELSE '{{}}' END"
    return f"{at}source NOT IN ('cron', 'subagent') AND json_extract({config}, '$._delegate_from') IS NULL"


def _session_of(row: str) -> str:
    return f"EXISTS (SELECT 1 FROM sessions WHERE id = {row}.session_id AND {_for_trigrams()})"


WORDS_VIEW = f"""CREATE VIEW messages_fts_src AS
SELECT id, {_indexed("")} AS content, tool_name, tool_calls
FROM messages"""

WORDS_TABLE = """CREATE VIRTUAL TABLE messages_fts USING fts5(
    content, tool_name, tool_calls, content='messages_fts_src', content_rowid='id'
)"""

WORDS_TRIGGERS = (
    f"""CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages
WHEN {_takes_part("new")}
BEGIN
    INSERT INTO messages_fts(rowid, content, tool_name, tool_calls)
    VALUES (new.id, {_indexed("new")}, new.tool_name, new.tool_calls);
END""",
    f"""CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages
WHEN {_takes_part("old")}
BEGIN
    INSERT INTO messages_fts(messages_fts, rowid, content, tool_name, tool_calls)
    VALUES ('delete', old.id, {_indexed("old")}, old.tool_name, old.tool_calls);
END""",
    f"""CREATE TRIGGER messages_fts_update AFTER UPDATE OF content, tool_name, tool_calls, role ON messages
WHEN (old.content IS NOT new.content OR old.tool_name IS NOT new.tool_name
      OR old.tool_calls IS NOT new.tool_calls OR old.role IS NOT new.role)
 AND {_takes_part("old")}
BEGIN
    INSERT INTO messages_fts(messages_fts, rowid, content, tool_name, tool_calls)
    VALUES ('delete', old.id, {_indexed("old")}, old.tool_name, old.tool_calls);
    INSERT INTO messages_fts(rowid, content, tool_name, tool_calls)
    VALUES (new.id, {_indexed("new")}, new.tool_name, new.tool_calls);
END""",
)

TRIGRAM_VIEW = f"""CREATE VIEW messages_fts_trigram_src AS
SELECT m.id, m.role, m.content, m.tool_name
FROM messages AS m JOIN sessions AS s ON s.id = m.session_id
WHERE m.role <> 'tool' AND {_for_trigrams("s")}"""

# With the index off the view shows nothing, so that an index check compares nothing with nothing.
TRIGRAM_VIEW_OFF = """CREATE VIEW messages_fts_trigram_src AS
SELECT m.id, m.role, m.content, m.tool_name FROM messages AS m WHERE 0"""

TRIGRAM_TABLE = """CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    content, tool_name, content='messages_fts_trigram_src', content_rowid='id', tokenize='trigram'
)"""

TRIGRAM_TRIGGERS = (
    f"""CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages
WHEN new.role <> 'tool' AND {_session_of("new")} AND {_takes_part("new")}
BEGIN
    INSERT INTO messages_fts_trigram(rowid, content, tool_name) VALUES (new.id, new.content, new.tool_name);
END""",
    f"""CREATE TRIGGER messages_fts_trigram_delete AFTER DELETE ON messages
WHEN old.role <> 'tool' AND {_session_of("old")} AND {_takes_part("old")}
BEGIN
    INSERT INTO messages_fts_trigram(messages_fts_trigram, rowid, content, tool_name)
    VALUES ('delete', old.id, old.content, old.tool_name);
END""",
    f"""CREATE TRIGGER messages_fts_trigram_update AFTER UPDATE OF content, tool_name, role ON messages
WHEN (old.content IS NOT new.content OR old.tool_name IS NOT new.tool_name OR old.role IS NOT new.role)
 AND {_takes_part("old")}
BEGIN
    INSERT INTO messages_fts_trigram(messages_fts_trigram, rowid, content, tool_name)
    SELECT 'delete', old.id, old.content, old.tool_name WHERE old.role <> 'tool' AND {_session_of("old")};
    INSERT INTO messages_fts_trigram(rowid, content, tool_name)
    SELECT new.id, new.content, new.tool_name WHERE new.role <> 'tool' AND {_session_of("new")};
END""",
)

# The names must exist; what they do is up to us.
TRIGRAM_TRIGGERS_OFF = tuple(
    f"CREATE TRIGGER messages_fts_trigram_{event} AFTER {event.upper()} ON messages WHEN 0 BEGIN SELECT 1; END"
    for event in EVENTS
)


def create_statements(*, trigram: bool) -> tuple[str, ...]:
    """The objects of the layout, in the order in which they depend on each other."""
    return (
        WORDS_VIEW,
        WORDS_TABLE,
        *WORDS_TRIGGERS,
        TRIGRAM_VIEW if trigram else TRIGRAM_VIEW_OFF,
        TRIGRAM_TABLE,
        *(TRIGRAM_TRIGGERS if trigram else TRIGRAM_TRIGGERS_OFF),
    )


def cut_at_nul(cell: str) -> str:
    """A cell as SQLite 3.40's trigram tokenizer reads it: nothing from the first NUL on.

    Given to this SQLite's tokenizer, which reads past a NUL, that makes the index which hermes-agent's library expects.
    """
    # substr stops at a NUL by itself; the cast makes that true of blobs as well.
    return f"CASE WHEN instr(CAST({cell} AS BLOB), x'00') THEN substr(CAST({cell} AS TEXT), 1) ELSE {cell} END"
