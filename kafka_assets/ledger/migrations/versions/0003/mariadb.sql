-- Revision 0003: frozen, never changed again.

ALTER TABLE kafka_quarantine
    ADD COLUMN code VARCHAR(16) COMMENT 'the kind of reason: few, where the reasons in words quote each record',
    ADD COLUMN field VARCHAR(255) COMMENT 'the declared field that the reason is about, where it is one',
    ADD COLUMN key_bytes BIGINT COMMENT 'how long the key is in Kafka; of a long one only the beginning is kept here',
    ADD COLUMN value_bytes BIGINT COMMENT 'how long the value is in Kafka; of a long one only the beginning is kept here';
