-- What outlives the connections of gateway instances. A connection itself is no row: a connect, a ping and a disconnect
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
