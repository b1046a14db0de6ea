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
