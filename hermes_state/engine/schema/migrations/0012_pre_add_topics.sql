-- Direct chats whose topics are conversations of their own; which session a topic goes on in is in routing_entries.
CREATE TABLE topic_chats (
    platform TEXT NOT NULL CHECK (platform <> ''), chat_id TEXT NOT NULL CHECK (chat_id <> ''),
    home TEXT NOT NULL CHECK (home <> ''),                -- store_id of the home that it runs in
    user_id TEXT NOT NULL,                                -- who asked for it
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    details TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(details)),  -- JSON: what the platform allows, pinned messages
    activated_at REAL NOT NULL, updated_at REAL NOT NULL,
    PRIMARY KEY (platform, chat_id)
) STRICT, WITHOUT ROWID;
