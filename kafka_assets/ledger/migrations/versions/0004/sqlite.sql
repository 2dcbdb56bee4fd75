-- Revision 0004: frozen, never changed again.

-- How far planning has seen that an asset lacks no publication; what it saw once it does not look through again
CREATE TABLE kafka_published (
    -- the asset
    asset VARCHAR(255) NOT NULL,
    -- the source
    source_id BIGINT NOT NULL,
    -- the Kafka partition
    partition INTEGER NOT NULL,
    -- below it each slice that is to land has a publication of the asset
    published_through BIGINT NOT NULL,
    -- one mark per asset and partition
    CONSTRAINT kafka_published_pk PRIMARY KEY (asset, source_id, partition),
    -- no offset that Kafka cannot have
    CONSTRAINT kafka_published_not_negative CHECK (published_through >= 0)
);

-- finds what was lost or skipped without reading all that was not
CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, partition, kind, start_offset) WHERE kind <> 'normal';
