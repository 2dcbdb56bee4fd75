-- Revision 0003: frozen, never changed again.

ALTER TABLE kafka_quarantine
    ADD COLUMN code VARCHAR(16),
    ADD COLUMN field VARCHAR(255),
    ADD COLUMN key_bytes BIGINT,
    ADD COLUMN value_bytes BIGINT;

COMMENT ON COLUMN kafka_quarantine.code IS 'the kind of reason: few, where the reasons in words quote each record';

COMMENT ON COLUMN kafka_quarantine.field IS 'the declared field that the reason is about, where it is one';

COMMENT ON COLUMN kafka_quarantine.key_bytes IS 'how long the key is in Kafka; of a long one only the beginning is kept here';

COMMENT ON COLUMN kafka_quarantine.value_bytes IS 'how long the value is in Kafka; of a long one only the beginning is kept here';
