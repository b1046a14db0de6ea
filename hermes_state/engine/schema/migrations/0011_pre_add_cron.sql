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
