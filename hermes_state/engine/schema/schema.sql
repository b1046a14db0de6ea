-- The shape of a native store now. migrations/*.sql is how we got here; a test proves both equal.
-- Every table is STRICT. Times are epoch seconds UTC as REAL unless a column says otherwise.

-- One row: who this store is.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    store_id TEXT NOT NULL,               -- random, for life: rows and keys elsewhere name the store by it
    incarnation TEXT NOT NULL,            -- random, changed by every adopt, restore, install and repair: derived files start anew
    created_at REAL NOT NULL,
    adopted_from TEXT,                    -- JSON: what this content was adopted from, NULL when it began here
    message_floor INTEGER NOT NULL DEFAULT 0 CHECK (message_floor >= 0),  -- highest message id ever deleted: ids are never used twice
    change_floor INTEGER NOT NULL DEFAULT 0 CHECK (change_floor >= 0)     -- highest change id ever trimmed
) STRICT;

-- Which migration files were applied, in order.
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sha256 TEXT NOT NULL,                 -- of the file as applied
    applied_at REAL NOT NULL,
    applied_by TEXT NOT NULL              -- version of this library
) STRICT;
-- The tripwire: hermes-agent creates a table of this name before anything else, fails, and leaves the file byte-equal.
CREATE INDEX schema_version ON migrations (number);
-- Two modules of it open the file by themselves and begin with these tables.
CREATE INDEX async_delegations ON migrations (number);
CREATE INDEX delivery_obligations ON migrations (number);

-- Large values that repeat (system prompts, tool schemas, model configurations), stored once by content.
CREATE TABLE shared_texts (
    no INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL,                -- first 8 bytes of SHA-256 of the text; equal hashes are compared in full
    codec TEXT NOT NULL DEFAULT 'plain' CHECK (codec IN ('plain', 'zstd')),
    text_bytes INTEGER NOT NULL CHECK (text_bytes >= 0),  -- size in UTF-8 before compression
    body BLOB NOT NULL
) STRICT;
CREATE INDEX shared_texts_hash ON shared_texts (hash);

CREATE TABLE sessions (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- what other tables refer to; never used twice
    id TEXT NOT NULL UNIQUE CHECK (id <> ''),
    source TEXT NOT NULL,                 -- cli, telegram, cron, ...
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'replaced')),  -- replaced: a continuation took over
    parent_no INTEGER REFERENCES sessions (no),
    relation TEXT CHECK (relation IN ('continuation', 'branch', 'delegate', 'reset', 'other')),  -- what it is to its parent
    branched_at_seq INTEGER,              -- for a branch: the last message of the parent that it shares; below 1: see view.py
    branched_at_edit INTEGER,             -- for a branch: newest view edit then; later edits of the parent do not reach it
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,                      -- the first one wins
    active_at REAL NOT NULL,              -- last activity, written at most once a minute: the newest message may be up to 60 s later
    title TEXT UNIQUE,
    title_source TEXT CHECK (title_source IN ('derived', 'llm', 'user')),
    model TEXT,
    prompt_no INTEGER REFERENCES shared_texts (no),        -- system prompt
    tools_no INTEGER REFERENCES shared_texts (no),         -- tool schema, JSON
    model_config_no INTEGER REFERENCES shared_texts (no),  -- model configuration, JSON
    user_id TEXT, session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT, display_name TEXT,  -- gateway peer
    profile TEXT, cwd TEXT, git_branch TEXT, git_repo_root TEXT,
    archived_at REAL,                     -- hidden from listings since then
    auto_archived INTEGER NOT NULL DEFAULT 0 CHECK (auto_archived IN (0, 1)),  -- by a sweep rather than by a person
    pinned_at REAL,                       -- kept by every sweep since then
    hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    deleted_messages INTEGER NOT NULL DEFAULT 0 CHECK (deleted_messages >= 0),  -- messages taken out singly
    seq_floor INTEGER NOT NULL DEFAULT 0 CHECK (seq_floor >= 0),  -- highest seq ever deleted singly: no number is used twice
    extra TEXT,                           -- JSON: fields of other programs that have no column here, exported again
    CHECK ((state = 'open') = (ended_at IS NULL)),
    CHECK ((parent_no IS NULL) OR (relation IS NOT NULL)),
    CHECK (parent_no <> no)
) STRICT;
CREATE INDEX sessions_active ON sessions (active_at DESC);
CREATE INDEX sessions_parent ON sessions (parent_no) WHERE parent_no IS NOT NULL;
CREATE INDEX sessions_peer ON sessions (session_key, started_at DESC) WHERE session_key IS NOT NULL;
CREATE INDEX sessions_prompt ON sessions (prompt_no) WHERE prompt_no IS NOT NULL;
CREATE INDEX sessions_tools ON sessions (tools_no) WHERE tools_no IS NOT NULL;
CREATE INDEX sessions_model_config ON sessions (model_config_no) WHERE model_config_no IS NOT NULL;

-- Tokens and money of a session's own conversation; a narrow row because every model call updates it.
CREATE TABLE session_totals (
    session_no INTEGER PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    api_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    provider TEXT, base_url TEXT, billing_mode TEXT       -- the first accounted route
) STRICT;

-- The same by model, route and task ('' is the conversation itself).
CREATE TABLE session_usage (
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    model TEXT NOT NULL, provider TEXT NOT NULL DEFAULT '', base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',
    api_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    first_at REAL, last_at REAL,
    extra TEXT,
    PRIMARY KEY (session_no, model, provider, base_url, billing_mode, task)
) STRICT, WITHOUT ROWID;

-- The same by day (UTC), for the whole store. No session is named here, so it survives pruning.
CREATE TABLE daily_usage (
    day TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',
    api_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (day, model, provider, task)
) STRICT, WITHOUT ROWID;

-- Message bodies kept outside their row: large ones, those that repeat, and cold ones as zstd frames.
CREATE TABLE bodies (
    no INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL,                -- first 8 bytes of SHA-256 of the raw body; equal hashes are compared in full
    codec TEXT NOT NULL CHECK (codec IN ('plain', 'zstd')),
    raw_bytes INTEGER NOT NULL CHECK (raw_bytes >= 0),    -- size before compression
    frame BLOB NOT NULL                   -- the raw body, or one self-contained zstd frame of it
) STRICT;
CREATE INDEX bodies_hash ON bodies (hash);

-- Immutable: what a later event makes of a message is a row of view_edits.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,               -- insertion id, the only order; max(id, store.message_floor) + 1
    session_no INTEGER NOT NULL REFERENCES sessions (no),
    seq INTEGER NOT NULL CHECK (seq > 0), -- number within the session, from 1: the newest row's is the count
    calls INTEGER NOT NULL DEFAULT 0 CHECK (calls >= 0),  -- tool calls in this session up to and with this row
    role TEXT NOT NULL,                   -- user, assistant, tool, system, developer
    -- NULL: no content. OR, since SQLite makes a table of an IN list of more than two values for every INSERT: 0.8 us
    content_type TEXT CHECK (
        content_type = 'text' OR content_type = 'json' OR content_type = 'bytes' OR content_type = 'number'
    ),
    content ANY,                          -- the body, or its preview (text) when body_no is set
    body_no INTEGER REFERENCES bodies (no),
    tool_name TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,                      -- JSON list
    finish_reason TEXT,
    token_count INTEGER,
    reasoning TEXT,
    platform_message_id TEXT,
    client_key TEXT,                      -- idempotency key of the caller
    created_at REAL NOT NULL,
    extra TEXT,                           -- JSON: fields that have no column here
    row_check INTEGER NOT NULL,           -- 8 bytes of SHA-256 over the row's content, see conversation/row_check.py
    CHECK (body_no IS NULL OR content_type <> 'number')
) STRICT;
CREATE UNIQUE INDEX messages_session ON messages (session_no, seq);
CREATE UNIQUE INDEX messages_client_key ON messages (session_no, client_key) WHERE client_key IS NOT NULL;
CREATE INDEX messages_platform ON messages (session_no, platform_message_id) WHERE platform_message_id IS NOT NULL;
CREATE INDEX messages_body ON messages (body_no) WHERE body_no IS NOT NULL;
-- A body may move between its row and `bodies`; nothing else of a message ever changes.
CREATE TRIGGER messages_are_immutable BEFORE UPDATE ON messages
WHEN new.row_check IS NOT old.row_check OR new.id IS NOT old.id OR new.session_no IS NOT old.session_no
    OR new.seq IS NOT old.seq OR new.calls IS NOT old.calls OR new.role IS NOT old.role
    OR new.content_type IS NOT old.content_type OR new.tool_calls IS NOT old.tool_calls
    OR new.client_key IS NOT old.client_key OR new.created_at IS NOT old.created_at
BEGIN SELECT RAISE(ABORT, 'messages are immutable'); END;

-- What the view of a session is: an edit hides the messages from_seq..to_seq, or takes an earlier edit back.
CREATE TABLE view_edits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    action TEXT NOT NULL CHECK (action IN ('rewind', 'compact', 'restore')),
    -- rewind: hidden from context, history and search; compact: hidden from context only; restore: undoes `undoes`
    from_seq INTEGER, to_seq INTEGER,
    undoes INTEGER REFERENCES view_edits (id) ON DELETE CASCADE,
    made_at REAL NOT NULL,
    reason TEXT,
    CHECK ((action = 'restore') = (undoes IS NOT NULL)),
    CHECK ((action = 'restore') = (from_seq IS NULL)),
    CHECK ((from_seq IS NULL) = (to_seq IS NULL)),
    CHECK (from_seq <= to_seq)
) STRICT;
CREATE INDEX view_edits_session ON view_edits (session_no, id);
CREATE UNIQUE INDEX view_edits_undone_once ON view_edits (undoes) WHERE undoes IS NOT NULL;
CREATE TRIGGER view_edits_are_immutable BEFORE UPDATE ON view_edits
BEGIN SELECT RAISE(ABORT, 'view edits are immutable'); END;

-- Text of a message that is still being received; gone once the message is settled as a row of messages.
CREATE TABLE streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,             -- random, the writer's: after an interrupt it finds its own row by it
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    role TEXT NOT NULL,
    started_at REAL NOT NULL,
    owner TEXT NOT NULL                   -- JSON, the owner identity of the writing process
) STRICT;
CREATE INDEX streams_session ON streams (session_no);
CREATE TABLE stream_frames (
    stream_id INTEGER NOT NULL REFERENCES streams (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    operation TEXT NOT NULL CHECK (operation IN ('append', 'replace')),
    field TEXT NOT NULL DEFAULT 'content' CHECK (field IN ('content', 'reasoning')),
    part INTEGER NOT NULL DEFAULT 0 CHECK (part >= 0),    -- which part of the content; each is a text of its own
    text TEXT NOT NULL,
    PRIMARY KEY (stream_id, number)
) STRICT;

-- Leases: one row a name for ever, so that the fence only rises.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    fence INTEGER NOT NULL CHECK (fence > 0),
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    owner TEXT,                           -- JSON, the owner identity; NULL when free
    boot_id TEXT, time_namespace TEXT,    -- clock domain of the two times below
    acquired_boottime REAL, expires_boottime REAL,
    term_seconds REAL,
    acquired_at REAL,                     -- for people only
    CHECK ((owner IS NULL) = (expires_boottime IS NULL))
) STRICT, WITHOUT ROWID;

-- Ids that must not come back before a horizon, nor while something refers to them.
CREATE TABLE tombstones (
    kind TEXT NOT NULL,                   -- what was deleted: session, instance, job, ...
    key TEXT NOT NULL,
    made_at REAL NOT NULL,
    horizon_at REAL NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_horizon ON tombstones (horizon_at);
CREATE TABLE tombstone_references (
    kind TEXT NOT NULL, key TEXT NOT NULL,
    holder_kind TEXT NOT NULL, holder_key TEXT NOT NULL,  -- what still refers to the deleted id
    PRIMARY KEY (kind, key, holder_kind, holder_key),
    FOREIGN KEY (kind, key) REFERENCES tombstones (kind, key)
) STRICT, WITHOUT ROWID;

-- Every deletion: who, when, why, how many. Never changed.
CREATE TABLE deletions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    made_at REAL NOT NULL,
    actor TEXT NOT NULL,                  -- program and person or process
    reason TEXT NOT NULL,
    kind TEXT NOT NULL,                   -- session, message, ...
    keys TEXT NOT NULL,                   -- JSON list of the deleted ids
    rows INTEGER NOT NULL CHECK (rows >= 0),
    detail TEXT                           -- JSON: counts by table
) STRICT;
CREATE TRIGGER deletions_are_append_only_update BEFORE UPDATE ON deletions
BEGIN SELECT RAISE(ABORT, 'the ledger of deletions is append-only'); END;
CREATE TRIGGER deletions_are_append_only_delete BEFORE DELETE ON deletions
BEGIN SELECT RAISE(ABORT, 'the ledger of deletions is append-only'); END;

-- The feed of everything but appended messages, whose ids are their own feed. Trimmed from its old end.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,               -- max(id, store.change_floor) + 1
    table_name TEXT NOT NULL,
    key TEXT NOT NULL,                    -- the row's public id, e.g. a session id
    operation TEXT NOT NULL CHECK (operation IN ('insert', 'update', 'delete')),
    at REAL NOT NULL
) STRICT;

-- Compaction: one row a generation of a session; the live view is computed from them.
CREATE TABLE compactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    generation INTEGER NOT NULL CHECK (generation > 0),   -- 1, 2, ... within the session, never used twice
    -- What the view it was made from was seen through; NULL: the whole history.
    parent_id INTEGER REFERENCES compactions (id) ON DELETE SET NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'superseded')),
    -- Positions on the session's axis (see conversation/view.py).
    cut_at INTEGER NOT NULL,              -- first position after what is summarised: the tail begins here
    watermark INTEGER NOT NULL,           -- newest position when the plan was read; what came later is tail
    edit_mark INTEGER NOT NULL DEFAULT 0, -- newest view edit of the session when the plan was read
    anchors TEXT NOT NULL DEFAULT '[]',   -- JSON: positions below cut_at that stay in the view as they are
    source_rows INTEGER NOT NULL CHECK (source_rows >= 0),  -- messages that it took out of that view
    source_digest TEXT,                   -- SHA-256 over positions and row checks of those; set when done
    summary TEXT,                         -- set when done; blanked when a message it covers is deleted
    form TEXT CHECK (form IN ('model', 'extractive', 'none')),  -- none: nothing was summarised, only shortened
    summarizer TEXT,                      -- what made it: 'extractive', or the caller's name of its function
    prompt_digest TEXT,                   -- SHA-256 of the request that was put to it
    -- Tokens, all by `tokenizer`.
    window INTEGER NOT NULL CHECK (window > 0),
    tokenizer TEXT NOT NULL,
    tokens_fixed INTEGER NOT NULL,        -- system prompt and tool schemas
    tokens_reserved INTEGER NOT NULL,     -- kept free for the reply
    tokens_before INTEGER NOT NULL,       -- of the messages of the view it was made from
    tokens_after INTEGER,                 -- of the messages of the view it makes; set when done
    policy TEXT NOT NULL,
    reason TEXT NOT NULL,                 -- why the pass was made: size, overflow, manual, window
    turn INTEGER NOT NULL DEFAULT 0,      -- user messages in the view's session then
    model TEXT,                           -- of the session then; another one now: the plan is not for it
    error TEXT,                           -- JSON: code and message of what ended it, when failed or superseded
    -- The lease of the running row: it is the lock.
    owner TEXT,                           -- JSON, the owner identity; kept after the end, for people
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    boot_id TEXT, time_namespace TEXT,    -- clock domain of the next column
    expires_boottime REAL, term_seconds REAL,
    started_at REAL NOT NULL,
    ended_at REAL,
    CHECK ((state = 'running') = (ended_at IS NULL)),
    CHECK (state <> 'running' OR (owner IS NOT NULL AND expires_boottime IS NOT NULL)),
    CHECK (state <> 'done' OR (form IS NOT NULL AND tokens_after IS NOT NULL AND source_digest IS NOT NULL)),
    CHECK (state <> 'done' OR form = 'none' OR summary IS NOT NULL),
    CHECK (cut_at <= watermark + 1),
    UNIQUE (session_no, generation)
) STRICT;
CREATE UNIQUE INDEX compactions_running ON compactions (session_no) WHERE state = 'running';
CREATE INDEX compactions_parent ON compactions (parent_id) WHERE parent_id IS NOT NULL;
-- Nothing runs again or is done late. What was done is superseded when a message that it covers is deleted; what was
-- given up for dead is when its maker comes back with a summary, which is kept.
CREATE TRIGGER compactions_end_once BEFORE UPDATE OF state ON compactions
WHEN old.state <> 'running' AND new.state NOT IN (old.state, 'superseded')
BEGIN SELECT RAISE(ABORT, 'a compaction ends once'); END;

-- Which generation a session is seen through. No row: the whole history. Moved by compare-and-set only.
CREATE TABLE compaction_heads (
    session_no INTEGER PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    compaction_id INTEGER REFERENCES compactions (id) ON DELETE SET NULL,  -- NULL: back to the whole history
    moves INTEGER NOT NULL DEFAULT 1 CHECK (moves > 0)    -- how often it was moved: the value that is compared
) STRICT;
CREATE INDEX compaction_heads_compaction ON compaction_heads (compaction_id) WHERE compaction_id IS NOT NULL;

-- What a generation shows shortened; the message itself is whole, and `recover` gives it.
CREATE TABLE compaction_clips (
    compaction_id INTEGER NOT NULL REFERENCES compactions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    clip TEXT NOT NULL,                   -- JSON: how, see compaction/clips.py
    PRIMARY KEY (compaction_id, position)
) STRICT, WITHOUT ROWID;

-- What is known of a model's window at an endpoint, one row a kind of knowledge.
CREATE TABLE model_windows (
    model TEXT NOT NULL, endpoint TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL CHECK (kind IN ('declared', 'served', 'trained', 'learned')),
    tokens INTEGER NOT NULL CHECK (tokens > 0),
    evidence TEXT NOT NULL,               -- JSON: where it was seen
    observed_at REAL NOT NULL,
    PRIMARY KEY (model, endpoint, kind)
) STRICT, WITHOUT ROWID;

-- How many real tokens one counted token is, learned from what servers report.
CREATE TABLE token_factors (
    model TEXT NOT NULL, endpoint TEXT NOT NULL DEFAULT '', tokenizer TEXT NOT NULL,
    factor REAL NOT NULL CHECK (factor BETWEEN 1.0 AND 3.0),
    samples INTEGER NOT NULL CHECK (samples > 0),
    updated_at REAL NOT NULL,
    PRIMARY KEY (model, endpoint, tokenizer)
) STRICT, WITHOUT ROWID;

-- The outbox: what is owed to somebody: one row an obligation, from the change that made it to its verdict.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which obligations were recorded
    dedupe_id TEXT NOT NULL UNIQUE CHECK (dedupe_id <> ''),  -- idempotency key: the receiver's too
    kind TEXT NOT NULL CHECK (kind <> ''),                -- stop, approval, final, completion, cron, home, ...
    transport TEXT NOT NULL CHECK (transport <> ''),      -- what has to be up for it: a platform, a gateway instance
    target TEXT NOT NULL DEFAULT '',      -- whom it is for, in the transport's words
    lane TEXT,                            -- what must arrive in order with it; NULL: nothing
    batch TEXT,                           -- siblings that are claimed and settled together
    priority INTEGER NOT NULL DEFAULT 0,  -- the higher goes first, also in its lane
    policy TEXT NOT NULL CHECK (policy IN ('at_most_once', 'at_least_once')),
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN (
        'pending', 'claimed', 'accepted', 'refused', 'failed', 'unknown', 'dropped', 'suppressed'
    )),
    payload TEXT,                         -- JSON; NULL once blanked
    payload_bytes INTEGER NOT NULL CHECK (payload_bytes >= 0),  -- its size when recorded, in UTF-8
    payload_check TEXT NOT NULL,          -- SHA-256 of what was recorded: the same id is the same obligation
    schedule TEXT NOT NULL,               -- JSON: delays in seconds between attempts, see outbox/schedules.py
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),    -- spent ones: failures only
    recoveries INTEGER NOT NULL DEFAULT 0 CHECK (recoveries >= 0),  -- claims whose owner died: it may have been sent
    refunds INTEGER NOT NULL DEFAULT 0 CHECK (refunds >= 0),      -- claims that the receiver did not admit
    made_at REAL NOT NULL,                -- when its sender made it: what the horizon is counted from
    due_at REAL NOT NULL,                 -- not before
    -- Seconds that due_at can lie ahead by its schedule: further, and a clock was wrong. NULL: as was asked for.
    due_within REAL CHECK (due_within >= 0),
    -- 1: something that is not settled comes before it in its lane. The triggers below keep it.
    follows INTEGER NOT NULL DEFAULT 0 CHECK (follows IN (0, 1)),
    retry_of INTEGER REFERENCES outbox (id) ON DELETE SET NULL,   -- the settled one that this repeats
    -- The claim: a lease of this row.
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),  -- rises with every claim
    owner TEXT,                           -- JSON, the owner identity; NULL unless claimed
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    boot_id TEXT, time_namespace TEXT,    -- clock domain of the next column
    expires_boottime REAL, term_seconds REAL,
    claimed_at REAL,                      -- for people only
    settled_at REAL,                      -- NULL until terminal
    verdict TEXT,                         -- JSON: what the last claim ended with
    CHECK ((settled_at IS NULL) = (state IN ('pending', 'claimed'))),
    CHECK ((state = 'claimed') = (owner IS NOT NULL)),
    CHECK (state <> 'claimed' OR expires_boottime IS NOT NULL)
) STRICT;
-- What can be claimed, and nothing else: of a lane only its first row.
CREATE INDEX outbox_due ON outbox (transport, priority DESC, due_at, id) WHERE state = 'pending' AND follows = 0;
CREATE INDEX outbox_due_kind ON outbox (transport, kind, priority DESC, due_at, id)
    WHERE state = 'pending' AND follows = 0;
CREATE INDEX outbox_waiting ON outbox (due_at - due_within, due_at, transport) WHERE state = 'pending';
CREATE INDEX outbox_lane ON outbox (lane, priority DESC, id) WHERE settled_at IS NULL AND lane IS NOT NULL;
CREATE INDEX outbox_batch ON outbox (batch, transport, state, priority DESC, id)
    WHERE settled_at IS NULL AND batch IS NOT NULL;
CREATE INDEX outbox_claimed ON outbox (owner) WHERE state = 'claimed';
CREATE INDEX outbox_settled ON outbox (settled_at, made_at) WHERE settled_at IS NOT NULL;
CREATE INDEX outbox_readable ON outbox (settled_at) WHERE settled_at IS NOT NULL AND payload IS NOT NULL;
CREATE INDEX outbox_repeats ON outbox (retry_of) WHERE retry_of IS NOT NULL;
-- Terminal never leaves; only its payload is blanked later, and what it repeats may be forgotten.
CREATE TRIGGER outbox_ends_once BEFORE UPDATE ON outbox
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at
    OR new.attempts IS NOT old.attempts OR new.recoveries IS NOT old.recoveries OR new.refunds IS NOT old.refunds
    OR new.fence IS NOT old.fence OR new.verdict IS NOT old.verdict OR new.owner IS NOT old.owner
    OR (new.payload IS NOT old.payload AND new.payload IS NOT NULL)
    OR (new.retry_of IS NOT old.retry_of AND new.retry_of IS NOT NULL)
    OR new.kind IS NOT old.kind OR new.transport IS NOT old.transport OR new.target IS NOT old.target
    OR new.lane IS NOT old.lane OR new.batch IS NOT old.batch OR new.priority IS NOT old.priority
    OR new.policy IS NOT old.policy OR new.schedule IS NOT old.schedule OR new.made_at IS NOT old.made_at
    OR new.payload_bytes IS NOT old.payload_bytes OR new.payload_check IS NOT old.payload_check
    OR new.dedupe_id IS NOT old.dedupe_id OR new.id IS NOT old.id)
BEGIN SELECT RAISE(ABORT, 'a settled obligation never changes'); END;
CREATE TRIGGER outbox_keeps_what_is_owed BEFORE DELETE ON outbox WHEN old.settled_at IS NULL
BEGIN SELECT RAISE(ABORT, 'an obligation that is not settled is never deleted'); END;
-- REPLACE deletes what is in its way, and no trigger of deletions says so.
CREATE TRIGGER outbox_replaces_nothing BEFORE INSERT ON outbox
WHEN EXISTS (SELECT 1 FROM outbox WHERE dedupe_id = new.dedupe_id) OR EXISTS (SELECT 1 FROM outbox WHERE id = new.id)
BEGIN SELECT RAISE(ABORT, 'an obligation is recorded once'); END;
CREATE TRIGGER outbox_takes_no_place BEFORE UPDATE OF id, dedupe_id ON outbox
WHEN EXISTS (SELECT 1 FROM outbox WHERE dedupe_id = new.dedupe_id AND id IS NOT old.id)
    OR EXISTS (SELECT 1 FROM outbox WHERE id = new.id AND id IS NOT old.id)
BEGIN SELECT RAISE(ABORT, 'an obligation takes the place of no other'); END;
-- Of what is not settled in a lane only the first has follows = 0. A new first row leaves that to the one behind it.
CREATE TRIGGER outbox_enters_lane AFTER INSERT ON outbox WHEN new.lane IS NOT NULL AND new.settled_at IS NULL
BEGIN
    UPDATE outbox SET follows = 1 WHERE follows = 0 AND id IN (new.id, (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1 OFFSET 1
    )) AND id <> (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1
    );
    UPDATE outbox SET follows = 0 WHERE follows = 1 AND id = (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1
    );
END;
CREATE TRIGGER outbox_leaves_lane AFTER UPDATE OF settled_at ON outbox
WHEN old.lane IS NOT NULL AND old.settled_at IS NULL AND new.settled_at IS NOT NULL
BEGIN
    UPDATE outbox SET follows = 0 WHERE follows = 1 AND id = (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = old.lane ORDER BY priority DESC, id LIMIT 1
    );
END;
CREATE TRIGGER outbox_changes_lane AFTER UPDATE OF lane, priority ON outbox
WHEN new.settled_at IS NULL AND (new.lane IS NOT old.lane OR new.priority IS NOT old.priority)
BEGIN
    UPDATE outbox SET follows = (lane IS NOT NULL AND id <> (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1
    )) WHERE id IN (new.id, (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1
    ), (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = new.lane ORDER BY priority DESC, id LIMIT 1 OFFSET 1
    ));
    UPDATE outbox SET follows = 0 WHERE follows = 1 AND id = (
        SELECT id FROM outbox WHERE settled_at IS NULL AND lane = old.lane ORDER BY priority DESC, id LIMIT 1
    );
END;

-- At most one row: how far back settled obligations were forgotten. None: nothing was.
CREATE TABLE outbox_horizon (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    forgotten_to REAL NOT NULL            -- an id made at or before this is refused as too old unless its row is here
) STRICT;

-- Gateway instances: one row an instance, one name. A removed one keeps its row until its tombstone goes.
CREATE TABLE gateway_instances (
    no INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which instances were added
    instance_id TEXT NOT NULL UNIQUE CHECK (instance_id <> ''),
    nickname TEXT NOT NULL CHECK (nickname <> ''),
    nickname_key TEXT NOT NULL CHECK (nickname_key <> ''),  -- how nicknames are compared, see instances/nicknames.py
    connector_url TEXT,                   -- NULL: none was given
    state TEXT NOT NULL DEFAULT 'configured' CHECK (state IN ('configured', 'enrolled', 'revoked', 'removed')),
    state_at REAL NOT NULL,               -- since when it is in this state
    state_actor TEXT NOT NULL,            -- who brought it there
    state_reason TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    enrolled_at REAL,                     -- when it was enrolled last; NULL: never
    removed_at REAL,
    CHECK ((removed_at IS NOT NULL) = (state = 'removed')),
    CHECK (state <> 'enrolled' OR enrolled_at IS NOT NULL),
    CHECK (state <> 'configured' OR enrolled_at IS NULL)
) STRICT;
-- A revoked instance keeps its nickname, a removed one frees it.
CREATE UNIQUE INDEX gateway_instances_nickname ON gateway_instances (nickname_key) WHERE removed_at IS NULL;
CREATE INDEX gateway_instances_removed ON gateway_instances (removed_at) WHERE removed_at IS NOT NULL;
CREATE TRIGGER gateway_instances_change_as_told BEFORE UPDATE OF state ON gateway_instances
WHEN (old.state, new.state) NOT IN (VALUES ('configured', 'configured'), ('configured', 'enrolled'),
    ('configured', 'revoked'), ('enrolled', 'enrolled'), ('enrolled', 'revoked'), ('revoked', 'revoked'),
    ('revoked', 'enrolled'), ('revoked', 'removed'))
BEGIN SELECT RAISE(ABORT, 'an instance does not change so'); END;
CREATE TRIGGER gateway_instances_keep_their_id BEFORE UPDATE OF instance_id ON gateway_instances
WHEN new.instance_id <> old.instance_id
BEGIN SELECT RAISE(ABORT, 'an instance keeps its id'); END;
-- Only what was never enrolled, or was removed and has no tombstone any more, may go.
CREATE TRIGGER gateway_instances_go_as_told BEFORE DELETE ON gateway_instances
WHEN old.state IN ('enrolled', 'revoked') OR EXISTS (
    SELECT 1 FROM tombstones WHERE kind = 'instance' AND key = old.instance_id)
BEGIN SELECT RAISE(ABORT, 'an instance that is not removed, or has a tombstone, keeps its row'); END;

-- At most one row: the key that the digests below are made with. It is no secret of anybody's and opens nothing.
CREATE TABLE gateway_digest_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    digest_key BLOB NOT NULL CHECK (length(digest_key) = 32)
) STRICT;

-- One-time enrollment tokens, as digests.
CREATE TABLE enrollment_tokens (
    token_digest BLOB PRIMARY KEY CHECK (length(token_digest) = 32),
    instance_id TEXT NOT NULL REFERENCES gateway_instances (instance_id) ON DELETE CASCADE,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'consumed', 'superseded', 'forgotten')),
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,             -- still good then; 'expired' is a matter of time and never written
    settled_at REAL,
    CHECK ((settled_at IS NULL) = (state = 'pending'))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX enrollment_tokens_pending ON enrollment_tokens (instance_id) WHERE state = 'pending';
CREATE INDEX enrollment_tokens_instance ON enrollment_tokens (instance_id);
CREATE INDEX enrollment_tokens_expiry ON enrollment_tokens (expires_at);
CREATE TRIGGER enrollment_tokens_end_once BEFORE UPDATE ON enrollment_tokens WHEN old.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'an enrollment token ends once'); END;

-- The one credential of an enrolled instance, as a digest; none while another enrollment is pending.
CREATE TABLE gateway_credentials (
    instance_id TEXT PRIMARY KEY REFERENCES gateway_instances (instance_id) ON DELETE RESTRICT,
    credential_digest BLOB NOT NULL CHECK (length(credential_digest) = 32),
    issued_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER gateway_credentials_of_enrolled BEFORE INSERT ON gateway_credentials
WHEN (SELECT state FROM gateway_instances WHERE instance_id = new.instance_id) IS NOT 'enrolled'
BEGIN SELECT RAISE(ABORT, 'only an enrolled instance has a credential'); END;
CREATE TRIGGER gateway_credentials_end_first BEFORE UPDATE OF state ON gateway_instances
WHEN new.state <> 'enrolled' AND EXISTS (SELECT 1 FROM gateway_credentials WHERE instance_id = new.instance_id)
BEGIN SELECT RAISE(ABORT, 'an instance loses its credential before it is revoked'); END;

-- Which instance serves a thread, and its session there. An instance that is bound keeps its row.
CREATE TABLE thread_bindings (
    thread_id TEXT PRIMARY KEY CHECK (thread_id <> ''),
    instance_id TEXT NOT NULL REFERENCES gateway_instances (instance_id) ON DELETE RESTRICT,
    session_id TEXT NOT NULL CHECK (session_id <> ''),  -- the gateway's id
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX thread_bindings_instance ON thread_bindings (instance_id);
CREATE TRIGGER thread_bindings_keep_their_instance BEFORE UPDATE OF thread_id, instance_id ON thread_bindings
WHEN new.instance_id <> old.instance_id OR new.thread_id <> old.thread_id
BEGIN SELECT RAISE(ABORT, 'a thread keeps its instance'); END;
-- However a binding goes, the tombstone of its instance has one reference less.
CREATE TRIGGER thread_bindings_let_go AFTER DELETE ON thread_bindings
BEGIN
    DELETE FROM tombstone_references WHERE kind = 'instance' AND key = old.instance_id
        AND holder_kind = 'thread' AND holder_key = old.thread_id;
END;

-- Connections of gateway instances: what outlives them. A connection itself is no row: a connect, a ping and a disconnect
-- write nothing, unless the negotiated version or the plugin's boot id is another than the last time.
-- The server's epoch is the fence of the lease 'gateway server', which no restore of an older backup lowers.
CREATE TABLE gateway_links (
    instance_id TEXT PRIMARY KEY CHECK (instance_id <> ''),
    protocol_version INTEGER NOT NULL CHECK (protocol_version > 0),  -- negotiated at the last connect that changed it
    boot_id TEXT NOT NULL,                -- of the plugin process whose recovery was recorded last
    changed_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
-- When an instance was last heard of, some minutes coarse: written by a timer, never by a connect.
CREATE TABLE gateway_last_seen (
    instance_id TEXT PRIMARY KEY CHECK (instance_id <> ''),
    seen_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
-- Why a plugin stopped connecting, until a person did something about it.
CREATE TABLE gateway_attention (
    instance_id TEXT PRIMARY KEY CHECK (instance_id <> ''),
    code TEXT NOT NULL CHECK (code <> ''),  -- of a fatal failure, see instances/failures.py
    since REAL NOT NULL,
    detail TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
-- How far a reader got in what an instance sends; of another protocol version it is refused and kept.
CREATE TABLE gateway_cursors (
    instance_id TEXT NOT NULL CHECK (instance_id <> ''),
    name TEXT NOT NULL CHECK (name <> ''),
    protocol_version INTEGER NOT NULL CHECK (protocol_version > 0),
    position TEXT NOT NULL,
    saved_at REAL NOT NULL,
    PRIMARY KEY (instance_id, name)
) STRICT, WITHOUT ROWID;
-- Requests whose effect must be known after a crash. Who waits for the answer is in memory only.
CREATE TABLE gateway_operations (
    id TEXT PRIMARY KEY CHECK (id <> ''), -- idempotency key: the receiver's too
    kind TEXT NOT NULL CHECK (kind IN ('turn.start', 'approval.respond', 'session.stop')),
    instance_id TEXT NOT NULL CHECK (instance_id <> ''),
    thread_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'admitted' CHECK (state IN ('admitted', 'completed', 'indeterminate')),
    epoch INTEGER NOT NULL CHECK (epoch > 0),  -- of the server that admitted it
    request_check TEXT NOT NULL,          -- SHA-256 of what was asked: the same id is the same request
    admitted_at REAL NOT NULL,
    deadline_at REAL NOT NULL CHECK (deadline_at > admitted_at),
    settled_at REAL,                      -- NULL while it is admitted
    outcome TEXT,                         -- JSON: what the receiver answered; NULL unless completed
    why TEXT,                             -- why nobody knows; NULL unless that was ever so
    CHECK ((state = 'admitted') = (settled_at IS NULL)),
    CHECK ((state = 'completed') = (outcome IS NOT NULL)),
    CHECK (state <> 'indeterminate' OR why IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX gateway_operations_open ON gateway_operations (deadline_at) WHERE settled_at IS NULL;
CREATE INDEX gateway_operations_settled ON gateway_operations (settled_at) WHERE settled_at IS NOT NULL;
CREATE TRIGGER gateway_operations_end_once BEFORE UPDATE ON gateway_operations WHEN old.state = 'completed'
    OR (old.state = 'indeterminate' AND new.state = 'admitted')
BEGIN SELECT RAISE(ABORT, 'a completed operation never changes'); END;
CREATE TRIGGER gateway_operations_keep_admitted BEFORE DELETE ON gateway_operations WHEN old.settled_at IS NULL
BEGIN SELECT RAISE(ABORT, 'an operation that is not settled is never deleted'); END;

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

-- Background processes and delegations: what was begun beside a conversation, and what became of it.
CREATE TABLE background_work (
    no INTEGER PRIMARY KEY,               -- the order in which they were registered
    -- What it is, and the dedupe id of its one notice: process/ID/EPOCH or delegation/ID.
    key TEXT NOT NULL UNIQUE CHECK (key <> ''),
    sort TEXT NOT NULL CHECK (sort IN ('process', 'delegation')),
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that it runs for
    state TEXT NOT NULL,
    session_id TEXT, session_key TEXT,    -- whose conversation it was begun in, and its routing key; NULL: nobody's
    generation INTEGER CHECK (generation > 0),            -- of that conversation then; NULL: it had no routing entry
    described TEXT NOT NULL CHECK (json_valid(described)),  -- JSON: command, folder, patterns; or the task
    -- How its end is told: a turn is begun, a person reads it, a client shows it, or nobody hears of it.
    mode TEXT NOT NULL CHECK (mode IN ('turn', 'receipt', 'display', 'nobody')),
    verbosity TEXT NOT NULL CHECK (verbosity IN ('concise', 'all', 'result', 'error', 'off')),
    transport TEXT NOT NULL, target TEXT NOT NULL,        -- of the notice, as in the outbox; '': nobody is told
    pid INTEGER CHECK (pid > 0),
    pid_scope TEXT CHECK (pid_scope IN ('host', 'sandbox')),
    identity TEXT CHECK (json_valid(identity)),           -- JSON: which process of which boot the pid is; NULL: unknown
    -- Who watches over it: a lease of this row, until it has ended.
    owner TEXT CHECK (json_valid(owner)),
    boot_id TEXT, time_namespace TEXT,
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    expires_boottime REAL,
    taken_over_at REAL,                   -- since when another than who began it watches; NULL: nobody else does
    registered_at REAL NOT NULL, started_at REAL,
    state_at REAL NOT NULL,               -- since when the state is what it is
    ended_at REAL,
    ended_boottime REAL,                  -- the same on the clock of boot_id, which nobody sets; NULL: not known
    exit_code INTEGER,                    -- NULL: it has none, or nobody knows it
    reason TEXT CHECK (reason IN ('exited', 'killed', 'lost', 'failed_start', 'already_exited')),
    ended_by TEXT,                        -- who or what ended it, for people
    error TEXT,                           -- why a delegation failed, or why it counts as lost
    -- Matches of its patterns: told at most once in a while, see work/watching.py.
    watch_last_at REAL, watch_strikes INTEGER NOT NULL DEFAULT 0 CHECK (watch_strikes >= 0),
    watch_struck INTEGER NOT NULL DEFAULT 0 CHECK (watch_struck IN (0, 1)),  -- a match since the last one was not told
    watch_told INTEGER NOT NULL DEFAULT 0 CHECK (watch_told >= 0),
    watch_disabled_at REAL, watch_tripped_at REAL,
    -- The last word of the outbox about its notice, once that has forgotten it; until then it is there.
    delivery TEXT, delivery_at REAL,
    result_chars INTEGER NOT NULL DEFAULT 0 CHECK (result_chars >= 0),  -- before it was cut
    result TEXT,                          -- the end of the output of a process; JSON of a delegation
    CHECK (sort = 'process' OR result IS NULL OR json_valid(result)),
    CHECK (CASE sort
        WHEN 'process' THEN state IN ('registered', 'running', 'exited', 'lost')
        ELSE state IN ('running', 'stalling', 'finalizing', 'completed', 'error', 'stalled', 'unknown') END),
    CHECK ((ended_at IS NULL) = (state IN ('registered', 'running', 'stalling', 'finalizing'))),
    CHECK ((owner IS NULL) = (ended_at IS NOT NULL)),
    CHECK ((mode = 'nobody') = (transport = '')),
    CHECK ((delivery IS NULL) = (delivery_at IS NULL))
) STRICT;
CREATE INDEX background_work_ended ON background_work (ended_at);
-- What has ended stays as it ended, and what it is never changes.
CREATE TRIGGER background_work_ends_once BEFORE UPDATE ON background_work
WHEN new.key IS NOT old.key OR new.home IS NOT old.home OR (old.ended_at IS NOT NULL AND (
    new.state IS NOT old.state OR new.ended_at IS NOT old.ended_at OR new.exit_code IS NOT old.exit_code
    OR new.reason IS NOT old.reason OR new.result IS NOT old.result OR new.mode IS NOT old.mode))
BEGIN SELECT RAISE(ABORT, 'background work ends once'); END;
-- Until it has ended, and until its notice is settled, it is never deleted.
CREATE TRIGGER background_work_keeps_what_is_owed BEFORE DELETE ON background_work
WHEN old.ended_at IS NULL
    OR EXISTS (SELECT 1 FROM outbox WHERE dedupe_id = old.key AND settled_at IS NULL)
    OR EXISTS (
        SELECT 1 FROM outbox WHERE dedupe_id > old.key || '#' AND dedupe_id < old.key || '$' AND settled_at IS NULL
    )
BEGIN SELECT RAISE(ABORT, 'background work that is not told of is never deleted'); END;
-- The outbox forgets its rows in time; what became of a notice, also of one that a person owed again, stays here.
CREATE TRIGGER background_work_keeps_its_delivery AFTER DELETE ON outbox
WHEN old.kind IN ('completion', 'receipt', 'display')
BEGIN
    UPDATE background_work SET delivery = old.state, delivery_at = old.settled_at
    WHERE key = substr(old.dedupe_id, 1, instr(old.dedupe_id || '#retry-', '#retry-') - 1)
        AND (delivery IS NULL OR old.state = 'accepted');
END;

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

-- Credentials of model providers, facts about models, registrations of providers, and what is left of accounts.

-- What may be known of a credential; its secrets are in the caller's secret file and only digests of them are here.
CREATE TABLE credentials (
    provider TEXT NOT NULL CHECK (provider <> ''), id TEXT NOT NULL CHECK (id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that it belongs to
    label TEXT NOT NULL DEFAULT '',
    auth_type TEXT NOT NULL CHECK (auth_type <> ''),
    source TEXT NOT NULL CHECK (source <> ''),            -- manual, shared, or who brought it
    priority INTEGER NOT NULL DEFAULT 0,                  -- the least is used first
    base_url TEXT,
    single_use INTEGER NOT NULL CHECK (single_use IN (0, 1)),  -- a refresh token of it works once
    status TEXT NOT NULL DEFAULT 'ok' CHECK (status IN ('ok', 'exhausted', 'dead')),
    status_at REAL NOT NULL,
    error_code TEXT, error_reason TEXT, error_message TEXT,
    reset_at REAL,                                        -- exhausted: when it may be used again
    expires_at REAL, agent_key_expires_at REAL,           -- NULL: nobody said
    rotate_after REAL,                                    -- not renewed before while it works; NULL: when due
    refreshed_at REAL,                                    -- of the newest rotation; NULL: none yet
    request_count INTEGER NOT NULL DEFAULT 0 CHECK (request_count >= 0),
    used_order INTEGER NOT NULL DEFAULT 0 CHECK (used_order >= 0),  -- of the newest use, among all of the provider
    extra TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(extra)),     -- JSON: what else the provider says, no secrets
    salt BLOB NOT NULL CHECK (length(salt) = 16),         -- key of the digests of this row
    access_digest BLOB CHECK (length(access_digest) = 32), refresh_digest BLOB CHECK (length(refresh_digest) = 32),
    spent BLOB NOT NULL DEFAULT x'' CHECK (length(spent) % 16 = 0),  -- halves of digests of spent tokens, newest last
    -- The rotation: 'rotating' from just before the token is sent until what came back is kept.
    rotation TEXT NOT NULL DEFAULT 'whole' CHECK (rotation IN ('whole', 'rotating', 'grant_may_be_lost')),
    rotation_fence INTEGER NOT NULL DEFAULT 0 CHECK (rotation_fence >= 0),  -- of the newest rotation: only rises
    rotation_digest BLOB CHECK (length(rotation_digest) = 32),   -- of the token that was sent
    rotation_at REAL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL,
    CHECK ((status = 'exhausted') = (reset_at IS NOT NULL)),
    CHECK ((rotation = 'whole') = (rotation_digest IS NULL)),
    CHECK ((rotation = 'whole') = (rotation_at IS NULL)),
    PRIMARY KEY (provider, id)
) STRICT, WITHOUT ROWID;

-- What each layer says of a model; a row says what it knows, and nothing of the rest.
CREATE TABLE model_facts (
    provider TEXT NOT NULL,                               -- '': whichever
    layer TEXT NOT NULL CHECK (layer IN ('override', 'plugin', 'catalog', 'default')),
    model_key TEXT NOT NULL CHECK (model_key <> ''),      -- the name without upper and lower case
    model TEXT NOT NULL CHECK (model <> ''),              -- as it was written; default: '_default'
    facts TEXT NOT NULL CHECK (json_valid(facts)),        -- JSON: see hermes_state/work/models/layers.py
    source TEXT NOT NULL,                                 -- who says so
    declared_at REAL NOT NULL,
    PRIMARY KEY (provider, layer, model_key, model)
) STRICT, WITHOUT ROWID;

-- Providers as they were registered, one row for each source: none ever changes the row of another.
CREATE TABLE provider_registrations (
    name TEXT NOT NULL CHECK (name <> ''),
    source TEXT NOT NULL CHECK (source IN ('builtin', 'bundled', 'user')),
    content TEXT NOT NULL CHECK (json_valid(content)),    -- JSON, byte for byte as it was registered
    origin TEXT NOT NULL DEFAULT '',                      -- the plugin that registered it
    registered_at REAL NOT NULL,
    PRIMARY KEY (name, source)
) STRICT, WITHOUT ROWID;

-- What a provider said was left of an account, and when.
CREATE TABLE account_usage (
    provider TEXT NOT NULL CHECK (provider <> ''), account TEXT NOT NULL CHECK (account <> ''),
    windows TEXT NOT NULL CHECK (json_valid(windows)),    -- JSON: see hermes_state/work/usage_windows.py
    as_of REAL NOT NULL,
    PRIMARY KEY (provider, account)
) STRICT, WITHOUT ROWID;

-- Direct chats whose topics are conversations of their own; which session a topic goes on in is in routing_entries.
CREATE TABLE topic_chats (
    platform TEXT NOT NULL CHECK (platform <> ''), chat_id TEXT NOT NULL CHECK (chat_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that it runs in
    user_id TEXT NOT NULL,                                -- who asked for it
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    details TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(details)),  -- JSON: what the platform allows, pinned messages
    activated_at REAL NOT NULL, updated_at REAL NOT NULL,
    PRIMARY KEY (platform, chat_id)
) STRICT, WITHOUT ROWID;
-- Cron: which jobs there are, what became of every slot of theirs, and who runs them now.

-- Declarations. A fire never writes here.
CREATE TABLE cron_jobs (
    job_id TEXT PRIMARY KEY CHECK (job_id <> ''),
    name TEXT NOT NULL,
    fields TEXT NOT NULL CHECK (json_valid(fields)),      -- JSON object: prompt, model, deliver, ...; unknown keys kept
    effect TEXT NOT NULL CHECK (effect IN ('once', 'idempotent')),  -- idempotent: may be run again under its key
    misfire TEXT CHECK (misfire IN ('coalesce', 'run_all', 'skip', 'notify')),  -- NULL: skip for once, else coalesce
    grace_seconds REAL CHECK (grace_seconds >= 0),        -- until when a slot is on time; NULL: by its period
    spacing_seconds REAL NOT NULL CHECK (spacing_seconds >= 0),  -- between two starts that catch up
    most_late INTEGER NOT NULL CHECK (most_late BETWEEN 1 AND 500),  -- slots that run_all keeps: the newest
    overlap TEXT NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
    repeat_times INTEGER CHECK (repeat_times > 0),        -- runs in all; NULL: for ever
    allowance_seconds REAL CHECK (allowance_seconds > 0),  -- after which a run without a thread is let go; NULL: by period
    session_reuse INTEGER NOT NULL CHECK (session_reuse IN (0, 1)),  -- all runs go on in one session
    keep_executions INTEGER NOT NULL CHECK (keep_executions >= 0),  -- that ended, for each source
    version INTEGER NOT NULL DEFAULT 1 CHECK (version > 0),  -- counts the edits
    created_at REAL NOT NULL, updated_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Schedule versions. One is for the slots after `from_slot`, up to and with that of the next version.
CREATE TABLE cron_schedules (
    job_id TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    from_slot INTEGER NOT NULL,
    active INTEGER NOT NULL CHECK (active IN (0, 1)),     -- 0: paused, its slots are skipped
    schedule TEXT NOT NULL CHECK (json_valid(schedule)),  -- JSON, see cron_store/schedule
    made_at REAL NOT NULL,
    PRIMARY KEY (job_id, version)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER cron_schedules_never_change BEFORE UPDATE ON cron_schedules
BEGIN SELECT RAISE(ABORT, 'a schedule version never changes'); END;

-- How a job stands. Written by fires.
CREATE TABLE cron_runtime (
    job_id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('scheduled', 'paused', 'completed', 'error')),
    state_at REAL NOT NULL, state_reason TEXT NOT NULL DEFAULT '',
    due_at REAL,                          -- when a ticker has to look at it; NULL: nothing to do
    settled_through INTEGER NOT NULL,     -- every slot at or before it has its record, or had: none is ever made anew
    next_slot INTEGER,                    -- of after_finish, which has no grid
    tz_version TEXT NOT NULL,             -- by which tz database due_at was told
    repeat_completed INTEGER NOT NULL DEFAULT 0 CHECK (repeat_completed >= 0),
    failure_streak INTEGER NOT NULL DEFAULT 0 CHECK (failure_streak >= 0),
    last_run_at REAL, last_state TEXT, last_error TEXT,   -- of the newest run that ended
    session_id TEXT,                      -- in which its runs go on, with session_reuse
    revision INTEGER NOT NULL DEFAULT 0   -- counts the changes of the job and its open rows: the value that is compared
) STRICT, WITHOUT ROWID;
CREATE INDEX cron_runtime_due ON cron_runtime (due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER cron_runtime_only_rises BEFORE UPDATE ON cron_runtime WHEN new.settled_through < old.settled_through
BEGIN SELECT RAISE(ABORT, 'what is settled stays settled'); END;

-- What became of slots: a row of its own, or one row for consecutive slots with one verdict.
CREATE TABLE cron_occurrences (
    job_id TEXT NOT NULL,
    slot INTEGER NOT NULL,                -- epoch seconds UTC; of a range: its first
    last_slot INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    state TEXT NOT NULL CHECK (state IN (
        'due', 'claimed', 'running', 'succeeded', 'failed', 'missed', 'skipped', 'interrupted', 'unknown'
    )),
    reason TEXT NOT NULL DEFAULT '',      -- of a verdict without a run: late, coalesced, cap, overlap, paused, ...
    version INTEGER NOT NULL,             -- of the schedule that it is a slot of
    fence INTEGER,                        -- of its newest execution; NULL: it was never claimed
    settled_at REAL,
    CHECK ((count = 1) = (slot = last_slot)), CHECK (slot <= last_slot),
    CHECK (count = 1 OR state IN ('missed', 'skipped')),
    CHECK ((settled_at IS NULL) = (state IN ('due', 'claimed', 'running'))),
    CHECK (fence IS NOT NULL OR state NOT IN ('claimed', 'running', 'succeeded', 'failed', 'interrupted')),
    PRIMARY KEY (job_id, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX cron_occurrences_open ON cron_occurrences (job_id, slot) WHERE settled_at IS NULL;
CREATE TRIGGER cron_occurrences_once BEFORE INSERT ON cron_occurrences
WHEN NOT EXISTS (SELECT 1 FROM cron_runtime WHERE job_id = new.job_id AND settled_through < new.slot)
BEGIN SELECT RAISE(ABORT, 'that slot was accounted for'); END;
-- A range may grow; nothing else of a verdict changes.
CREATE TRIGGER cron_occurrences_end_once BEFORE UPDATE ON cron_occurrences
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.reason IS NOT old.reason
    OR new.version IS NOT old.version OR new.fence IS NOT old.fence OR new.last_slot <= old.last_slot
    OR new.count <= old.count
    OR NOT EXISTS (SELECT 1 FROM cron_runtime WHERE job_id = new.job_id AND settled_through < new.last_slot))
BEGIN SELECT RAISE(ABORT, 'a slot that is settled never changes'); END;

-- Runs, of slots and by hand: while they are open, what is in flight; then their history.
CREATE TABLE cron_executions (
    fence INTEGER PRIMARY KEY AUTOINCREMENT,  -- only rises; every write about a run names it
    job_id TEXT NOT NULL,
    lane TEXT NOT NULL,                   -- '': the job's only run at a time; else the key of the run
    slot INTEGER,                         -- NULL: by hand, or imported
    run_id TEXT,                          -- of a run by hand
    source TEXT NOT NULL CHECK (source IN ('schedule', 'manual', 'import')),
    state TEXT NOT NULL CHECK (state IN (
        'claimed', 'running', 'succeeded', 'failed', 'interrupted', 'released', 'unknown'
    )),
    owner TEXT,                           -- JSON of the owner identity; NULL: imported
    renewals INTEGER NOT NULL DEFAULT 0,
    boot_id TEXT, time_namespace TEXT, claimed_boottime REAL, expires_boottime REAL, term_seconds REAL,
    allowance_seconds REAL,
    handed_off_boottime REAL,             -- a worker of its own is to adopt it
    waiter TEXT,                          -- JSON of the owner that handed it off and waits for it
    detached INTEGER NOT NULL DEFAULT 0 CHECK (detached IN (0, 1)),  -- it outlives its waiter
    claimed_at REAL NOT NULL, started_at REAL, finished_at REAL,
    lateness_seconds REAL NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 1 CHECK (attempt > 0),  -- of its slot
    interrupted_at REAL, interrupted_reason TEXT,
    forced INTEGER NOT NULL DEFAULT 0 CHECK (forced IN (0, 1)),  -- let go by the rule, not by its owner
    error TEXT, failure_type TEXT, session_id TEXT,
    result TEXT CHECK (json_valid(result)),
    CHECK ((finished_at IS NULL) = (state IN ('claimed', 'running'))),
    CHECK (finished_at IS NOT NULL OR owner IS NOT NULL),
    CHECK (state <> 'running' OR started_at IS NOT NULL),
    CHECK ((run_id IS NOT NULL) = (source = 'manual'))
) STRICT;
CREATE UNIQUE INDEX cron_executions_open ON cron_executions (job_id, lane) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX cron_executions_run ON cron_executions (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX cron_executions_job ON cron_executions (job_id, source, fence) WHERE finished_at IS NOT NULL;
CREATE TRIGGER cron_executions_end_once BEFORE UPDATE ON cron_executions WHEN old.finished_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a run that ended never changes'); END;
CREATE TRIGGER cron_executions_keep_open BEFORE DELETE ON cron_executions WHEN old.finished_at IS NULL
BEGIN SELECT RAISE(ABORT, 'a run in flight is never deleted'); END;

-- Failures that people are told of: one row for each job and kind of error.
CREATE TABLE cron_incidents (
    incident_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('detected', 'alerted', 'resolved', 'closed')),
    generation INTEGER NOT NULL CHECK (generation > 0),   -- rises when it comes back after it was resolved
    failure_type TEXT NOT NULL, error TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),             -- failures of this generation
    first_at REAL NOT NULL, last_at REAL NOT NULL, alerted_at REAL, closed_at REAL,
    fence INTEGER                         -- of the newest run that failed so
) STRICT, WITHOUT ROWID;
CREATE INDEX cron_incidents_job ON cron_incidents (job_id, state);

-- What happened to cron itself: clock steps, forced releases, notices, edits.
CREATE TABLE cron_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    job_id TEXT,
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;

-- At most one row: the ticker of this home as it was last heard.
CREATE TABLE cron_home (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    wall_at REAL NOT NULL, boottime REAL NOT NULL,        -- read together: a step of the wall clock shows between two
    boot_id TEXT NOT NULL, time_namespace TEXT NOT NULL,
    doubt_seconds REAL, doubt_boottime REAL,              -- a step that is not believed yet, and since when it was seen
    heartbeat_at REAL, success_at REAL, error_at REAL, error TEXT,
    ticker TEXT                           -- JSON of the owner identity
) STRICT;
