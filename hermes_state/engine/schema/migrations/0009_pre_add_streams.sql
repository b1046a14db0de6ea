-- Streamed replies, lanes, dead targets and logins.

-- One row a turn's reply: its seal, and what of it the platform has. Its frames are in memory only.
CREATE TABLE reply_seals (
    turn_id TEXT PRIMARY KEY CHECK (turn_id <> ''),       -- the caller's
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that the turn runs in
    transport TEXT NOT NULL CHECK (transport <> ''),      -- as in the outbox
    target TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'streaming' CHECK (state IN (
        'streaming', 'sealing', 'sealed', 'reconciling', 'given_up', 'abandoned'
    )),
    streamed INTEGER NOT NULL CHECK (streamed IN (0, 1)),  -- it was begun before its final: something may be shown
    message_id TEXT CHECK (message_id <> ''),             -- the platform's; NULL: none that can be edited
    finals INTEGER NOT NULL DEFAULT 0 CHECK (finals >= 0),  -- declared ones: the first is the seal, the rest correct it
    -- SHA-256 of the text that was sealed, of the final that counts now, and of what the platform is known to have.
    sealed_digest BLOB CHECK (length(sealed_digest) = 32),
    final_digest BLOB CHECK (length(final_digest) = 32),
    shown_digest BLOB CHECK (length(shown_digest) = 32),
    opened_at REAL NOT NULL, sealed_at REAL, changed_at REAL NOT NULL,
    CHECK ((finals = 0) = (state IN ('streaming', 'abandoned'))),
    CHECK ((finals = 0) = (sealed_digest IS NULL)), CHECK ((finals = 0) = (final_digest IS NULL)),
    CHECK ((finals = 0) = (sealed_at IS NULL)),
    CHECK (finals > 0 OR shown_digest IS NULL),
    CHECK ((state = 'sealed') <= (shown_digest IS final_digest))
) STRICT, WITHOUT ROWID;
CREATE INDEX reply_seals_state ON reply_seals (state, changed_at);
CREATE TRIGGER reply_seals_seal_once BEFORE UPDATE ON reply_seals
WHEN new.turn_id IS NOT old.turn_id OR new.home IS NOT old.home OR new.finals < old.finals OR old.state = 'abandoned'
    OR (old.sealed_at IS NOT NULL
        AND (new.sealed_at IS NOT old.sealed_at OR new.sealed_digest IS NOT old.sealed_digest))
BEGIN SELECT RAISE(ABORT, 'a reply is sealed once'); END;
-- Whoever ends what the final that counts owes, a person too: without its acceptance nothing is owed any more.
CREATE TRIGGER reply_seals_are_given_up AFTER UPDATE OF settled_at ON outbox
WHEN new.kind = 'final' AND old.settled_at IS NULL AND new.settled_at IS NOT NULL AND new.state <> 'accepted'
BEGIN
    UPDATE reply_seals SET state = 'given_up', changed_at = new.settled_at
    WHERE turn_id = substr(new.lane, length('reply/') + 1) AND state IN ('sealing', 'reconciling')
        -- by its id, also of one that a person owes again: a payload may be unreadable
        AND substr(new.dedupe_id, 1, instr(new.dedupe_id || '#retry-', '#retry-') - 1)
            = 'final/' || turn_id || iif(finals = 1, '', '#' || finals);
END;

-- What came for a chat while a turn ran, and what cron said there: taken in order, at the beginning of a turn.
CREATE TABLE lane_items (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they came
    home TEXT NOT NULL CHECK (home <> ''),
    lane TEXT NOT NULL CHECK (lane <> ''),                -- session key of the chat
    item_key TEXT NOT NULL CHECK (item_key <> ''),        -- the sender's: a repeat is the same item
    kind TEXT NOT NULL CHECK (kind IN ('follow_up', 'mirror')),
    label TEXT CHECK (label <> ''),                       -- what a mirror begins with
    content TEXT CHECK (json_valid(content)),             -- JSON: a text or a list of parts; NULL once it is taken
    details TEXT CHECK (json_valid(details)),             -- JSON, the sender's
    generation INTEGER,                                   -- of the chat when it came; NULL: of any
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'taken', 'dropped')),
    came_at REAL NOT NULL, settled_at REAL,
    session_id TEXT, message_id INTEGER,                  -- which message has it
    reason TEXT,                                          -- why it was dropped
    UNIQUE (lane, item_key),
    CHECK ((state = 'waiting') = (settled_at IS NULL)),
    CHECK ((state = 'taken') = (message_id IS NOT NULL)), CHECK ((state = 'taken') = (session_id IS NOT NULL)),
    CHECK ((state = 'dropped') = (reason IS NOT NULL)),
    CHECK ((kind = 'mirror') = (label IS NOT NULL)),
    CHECK (state <> 'waiting' OR content IS NOT NULL)
) STRICT;
CREATE INDEX lane_items_waiting ON lane_items (lane, no) WHERE state = 'waiting';
CREATE TRIGGER lane_items_end_once BEFORE UPDATE ON lane_items
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at
    OR new.message_id IS NOT old.message_id OR (new.content IS NOT old.content AND new.content IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'a settled item of a lane never changes'); END;

-- Chats that a bot cannot reach, until one message arrives.
CREATE TABLE dead_targets (
    platform TEXT NOT NULL CHECK (platform <> ''),
    transport_profile TEXT NOT NULL CHECK (transport_profile <> ''),  -- whose bot cannot
    chat_id TEXT NOT NULL CHECK (chat_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),
    failure TEXT NOT NULL CHECK (failure IN ('forbidden', 'chat_not_found')),
    reason TEXT NOT NULL,                 -- in the platform's words
    failures INTEGER NOT NULL DEFAULT 1 CHECK (failures > 0),
    since_at REAL NOT NULL, last_at REAL NOT NULL,
    PRIMARY KEY (platform, transport_profile, chat_id)
) STRICT, WITHOUT ROWID;

-- Sign-ins that were begun in a chat. No code, link or token is ever here.
CREATE TABLE login_attempts (
    attempt_id TEXT PRIMARY KEY CHECK (attempt_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),
    platform TEXT NOT NULL CHECK (platform <> ''), chat_id TEXT NOT NULL CHECK (chat_id <> ''), user_id TEXT NOT NULL,
    owner TEXT NOT NULL CHECK (json_valid(owner)),        -- JSON, the owner identity of the process that waits for it
    state TEXT NOT NULL DEFAULT 'started' CHECK (state IN (
        'started', 'code_shown', 'waiting', 'superseding', 'cancelling', 'transferred',
        'completed', 'superseded', 'cancelled', 'failed', 'expired'
    )),
    quiet INTEGER NOT NULL DEFAULT 0 CHECK (quiet IN (0, 1)),  -- cancelled by a shutdown: nothing is pushed
    started_at REAL NOT NULL,
    expires_at REAL,                      -- of its code; NULL: none was shown
    transferred_at REAL,                  -- since when it cannot be undone
    ended_at REAL,
    reason TEXT,                          -- one word, see work/login_states.py
    kept INTEGER CHECK (kept >= 0),       -- chats whose override could not be cleared
    CHECK ((ended_at IS NULL) = (state IN (
        'started', 'code_shown', 'waiting', 'superseding', 'cancelling', 'transferred'
    ))),
    CHECK ((state IN ('transferred', 'completed')) = (transferred_at IS NOT NULL)),
    CHECK ((state = 'failed') = (reason IS NOT NULL)),
    CHECK ((state = 'completed') = (kept IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX login_attempts_live ON login_attempts (home) WHERE state IN ('started', 'code_shown', 'waiting');
CREATE TRIGGER login_attempts_end_once BEFORE UPDATE ON login_attempts
WHEN old.ended_at IS NOT NULL OR (old.state = 'transferred' AND new.state NOT IN ('transferred', 'completed'))
    OR (old.transferred_at IS NOT NULL AND new.transferred_at IS NOT old.transferred_at)
BEGIN SELECT RAISE(ABORT, 'a login ends once, and a transfer is never undone'); END;
