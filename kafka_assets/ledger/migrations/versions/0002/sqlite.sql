-- Revision 0002: frozen, never changed again.

-- What keeps all of an asset from landing, and is no slice's fault; gone with the first slice that lands
CREATE TABLE kafka_stall (
    -- the asset
    asset VARCHAR(255) NOT NULL,
    -- what happened, why, and what to do: its table, its declaration or a right
    failure TEXT NOT NULL,
    -- the code that met it; another one is tried soon
    code_version VARCHAR(255),
    -- when it was met first
    since DATETIME NOT NULL,
    -- how often it was tried
    tries INTEGER DEFAULT 0 NOT NULL,
    -- ms, database clock: when it was tried last
    tried_at BIGINT NOT NULL,
    -- ms, database clock: the sensor tries again no sooner, and then one run alone
    not_before BIGINT NOT NULL,
    -- one answer to: why does nothing land
    CONSTRAINT kafka_stall_pk PRIMARY KEY (asset),
    -- a pause grows with what was tried, and never shrinks
    CONSTRAINT kafka_stall_tries CHECK (tries >= 0)
);
