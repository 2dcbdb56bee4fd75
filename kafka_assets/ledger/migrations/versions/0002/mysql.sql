-- Revision 0002: frozen, never changed again.

-- What keeps all of an asset from landing, and is no slice's fault; gone with the first slice that lands
CREATE TABLE kafka_stall (
    asset VARCHAR(255) NOT NULL COMMENT 'the asset',
    failure LONGTEXT NOT NULL COMMENT 'what happened, why, and what to do: its table, its declaration or a right',
    code_version VARCHAR(255) COMMENT 'the code that met it; another one is tried soon',
    since DATETIME(6) NOT NULL COMMENT 'when it was met first',
    tries INTEGER NOT NULL COMMENT 'how often it was tried' DEFAULT 0,
    tried_at BIGINT NOT NULL COMMENT 'ms, database clock: when it was tried last',
    not_before BIGINT NOT NULL COMMENT 'ms, database clock: the sensor tries again no sooner, and then one run alone',
    -- one answer to: why does nothing land
    CONSTRAINT kafka_stall_pk PRIMARY KEY (asset),
    -- a pause grows with what was tried, and never shrinks
    CONSTRAINT kafka_stall_tries CHECK (tries >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='What keeps all of an asset from landing, and is no slice''s fault; gone with the first slice that lands' COLLATE utf8mb4_bin;
