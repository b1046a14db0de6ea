-- The shape of host.db now. migrations/*.sql is how we got here; a test proves both equal.
-- Every table is STRICT. Times are epoch seconds UTC as REAL and for people only, unless a column says boot time.

-- One row: who this file is. As in the store of a home, so that the engine opens both.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    store_id TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    created_at REAL NOT NULL,
    adopted_from TEXT
) STRICT;
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sha256 TEXT NOT NULL,
    applied_at REAL NOT NULL,
    applied_by TEXT NOT NULL
) STRICT;

-- Leases, as in the store of a home: the scoped token locks are some.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    fence INTEGER NOT NULL CHECK (fence > 0),
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    owner TEXT,                           -- JSON, the owner identity; NULL when free
    boot_id TEXT, time_namespace TEXT,    -- clock domain of the two times below
    acquired_boottime REAL, expires_boottime REAL,
    term_seconds REAL,
    acquired_at REAL,
    CHECK ((owner IS NULL) = (expires_boottime IS NULL))
) STRICT, WITHOUT ROWID;

-- One row a run of a gateway or server process, whoever of them owns the host.
CREATE TABLE gateways (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,                  -- JSON, the owner identity of the one process that writes this row
    uid INTEGER NOT NULL,                 -- of that process; rows of another one are ignored
    home TEXT NOT NULL CHECK (home <> ''),  -- the home it was started for
    kind TEXT NOT NULL CHECK (kind IN ('gateway', 'serve')),
    supervisor TEXT NOT NULL CHECK (supervisor IN ('systemd', 's6', 'launchd', 'external', 'none')),
    label TEXT NOT NULL DEFAULT '',       -- what the supervisor calls it
    command TEXT NOT NULL DEFAULT '',     -- how a person starts it again
    code_root TEXT, code_sha TEXT, code_version TEXT,  -- what it runs, and where that lies on disk
    answers TEXT NOT NULL DEFAULT '',     -- the socket where it says who it is; empty: nowhere
    state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'draining', 'stopping', 'stopped', 'startup_failed')),
    exit_reason TEXT,
    multiplex INTEGER CHECK (multiplex IN (0, 1)),     -- whether it serves other homes as well; NULL: not settled
    served_known INTEGER NOT NULL DEFAULT 0 CHECK (served_known IN (0, 1)),  -- 0: the rows of served say nothing yet
    active_agents INTEGER NOT NULL DEFAULT 0 CHECK (active_agents >= 0),
    active_work INTEGER NOT NULL DEFAULT 0 CHECK (active_work >= 0),  -- all that a stop would interrupt, agents included
    restart_requested INTEGER NOT NULL DEFAULT 0 CHECK (restart_requested IN (0, 1)),  -- 1: it ends to be started again
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    beats INTEGER NOT NULL DEFAULT 0 CHECK (beats >= 0),  -- rises with every sign of life
    boot_id TEXT NOT NULL, time_namespace TEXT NOT NULL,  -- clock domain of the next column
    beat_boottime REAL NOT NULL,
    ended_at REAL,
    CHECK ((ended_at IS NULL) = (state NOT IN ('stopped', 'startup_failed')))
) STRICT;
CREATE UNIQUE INDEX gateways_once ON gateways (owner) WHERE ended_at IS NULL;
CREATE INDEX gateways_ended ON gateways (ended_at) WHERE ended_at IS NOT NULL;
CREATE TRIGGER gateways_end_once BEFORE UPDATE ON gateways WHEN old.ended_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a run that ended never changes'); END;

-- Which homes a run serves, and what it says of the store of each.
CREATE TABLE served (
    gateway_no INTEGER NOT NULL REFERENCES gateways (no) ON DELETE CASCADE,
    home TEXT NOT NULL,
    session_store TEXT NOT NULL DEFAULT 'unknown'
        CHECK (session_store IN ('unknown', 'ok', 'retrying', 'unavailable')),
    PRIMARY KEY (gateway_no, home)
) STRICT, WITHOUT ROWID;

-- What a run says of one platform of one home; only that run writes it.
CREATE TABLE platforms (
    gateway_no INTEGER NOT NULL REFERENCES gateways (no) ON DELETE CASCADE,
    home TEXT NOT NULL,
    platform TEXT NOT NULL CHECK (platform <> ''),
    state TEXT NOT NULL CHECK (state IN ('connecting', 'connected', 'retrying', 'disconnected', 'failed', 'unserved')),
    error_code TEXT, error_message TEXT,
    needs_attention TEXT,                 -- what a person has to do; NULL: nothing
    retrying_since REAL,
    ingress_url TEXT,                     -- where the platform reaches it from outside; NULL: nowhere
    listener_base TEXT,                   -- where it listens on this machine; NULL: nowhere
    updated_at REAL NOT NULL,
    PRIMARY KEY (gateway_no, home, platform),
    CHECK ((state = 'retrying') = (retrying_since IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- One row: who owns the host. Life is proven by the lock on gateway.lock, never by this row.
CREATE TABLE host (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    fence INTEGER NOT NULL CHECK (fence >= 0),         -- rises with every owner
    gateway_no INTEGER REFERENCES gateways (no) ON DELETE SET NULL,  -- NULL: nobody
    claimed_at REAL,
    left_because TEXT,                    -- how the last owner went: it said so, or the proof of its death
    revision INTEGER NOT NULL DEFAULT 0   -- rises with every change that a remembered look at the host must see
) STRICT;
INSERT INTO host (one, fence) VALUES (1, 0);
CREATE TRIGGER host_fence_only_rises BEFORE UPDATE OF fence ON host WHEN new.fence < old.fence
BEGIN SELECT RAISE(ABORT, 'the fence only rises'); END;

-- What every start decided. Repeats of one that did not start are counted in its row.
CREATE TABLE starts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    home TEXT NOT NULL,
    supervisor TEXT NOT NULL, label TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL,                  -- JSON, who decided
    verdict TEXT NOT NULL CHECK (verdict IN ('start', 'attach', 'refuse_permanent', 'refuse_transient', 'replace_host')),
    reason TEXT NOT NULL,
    evidence TEXT NOT NULL,               -- JSON list of sentences
    interrupted INTEGER NOT NULL DEFAULT 0 CHECK (interrupted >= 0),  -- sessions that were active when the last run ended
    repeats INTEGER NOT NULL DEFAULT 0 CHECK (repeats >= 0),
    at REAL NOT NULL, last_at REAL NOT NULL,
    boot_id TEXT NOT NULL, time_namespace TEXT NOT NULL,
    boottime REAL NOT NULL                -- of the last one; what windows are counted by
) STRICT;
CREATE INDEX starts_home ON starts (home, id);

-- Sessions that were active each time that their gateway went down, until a turn of theirs ends.
CREATE TABLE stuck_sessions (
    home TEXT NOT NULL, session_id TEXT NOT NULL,
    restarts INTEGER NOT NULL CHECK (restarts > 0),
    last_start INTEGER NOT NULL,          -- id of the start that counted last: one start counts once
    suspended_at REAL,
    PRIMARY KEY (home, session_id)
) STRICT, WITHOUT ROWID;

-- A word from one process to another that must survive its writer, for 60 s.
CREATE TABLE markers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('takeover', 'planned_stop', 'drain', 'resume')),
    home TEXT NOT NULL,                   -- that the target was started for; for people
    target TEXT NOT NULL,                 -- JSON, the owner identity it is for
    writer TEXT NOT NULL,                 -- JSON, who wrote it
    reason TEXT NOT NULL,
    quiet INTEGER NOT NULL DEFAULT 0 CHECK (quiet IN (0, 1)),  -- 1: people are not told
    epoch TEXT NOT NULL,                  -- boot and first process of the target's machine; empty: not known
    boot_id TEXT NOT NULL, time_namespace TEXT NOT NULL,  -- clock domain of the next column
    written_boottime REAL NOT NULL,       -- it counts for 60 s from here
    written_at REAL NOT NULL,
    ended_at REAL,
    ended TEXT CHECK (ended IN ('consumed', 'expired', 'withdrawn', 'stale')),
    CHECK ((ended IS NULL) = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX markers_open ON markers (kind, target) WHERE ended IS NULL;
CREATE TRIGGER markers_end_once BEFORE UPDATE ON markers WHEN old.ended IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a marker ends once'); END;

-- What upkeep removed, by table: rows that retention allows.
CREATE TABLE forgotten (
    table_name TEXT PRIMARY KEY,
    rows INTEGER NOT NULL CHECK (rows > 0),
    newest_at REAL NOT NULL,              -- nothing newer than this was removed
    last_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Which process ticks the scheduled jobs of which home: for status, for yielding and for standing down. Life is proven by
-- the owner's lock, and who may tick is said by the lease in the home's own store, never by this row.
CREATE TABLE ticking (
    owner TEXT NOT NULL,                  -- JSON, the owner identity of the one process that writes this row
    home TEXT NOT NULL CHECK (home <> ''),
    uid INTEGER NOT NULL,                 -- of that process; rows of another one are ignored
    standing TEXT NOT NULL CHECK (standing IN ('ticks', 'waits', 'yields', 'stands_down', 'fails')),
    said TEXT NOT NULL DEFAULT '',        -- why it does not tick, for people
    code_root TEXT, code_sha TEXT,        -- what it runs, and where that lies on disk
    disk_sha TEXT,                        -- what lay there when it looked last
    how TEXT NOT NULL DEFAULT '',         -- how a person starts it again
    by_hand INTEGER NOT NULL CHECK (by_hand IN (0, 1)),  -- 1: nobody starts it again by itself
    since REAL NOT NULL,                  -- of this standing
    beat_at REAL NOT NULL,
    boot_id TEXT NOT NULL, time_namespace TEXT NOT NULL,  -- clock domain of the next column
    beat_boottime REAL NOT NULL,
    PRIMARY KEY (owner, home)
) STRICT, WITHOUT ROWID;
