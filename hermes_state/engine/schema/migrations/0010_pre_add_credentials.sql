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
