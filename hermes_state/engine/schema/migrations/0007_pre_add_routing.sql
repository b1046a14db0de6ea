-- Routing: which session a chat goes on in, where it runs, and which bot may answer it.

-- At most one row: what holds for all routing of this home.
CREATE TABLE routing_home (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation_floor INTEGER NOT NULL DEFAULT 0 CHECK (generation_floor >= 0),  -- highest generation ever forgotten
    removed_at REAL,                      -- since when nothing is written for this home any more; NULL: it is in use
    removed_by TEXT, removed_because TEXT,
    CHECK ((removed_at IS NULL) = (removed_by IS NULL)),
    CHECK ((removed_at IS NULL) = (removed_because IS NULL))
) STRICT;

CREATE TABLE routing_entries (
    session_key TEXT PRIMARY KEY CHECK (session_key <> ''),
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that it runs in
    runtime_profile TEXT NOT NULL CHECK (runtime_profile <> ''),  -- the same as a name; "default" is spelled out
    -- Whose bot received it, and alone may answer. NULL: written before this was kept; it is never guessed.
    transport_profile TEXT CHECK (transport_profile <> ''),
    platform TEXT NOT NULL CHECK (platform <> ''),
    chat_type TEXT NOT NULL CHECK (chat_type <> ''),
    chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, user_id TEXT NOT NULL,  -- the other parts of the key; '': none
    origin TEXT NOT NULL CHECK (json_valid(origin)),      -- JSON: where answers go, see routing/identity.py
    session_id TEXT NOT NULL CHECK (session_id <> ''),    -- which may be deleted by now
    state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'resuming', 'suspended', 'expired')),
    state_at REAL NOT NULL, state_reason TEXT NOT NULL DEFAULT '',
    reset_reason TEXT, reset_had_activity INTEGER CHECK (reset_had_activity IN (0, 1)),  -- of the newest reset
    fresh INTEGER NOT NULL DEFAULT 0 CHECK (fresh IN (0, 1)),  -- reset, and nothing came since
    model_override TEXT CHECK (json_valid(model_override)),    -- JSON: model, provider, base_url; never a secret
    generation INTEGER NOT NULL CHECK (generation > 0),   -- of the conversation: rises with every reset, never falls
    version INTEGER NOT NULL DEFAULT 1 CHECK (version > 0),    -- counts the changes: the value that is compared
    created_at REAL NOT NULL, updated_at REAL NOT NULL
) STRICT;
CREATE INDEX routing_entries_session ON routing_entries (session_id);
CREATE INDEX routing_entries_state ON routing_entries (state, state_at) WHERE state <> 'active';
CREATE TRIGGER routing_entries_keep_who_they_are BEFORE UPDATE ON routing_entries
WHEN new.session_key IS NOT old.session_key OR new.home IS NOT old.home
    OR new.runtime_profile IS NOT old.runtime_profile OR new.platform IS NOT old.platform
    OR new.chat_type IS NOT old.chat_type OR new.chat_id IS NOT old.chat_id OR new.thread_id IS NOT old.thread_id
    OR new.user_id IS NOT old.user_id OR new.created_at IS NOT old.created_at
BEGIN SELECT RAISE(ABORT, 'a routing entry keeps its key and its home'); END;
CREATE TRIGGER routing_entries_only_rise BEFORE UPDATE ON routing_entries
WHEN new.generation < old.generation OR new.version <= old.version
BEGIN SELECT RAISE(ABORT, 'the generation and the version of a routing entry only rise'); END;
-- However an entry goes, the next one of its key has a higher generation.
CREATE TRIGGER routing_entries_leave_their_generation AFTER DELETE ON routing_entries
BEGIN
    INSERT INTO routing_home (one, generation_floor) VALUES (1, old.generation)
        ON CONFLICT (one) DO UPDATE SET generation_floor = max(generation_floor, excluded.generation_floor);
END;

-- What a bot was sent for a profile that is not served here: dropped, told once, and seen until it is served.
CREATE TABLE routing_unserved (
    platform TEXT NOT NULL CHECK (platform <> ''),
    profile TEXT NOT NULL CHECK (profile <> ''),          -- the one that is not served
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home whose bot was asked
    reason TEXT NOT NULL,
    needs_attention INTEGER NOT NULL CHECK (needs_attention IN (0, 1)),
    dropped INTEGER NOT NULL DEFAULT 0 CHECK (dropped >= 0),  -- events, ever
    warnings INTEGER NOT NULL DEFAULT 0 CHECK (warnings >= 0),  -- how often it was told: once each time it began
    since_at REAL NOT NULL, last_at REAL NOT NULL,
    served_at REAL,                       -- when it was served last; NULL: never
    PRIMARY KEY (platform, profile)
) STRICT, WITHOUT ROWID;

-- Pairing: who asked to talk to a bot of this home, and who may.
CREATE TABLE pairing_requests (
    platform TEXT NOT NULL CHECK (platform <> ''), user_id TEXT NOT NULL CHECK (user_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),
    user_name TEXT NOT NULL DEFAULT '',
    requested_at REAL NOT NULL,           -- the newest request: the next is refused for a while
    salt BLOB, code_digest BLOB CHECK (length(code_digest) = 32),  -- of the code; NULL once it is used or void
    expires_at REAL,
    CHECK ((code_digest IS NULL) = (expires_at IS NULL)),
    CHECK ((code_digest IS NULL) = (salt IS NULL)),
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE pairing_users (
    platform TEXT NOT NULL CHECK (platform <> ''), user_id TEXT NOT NULL CHECK (user_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),
    user_name TEXT NOT NULL DEFAULT '',
    approved_at REAL NOT NULL, approved_by TEXT NOT NULL,
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;
-- Wrong codes that were tried, and until when no more may be.
CREATE TABLE pairing_failures (
    platform TEXT PRIMARY KEY CHECK (platform <> ''),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    first_at REAL NOT NULL,
    locked_until REAL
) STRICT, WITHOUT ROWID;
