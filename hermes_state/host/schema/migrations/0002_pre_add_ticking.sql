
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
