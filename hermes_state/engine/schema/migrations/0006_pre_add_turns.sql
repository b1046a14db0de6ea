-- How a bound thread stands with its gateway: one row a binding, made when its first turn or session is.
CREATE TABLE thread_states (
    thread_id TEXT PRIMARY KEY REFERENCES thread_bindings (thread_id) ON DELETE CASCADE,
    status TEXT NOT NULL DEFAULT 'ready' CHECK (status IN ('ready', 'running', 'error', 'stop_pending', 'stopped')),
    turn_ids INTEGER NOT NULL DEFAULT 1 CHECK (turn_ids IN (0, 1)),  -- 0: its provider has no ids of turns
    active_turn_id TEXT,
    boot_id TEXT,                         -- of the plugin that has its session; NULL: none is known to
    resumed INTEGER CHECK (resumed IN (0, 1)),  -- whether the plugin's history had as many rows as ours, last time
    history_rows INTEGER NOT NULL DEFAULT 0 CHECK (history_rows >= 0),  -- settled turns of this session, ever
    ensures INTEGER NOT NULL DEFAULT 0 CHECK (ensures >= 0),  -- how often its session was asked for
    rejected INTEGER NOT NULL DEFAULT 0 CHECK (rejected >= 0),  -- ends of turns that were not this thread's active one
    error TEXT,                           -- why it is in error, for people
    CHECK ((status = 'running') = (active_turn_id IS NOT NULL)),
    CHECK (turn_ids = 1 OR active_turn_id IS NULL)
) STRICT;

CREATE TABLE turns (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which turns were started
    turn_id TEXT NOT NULL UNIQUE CHECK (turn_id <> ''),
    thread_id TEXT NOT NULL REFERENCES thread_states (thread_id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,             -- the gateway's id of the session it runs in
    generation TEXT,                      -- of the connection it was started on, 'epoch.n'; for people
    state TEXT NOT NULL CHECK (state IN (
        'starting', 'running', 'stopping', 'completed', 'failed', 'aborted', 'stopped', 'withdrawn'
    )),
    exit_class TEXT GENERATED ALWAYS AS (CASE
        WHEN state = 'failed' THEN 'error'
        WHEN state IN ('completed', 'aborted', 'stopped') THEN 'graceful'
    END) VIRTUAL,
    started_at REAL NOT NULL,
    settled_at REAL,
    error TEXT,                           -- why it failed or was given up
    items INTEGER NOT NULL DEFAULT 0 CHECK (items >= 0),  -- of this turn, ever; the last ones are kept
    CHECK ((settled_at IS NULL) = (state IN ('starting', 'running', 'stopping')))
) STRICT;
CREATE UNIQUE INDEX turns_active ON turns (thread_id) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX turns_session ON turns (thread_id, session_id, no);
CREATE TRIGGER turns_end_once BEFORE UPDATE ON turns
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at)
BEGIN SELECT RAISE(ABORT, 'a settled turn never changes'); END;

CREATE TABLE turn_items (
    turn_no INTEGER NOT NULL REFERENCES turns (no) ON DELETE CASCADE,
    number INTEGER NOT NULL,              -- within the turn, from 1
    item_type TEXT NOT NULL CHECK (item_type IN (
        'user_message', 'assistant_message', 'reasoning', 'command_execution', 'file_change', 'web_search',
        'image_view', 'mcp_tool_call', 'status_text'
    )),
    fields TEXT NOT NULL,                 -- JSON, whitelisted and bounded
    at REAL NOT NULL,
    PRIMARY KEY (turn_no, number)
) STRICT, WITHOUT ROWID;

-- Questions of gateways to people: approvals and requests for input.
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- what they are answered by: a gateway may use its own ids again
    instance_id TEXT NOT NULL,
    boot_id TEXT,                         -- of the plugin that waits for the answer
    request_id TEXT NOT NULL CHECK (request_id <> ''),  -- the plugin's
    thread_id TEXT NOT NULL REFERENCES thread_states (thread_id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    turn_id TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('approval', 'user_input')),
    request_type TEXT NOT NULL,           -- what is asked for: command_execution, file_change, ...
    args TEXT NOT NULL,                   -- JSON, whitelisted and bounded
    detail TEXT,
    questions TEXT,                       -- JSON list, of user_input
    opened_at REAL NOT NULL,
    expires_at REAL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved', 'cancelled', 'expired')),
    decision TEXT CHECK (decision IN ('once', 'session', 'deny')),
    answers TEXT,                         -- JSON, of user_input
    settled_at REAL,
    reason TEXT,                          -- why it was cancelled
    sent_at REAL,                         -- when the gateway acknowledged the decision
    late INTEGER NOT NULL DEFAULT 0 CHECK (late >= 0),  -- answers that came after its end
    CHECK ((settled_at IS NULL) = (state = 'open')),
    CHECK ((state = 'resolved') = (decision IS NOT NULL OR answers IS NOT NULL)),
    CHECK (sent_at IS NULL OR state = 'resolved')
) STRICT;
CREATE UNIQUE INDEX interactions_request ON interactions (instance_id, coalesce(boot_id, ''), request_id);
CREATE INDEX interactions_open ON interactions (instance_id, thread_id) WHERE state = 'open';
CREATE INDEX interactions_due ON interactions (expires_at) WHERE state = 'open' AND expires_at IS NOT NULL;
CREATE INDEX interactions_thread ON interactions (thread_id, id);
CREATE TRIGGER interactions_end_once BEFORE UPDATE ON interactions
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at
    OR new.decision IS NOT old.decision OR new.answers IS NOT old.answers)
BEGIN SELECT RAISE(ABORT, 'a settled interaction never changes'); END;

-- Stops that were asked for. What is still to be sent is in the outbox.
CREATE TABLE stops (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were asked for
    stop_id TEXT NOT NULL UNIQUE,         -- what the gateway knows a repeat by
    instance_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    turn_id TEXT,                         -- what was active; NULL: nothing
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'acked', 'cancelled')),
    obligation TEXT NOT NULL,             -- dedupe id of the outbox row that is owed now
    asked_at REAL NOT NULL,
    settled_at REAL,
    outcome TEXT,                         -- what the gateway said, or what made it void
    CHECK ((settled_at IS NULL) = (state = 'pending'))
) STRICT;
CREATE UNIQUE INDEX stops_pending ON stops (thread_id, session_id) WHERE state = 'pending';
CREATE INDEX stops_thread ON stops (thread_id, no);
CREATE TRIGGER stops_end_once BEFORE UPDATE ON stops
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at)
BEGIN SELECT RAISE(ABORT, 'a settled stop never changes'); END;

-- What gateways delivered home: the receiver's side of their outbox.
CREATE TABLE home_threads (
    instance_id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL               -- where its deliveries are shown
) STRICT, WITHOUT ROWID;
CREATE TABLE home_deliveries (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they became visible
    instance_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL CHECK (delivery_id <> ''),  -- the sender's; a repeat is the same delivery
    thread_id TEXT NOT NULL,
    payload TEXT NOT NULL,                -- JSON
    payload_check TEXT NOT NULL,          -- SHA-256 of the payload
    made_at REAL,                         -- as the sender says
    received_at REAL NOT NULL,
    UNIQUE (instance_id, delivery_id)
) STRICT;
CREATE INDEX home_deliveries_received ON home_deliveries (received_at);
CREATE TABLE home_horizon (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    forgotten_to REAL NOT NULL            -- a delivery made at or before this is refused as too old unless its row is here
) STRICT;
