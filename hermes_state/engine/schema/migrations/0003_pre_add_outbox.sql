-- What is owed to somebody: one row an obligation, from the change that made it to its verdict.
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
CREATE INDEX outbox_due ON outbox (transport, priority DESC, due_at, id) WHERE state = 'pending';
CREATE INDEX outbox_once ON outbox (transport, due_at) WHERE state = 'pending' AND policy = 'at_most_once';
CREATE INDEX outbox_lane ON outbox (lane, priority, id) WHERE settled_at IS NULL AND lane IS NOT NULL;
CREATE INDEX outbox_batch ON outbox (batch) WHERE settled_at IS NULL AND batch IS NOT NULL;
CREATE INDEX outbox_claimed ON outbox (owner) WHERE state = 'claimed';
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE settled_at IS NOT NULL;
-- Terminal never leaves; only its payload is blanked later.
CREATE TRIGGER outbox_ends_once BEFORE UPDATE ON outbox
WHEN old.settled_at IS NOT NULL AND (new.state IS NOT old.state OR new.settled_at IS NOT old.settled_at
    OR new.attempts IS NOT old.attempts OR new.fence IS NOT old.fence OR new.verdict IS NOT old.verdict)
BEGIN SELECT RAISE(ABORT, 'a settled obligation never changes'); END;
CREATE TRIGGER outbox_keeps_what_is_owed BEFORE DELETE ON outbox WHEN old.settled_at IS NULL
BEGIN SELECT RAISE(ABORT, 'an obligation that is not settled is never deleted'); END;

-- At most one row: how far back settled obligations were forgotten. None: nothing was.
CREATE TABLE outbox_horizon (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    forgotten_to REAL NOT NULL            -- an id made at or before this is refused as too old unless its row is here
) STRICT;
