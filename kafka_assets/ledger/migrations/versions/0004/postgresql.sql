-- Revision 0004: frozen, never changed again.

CREATE TABLE kafka_published (
    asset VARCHAR(255) NOT NULL,
    source_id BIGINT NOT NULL,
    partition INTEGER NOT NULL,
    published_through BIGINT NOT NULL,
    CONSTRAINT kafka_published_pk PRIMARY KEY (asset, source_id, partition),
    CONSTRAINT kafka_published_not_negative CHECK (published_through >= 0)
);

COMMENT ON TABLE kafka_published IS 'How far planning has seen that an asset lacks no publication; what it saw once it does not look through again';

COMMENT ON COLUMN kafka_published.asset IS 'the asset';

COMMENT ON COLUMN kafka_published.source_id IS 'the source';

COMMENT ON COLUMN kafka_published.partition IS 'the Kafka partition';

COMMENT ON COLUMN kafka_published.published_through IS 'below it each slice that is to land has a publication of the asset';

COMMENT ON CONSTRAINT kafka_published_pk ON kafka_published IS 'one mark per asset and partition';

COMMENT ON CONSTRAINT kafka_published_not_negative ON kafka_published IS 'no offset that Kafka cannot have';

CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, partition, kind, start_offset) WHERE kind <> 'normal';

COMMENT ON INDEX kafka_slice_unread IS 'finds what was lost or skipped without reading all that was not';
