-- Revision 0003: frozen, never changed again.

DROP INDEX kafka_quarantine_by_slice;

ALTER TABLE kafka_quarantine RENAME TO kafka_quarantine_before;

CREATE TABLE kafka_quarantine (
    -- the asset whose table they did not reach
    asset VARCHAR(255) NOT NULL,
    -- the source
    kafka_source BIGINT NOT NULL,
    -- the Kafka partition
    kafka_partition INTEGER NOT NULL,
    -- the offset
    kafka_offset BIGINT NOT NULL,
    -- the slice; its replay quarantines anew
    slice_id BIGINT NOT NULL,
    -- why the record could not become a row
    reason TEXT NOT NULL,
    -- the record's key, as Kafka delivered it
    "key" BLOB,
    -- the record's value, as Kafka delivered it
    value BLOB,
    -- its headers, as a JSON list
    headers TEXT,
    -- ms, Kafka's clock: the record's timestamp
    kafka_timestamp BIGINT,
    -- when it was put here
    quarantined_at DATETIME NOT NULL,
    -- the kind of reason: few, where the reasons in words quote each record
    code VARCHAR(16),
    -- the declared field that the reason is about, where it is one
    field VARCHAR(255),
    -- how long the key is in Kafka; of a long one only the beginning is kept here
    key_bytes BIGINT,
    -- how long the value is in Kafka; of a long one only the beginning is kept here
    value_bytes BIGINT,
    -- no record is quarantined twice
    CONSTRAINT kafka_quarantine_pk PRIMARY KEY (asset, kafka_source, kafka_partition, kafka_offset),
    -- no bad record without its slice
    CONSTRAINT kafka_quarantine_slice FOREIGN KEY(slice_id) REFERENCES kafka_slice (id),
    -- no place that Kafka cannot have
    CONSTRAINT kafka_quarantine_place CHECK (kafka_partition >= 0 AND kafka_offset >= 0)
);

INSERT INTO kafka_quarantine (asset, kafka_source, kafka_partition, kafka_offset, slice_id, reason, "key", value, headers, kafka_timestamp, quarantined_at)
SELECT asset, kafka_source, kafka_partition, kafka_offset, slice_id, reason, "key", value, headers, kafka_timestamp, quarantined_at FROM kafka_quarantine_before;

DROP TABLE kafka_quarantine_before;

-- a replay clears its slice without reading all the others
CREATE INDEX kafka_quarantine_by_slice ON kafka_quarantine (slice_id);
