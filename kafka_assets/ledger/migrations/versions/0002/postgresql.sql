-- Revision 0002: frozen, never changed again.

CREATE TABLE kafka_stall (
    asset VARCHAR(255) NOT NULL,
    failure TEXT NOT NULL,
    code_version VARCHAR(255),
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    tried_at BIGINT NOT NULL,
    not_before BIGINT NOT NULL,
    CONSTRAINT kafka_stall_pk PRIMARY KEY (asset),
    CONSTRAINT kafka_stall_tries CHECK (tries >= 0)
);

COMMENT ON TABLE kafka_stall IS 'What keeps all of an asset from landing, and is no slice''s fault; gone with the first slice that lands';

COMMENT ON COLUMN kafka_stall.asset IS 'the asset';

COMMENT ON COLUMN kafka_stall.failure IS 'what happened, why, and what to do: its table, its declaration or a right';

COMMENT ON COLUMN kafka_stall.code_version IS 'the code that met it; another one is tried soon';

COMMENT ON COLUMN kafka_stall.since IS 'when it was met first';

COMMENT ON COLUMN kafka_stall.tries IS 'how often it was tried';

COMMENT ON COLUMN kafka_stall.tried_at IS 'ms, database clock: when it was tried last';

COMMENT ON COLUMN kafka_stall.not_before IS 'ms, database clock: the sensor tries again no sooner, and then one run alone';

COMMENT ON CONSTRAINT kafka_stall_pk ON kafka_stall IS 'one answer to: why does nothing land';

COMMENT ON CONSTRAINT kafka_stall_tries ON kafka_stall IS 'a pause grows with what was tried, and never shrinks';
