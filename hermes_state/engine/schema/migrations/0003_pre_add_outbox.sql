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
