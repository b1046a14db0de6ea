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
