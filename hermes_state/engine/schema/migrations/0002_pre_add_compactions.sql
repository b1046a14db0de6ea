-- Compaction as rows: one a generation, where each session's view is, and what the view shows shortened.
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
