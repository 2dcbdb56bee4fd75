-- Revision 0004: frozen, never changed again.

-- How far planning has seen that an asset lacks no publication; what it saw once it does not look through again
CREATE TABLE kafka_published (
    asset VARCHAR(255) NOT NULL COMMENT 'the asset',
    source_id BIGINT NOT NULL COMMENT 'the source',
    `partition` INTEGER NOT NULL COMMENT 'the Kafka partition',
    published_through BIGINT NOT NULL COMMENT 'below it each slice that is to land has a publication of the asset',
    -- one mark per asset and partition
    CONSTRAINT kafka_published_pk PRIMARY KEY (asset, source_id, `partition`),
    -- no offset that Kafka cannot have
    CONSTRAINT kafka_published_not_negative CHECK (published_through >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='How far planning has seen that an asset lacks no publication; what it saw once it does not look through again' COLLATE utf8mb4_bin;

CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, `partition`, kind, start_offset) COMMENT 'finds what was lost or skipped without reading all that was not';
