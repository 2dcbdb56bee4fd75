-- The ledger of kafka_assets in PostgreSQL, as of revision 0004.
-- Rendered from kafka_assets/ledger by `kafka-assets db sql`; a change is made there.

CREATE TABLE kafka_ledger_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT kafka_ledger_version_pkc PRIMARY KEY (version_num)
);

COMMENT ON TABLE kafka_ledger_version IS 'Which migration this ledger stands at';

COMMENT ON COLUMN kafka_ledger_version.version_num IS 'the revision; another one than the code knows is refused';

COMMENT ON CONSTRAINT kafka_ledger_version_pkc ON kafka_ledger_version IS 'no revision is applied twice';

CREATE TABLE kafka_source (
    id BIGSERIAL NOT NULL,
    stream VARCHAR(255) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    topic_id VARCHAR(64) NOT NULL,
    incarnation INTEGER NOT NULL,
    first_seen TIMESTAMP WITH TIME ZONE NOT NULL,
    retired_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT kafka_source_pk PRIMARY KEY (id),
    CONSTRAINT kafka_source_incarnation UNIQUE (stream, topic, incarnation),
    CONSTRAINT kafka_source_topic_id UNIQUE (stream, topic, topic_id),
    CONSTRAINT kafka_source_incarnation_from_1 CHECK (incarnation >= 1)
);

COMMENT ON TABLE kafka_source IS 'One incarnation of one topic, read by one stream; a topic created again (new topic id) is a new source';

COMMENT ON COLUMN kafka_source.id IS 'names this source in every other table, and kafka_source in every row that lands';

COMMENT ON COLUMN kafka_source.stream IS 'the stream whose declaration reads the topic';

COMMENT ON COLUMN kafka_source.topic IS 'the name of the topic';

COMMENT ON COLUMN kafka_source.topic_id IS 'the id that Kafka gave the topic when it was created; empty before Kafka 2.8';

COMMENT ON COLUMN kafka_source.incarnation IS '1 for the first topic of this name, 2 after it was created again';

COMMENT ON COLUMN kafka_source.first_seen IS 'when planning first met this topic id';

COMMENT ON COLUMN kafka_source.retired_at IS 'when the topic was seen to be gone or created again; NULL while it is read';

COMMENT ON CONSTRAINT kafka_source_pk ON kafka_source IS 'one source per id';

COMMENT ON CONSTRAINT kafka_source_incarnation ON kafka_source IS 'no two topics share Dagster keys';

COMMENT ON CONSTRAINT kafka_source_topic_id ON kafka_source IS 'no topic is read twice by a stream';

COMMENT ON CONSTRAINT kafka_source_incarnation_from_1 ON kafka_source IS 'no incarnation that a key cannot name';

CREATE TABLE kafka_progress (
    source_id BIGINT NOT NULL,
    partition INTEGER NOT NULL,
    origin BIGINT NOT NULL,
    planned_through BIGINT NOT NULL,
    log_start BIGINT NOT NULL,
    last_stable BIGINT NOT NULL,
    high_watermark BIGINT NOT NULL,
    observed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    pending_since BIGINT,
    owner VARCHAR(255),
    owner_lease_until BIGINT,
    owner_backend TEXT,
    CONSTRAINT kafka_progress_pk PRIMARY KEY (source_id, partition),
    CONSTRAINT kafka_progress_origin UNIQUE (source_id, partition, origin),
    CONSTRAINT kafka_progress_source FOREIGN KEY(source_id) REFERENCES kafka_source (id),
    CONSTRAINT kafka_progress_offsets CHECK (log_start >= 0 AND last_stable >= 0 AND high_watermark >= 0),
    CONSTRAINT kafka_progress_order CHECK (origin >= 0 AND planned_through >= origin),
    CONSTRAINT kafka_progress_owner CHECK ((owner IS NULL AND owner_lease_until IS NULL AND owner_backend IS NULL) OR (owner IS NOT NULL AND owner_lease_until IS NOT NULL)),
    CONSTRAINT kafka_progress_partition_known CHECK (partition >= 0)
);

COMMENT ON TABLE kafka_progress IS 'How far each partition of a source is planned, what the broker last said, and which live consumer owns it';

COMMENT ON COLUMN kafka_progress.source_id IS 'the source';

COMMENT ON COLUMN kafka_progress.partition IS 'the Kafka partition';

COMMENT ON COLUMN kafka_progress.origin IS 'the offset that the first slice starts at; never changes once a slice exists';

COMMENT ON COLUMN kafka_progress.planned_through IS 'slices exist for all of [origin, planned_through); moved by compare-and-set only';

COMMENT ON COLUMN kafka_progress.log_start IS 'the lowest offset that the broker still had when it was last asked';

COMMENT ON COLUMN kafka_progress.last_stable IS 'the end that read_committed saw then: the lowest offset of an open transaction';

COMMENT ON COLUMN kafka_progress.high_watermark IS 'the end of the replicated log then; far above last_stable, a producer hangs';

COMMENT ON COLUMN kafka_progress.observed_at IS 'when the broker was last asked';

COMMENT ON COLUMN kafka_progress.pending_since IS 'ms, database clock: since when records wait to be planned; NULL when none do';

COMMENT ON COLUMN kafka_progress.owner IS 'the live consumer that plans this partition itself; NULL when the sensor does';

COMMENT ON COLUMN kafka_progress.owner_lease_until IS 'ms, database clock: until when the owner may';

COMMENT ON COLUMN kafka_progress.owner_backend IS 'the owner''s database connection, ended before anybody plans in its place';

COMMENT ON CONSTRAINT kafka_progress_pk ON kafka_progress IS 'one plan per partition';

COMMENT ON CONSTRAINT kafka_progress_origin ON kafka_progress IS 'lets the first slice refer to it';

COMMENT ON CONSTRAINT kafka_progress_source ON kafka_progress IS 'no progress without its source';

COMMENT ON CONSTRAINT kafka_progress_offsets ON kafka_progress IS 'an error code of the broker is never taken for an offset';

COMMENT ON CONSTRAINT kafka_progress_order ON kafka_progress IS 'planning never ends before its start';

COMMENT ON CONSTRAINT kafka_progress_owner ON kafka_progress IS 'nobody owns a partition for ever, and nobody''s lease stays behind';

COMMENT ON CONSTRAINT kafka_progress_partition_known ON kafka_progress IS 'no partition that Kafka cannot have';

CREATE TABLE kafka_slice (
    id BIGSERIAL NOT NULL,
    source_id BIGINT NOT NULL,
    partition INTEGER NOT NULL,
    start_offset BIGINT NOT NULL,
    end_offset BIGINT NOT NULL,
    prior_end BIGINT,
    is_first SMALLINT,
    first_start BIGINT GENERATED ALWAYS AS (CASE WHEN is_first = 1 THEN start_offset END) STORED,
    is_open BOOLEAN DEFAULT false NOT NULL,
    kind VARCHAR(16) DEFAULT 'normal' NOT NULL,
    reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT kafka_slice_pk PRIMARY KEY (id),
    CONSTRAINT kafka_slice_end UNIQUE (end_offset, source_id, partition),
    CONSTRAINT kafka_slice_range UNIQUE (id, start_offset, end_offset),
    CONSTRAINT kafka_slice_start UNIQUE (source_id, partition, start_offset),
    CONSTRAINT kafka_slice_first FOREIGN KEY(source_id, partition, first_start) REFERENCES kafka_progress (source_id, partition, origin),
    CONSTRAINT kafka_slice_prior FOREIGN KEY(prior_end, source_id, partition) REFERENCES kafka_slice (end_offset, source_id, partition),
    CONSTRAINT kafka_slice_chain CHECK ((prior_end IS NOT NULL AND prior_end = start_offset AND is_first IS NULL) OR (prior_end IS NULL AND is_first IS NOT NULL AND is_first = 1)),
    CONSTRAINT kafka_slice_kind CHECK (kind IN ('normal', 'lost', 'skipped')),
    CONSTRAINT kafka_slice_not_empty CHECK (start_offset >= 0 AND end_offset > start_offset),
    CONSTRAINT kafka_slice_open CHECK (kind = 'normal' OR NOT is_open),
    CONSTRAINT kafka_slice_reason CHECK (kind = 'normal' OR reason IS NOT NULL)
);

CREATE INDEX kafka_slice_prior_end ON kafka_slice (prior_end, source_id, partition);

CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, partition, kind, start_offset) WHERE kind <> 'normal';

COMMENT ON TABLE kafka_slice IS 'Offsets [start, end) of one partition, in a chain: each but the first starts where another one ends';

COMMENT ON COLUMN kafka_slice.id IS 'names the slice';

COMMENT ON COLUMN kafka_slice.source_id IS 'the source';

COMMENT ON COLUMN kafka_slice.partition IS 'the Kafka partition';

COMMENT ON COLUMN kafka_slice.start_offset IS 'the first offset in it';

COMMENT ON COLUMN kafka_slice.end_offset IS 'the first offset after it';

COMMENT ON COLUMN kafka_slice.prior_end IS 'the end of the slice before it, equal to start_offset; NULL in the first';

COMMENT ON COLUMN kafka_slice.is_first IS '1 in the first slice of a partition, else NULL';

COMMENT ON COLUMN kafka_slice.first_start IS 'start_offset in the first slice, else NULL: computed, for the reference to origin';

COMMENT ON COLUMN kafka_slice.is_open IS 'a live window that still grows: no Dagster key, no replay';

COMMENT ON COLUMN kafka_slice.kind IS 'normal, lost (retention took it, or deletion) or skipped';

COMMENT ON COLUMN kafka_slice.reason IS 'why it is lost or skipped';

COMMENT ON COLUMN kafka_slice.created_at IS 'when it was planned';

COMMENT ON CONSTRAINT kafka_slice_pk ON kafka_slice IS 'one slice per id';

COMMENT ON CONSTRAINT kafka_slice_end ON kafka_slice IS 'two slices never end together';

COMMENT ON CONSTRAINT kafka_slice_range ON kafka_slice IS 'lets a publication carry the range';

COMMENT ON CONSTRAINT kafka_slice_start ON kafka_slice IS 'two slices never start together';

COMMENT ON CONSTRAINT kafka_slice_first ON kafka_slice IS 'the first slice starts at the origin of a planned partition; with kafka_slice_start, there is but one';

COMMENT ON CONSTRAINT kafka_slice_prior ON kafka_slice IS 'no gap: a slice starts where another one ends; and a window that one follows cannot grow into it';

COMMENT ON CONSTRAINT kafka_slice_chain ON kafka_slice IS 'no slice stands outside the chain';

COMMENT ON CONSTRAINT kafka_slice_kind ON kafka_slice IS 'no unknown kind';

COMMENT ON CONSTRAINT kafka_slice_not_empty ON kafka_slice IS 'no empty slice';

COMMENT ON CONSTRAINT kafka_slice_open ON kafka_slice IS 'what is lost or skipped does not grow';

COMMENT ON CONSTRAINT kafka_slice_reason ON kafka_slice IS 'nothing is lost in silence';

COMMENT ON INDEX kafka_slice_prior_end IS 'growing a live window looks for slices that follow it: without this, through all of them';

COMMENT ON INDEX kafka_slice_unread IS 'finds what was lost or skipped without reading all that was not';

CREATE TABLE kafka_publication (
    id BIGSERIAL NOT NULL,
    slice_id BIGINT NOT NULL,
    start_offset BIGINT NOT NULL,
    end_offset BIGINT,
    asset VARCHAR(255) NOT NULL,
    state VARCHAR(16) DEFAULT 'planned' NOT NULL,
    committed_attempt INTEGER,
    run_id VARCHAR(255),
    code_version VARCHAR(255),
    committed_at TIMESTAMP WITH TIME ZONE,
    records_read BIGINT DEFAULT 0 NOT NULL,
    landed BIGINT DEFAULT 0 NOT NULL,
    superseded BIGINT DEFAULT 0 NOT NULL,
    filtered BIGINT DEFAULT 0 NOT NULL,
    quarantined BIGINT DEFAULT 0 NOT NULL,
    tombstoned BIGINT DEFAULT 0 NOT NULL,
    holes BIGINT DEFAULT 0 NOT NULL,
    expired BIGINT DEFAULT 0 NOT NULL,
    expired_start BIGINT,
    expired_end BIGINT,
    rows_written BIGINT DEFAULT 0 NOT NULL,
    bytes_read BIGINT DEFAULT 0 NOT NULL,
    first_timestamp BIGINT,
    last_timestamp BIGINT,
    duration_ms BIGINT,
    fingerprint VARCHAR(255),
    CONSTRAINT kafka_publication_pk PRIMARY KEY (id),
    CONSTRAINT kafka_publication_slice UNIQUE (slice_id, asset),
    CONSTRAINT kafka_publication_of FOREIGN KEY(slice_id) REFERENCES kafka_slice (id),
    CONSTRAINT kafka_publication_range FOREIGN KEY(slice_id, start_offset, end_offset) REFERENCES kafka_slice (id, start_offset, end_offset),
    CONSTRAINT kafka_publication_commit CHECK ((state = 'committed' AND committed_attempt IS NOT NULL AND committed_at IS NOT NULL) OR (state <> 'committed' AND committed_attempt IS NULL AND committed_at IS NULL)),
    CONSTRAINT kafka_publication_counts CHECK (records_read >= 0 AND landed >= 0 AND superseded >= 0 AND filtered >= 0 AND quarantined >= 0 AND tombstoned >= 0 AND holes >= 0 AND expired >= 0 AND rows_written >= 0 AND bytes_read >= 0),
    CONSTRAINT kafka_publication_end CHECK (state = 'planned' OR end_offset IS NOT NULL),
    CONSTRAINT kafka_publication_expired CHECK ((expired = 0 AND expired_start IS NULL AND expired_end IS NULL) OR (expired > 0 AND expired_start IS NOT NULL AND expired_end IS NOT NULL AND end_offset IS NOT NULL AND expired = expired_end - expired_start AND expired_start >= start_offset AND expired_end <= end_offset)),
    CONSTRAINT kafka_publication_offsets CHECK (state <> 'committed' OR (end_offset IS NOT NULL AND end_offset - start_offset = records_read + holes + expired)),
    CONSTRAINT kafka_publication_records CHECK (records_read = landed + superseded + filtered + quarantined + tombstoned),
    CONSTRAINT kafka_publication_state CHECK (state IN ('planned', 'committed', 'failed'))
);

CREATE INDEX kafka_publication_uncommitted ON kafka_publication (state, asset, slice_id) WHERE state <> 'committed';

COMMENT ON TABLE kafka_publication IS 'One asset''s result for one slice; its counts commit together with its rows';

COMMENT ON COLUMN kafka_publication.id IS 'names the publication';

COMMENT ON COLUMN kafka_publication.slice_id IS 'the slice';

COMMENT ON COLUMN kafka_publication.start_offset IS 'the slice''s start, held equal by kafka_publication_range';

COMMENT ON COLUMN kafka_publication.end_offset IS 'the slice''s end, likewise; NULL only inside a transaction that grows a live window';

COMMENT ON COLUMN kafka_publication.asset IS 'the asset, as a/b/c';

COMMENT ON COLUMN kafka_publication.state IS 'planned, committed, or failed (given up until somebody acts)';

COMMENT ON COLUMN kafka_publication.committed_attempt IS 'the attempt whose rows these are';

COMMENT ON COLUMN kafka_publication.run_id IS 'the Dagster run that committed them';

COMMENT ON COLUMN kafka_publication.code_version IS 'the code that made them';

COMMENT ON COLUMN kafka_publication.committed_at IS 'when they were committed';

COMMENT ON COLUMN kafka_publication.records_read IS 'records that Kafka delivered';

COMMENT ON COLUMN kafka_publication.landed IS 'of those: records that became rows';

COMMENT ON COLUMN kafka_publication.superseded IS 'of those: records that a later version of their key replaced (upsert)';

COMMENT ON COLUMN kafka_publication.filtered IS 'of those: records that the transform left out';

COMMENT ON COLUMN kafka_publication.quarantined IS 'of those: records that could not become rows';

COMMENT ON COLUMN kafka_publication.tombstoned IS 'of those: records that deleted their key (upsert)';

COMMENT ON COLUMN kafka_publication.holes IS 'offsets that Kafka did not deliver: control records, aborted, compacted';

COMMENT ON COLUMN kafka_publication.expired IS 'offsets that retention took before they were read';

COMMENT ON COLUMN kafka_publication.expired_start IS 'the first of the expired offsets';

COMMENT ON COLUMN kafka_publication.expired_end IS 'the first offset after them';

COMMENT ON COLUMN kafka_publication.rows_written IS 'rows in the target; apart from the records, since a transform may make more or fewer';

COMMENT ON COLUMN kafka_publication.bytes_read IS 'bytes of keys and values that were read';

COMMENT ON COLUMN kafka_publication.first_timestamp IS 'ms, Kafka''s clock: the lowest record timestamp';

COMMENT ON COLUMN kafka_publication.last_timestamp IS 'ms, Kafka''s clock: the highest record timestamp';

COMMENT ON COLUMN kafka_publication.duration_ms IS 'how long the publishing took';

COMMENT ON COLUMN kafka_publication.fingerprint IS 'a digest of what was read, to compare a replay with';

COMMENT ON CONSTRAINT kafka_publication_pk ON kafka_publication IS 'one publication per id';

COMMENT ON CONSTRAINT kafka_publication_slice ON kafka_publication IS 'an asset publishes a slice once, not twice';

COMMENT ON CONSTRAINT kafka_publication_of ON kafka_publication IS 'no result without its slice';

COMMENT ON CONSTRAINT kafka_publication_range ON kafka_publication IS 'the counts are checked against the slice''s own range, and no other';

COMMENT ON CONSTRAINT kafka_publication_commit ON kafka_publication IS 'committed means that an attempt did it, and nothing else claims to';

COMMENT ON CONSTRAINT kafka_publication_counts ON kafka_publication IS 'no negative count hides another one';

COMMENT ON CONSTRAINT kafka_publication_end ON kafka_publication IS 'no result without an end';

COMMENT ON CONSTRAINT kafka_publication_expired ON kafka_publication IS 'what expired is named, and lies in the slice';

COMMENT ON CONSTRAINT kafka_publication_offsets ON kafka_publication IS 'no offset of a committed slice is unaccounted for';

COMMENT ON CONSTRAINT kafka_publication_records ON kafka_publication IS 'no record that was read is unaccounted for';

COMMENT ON CONSTRAINT kafka_publication_state ON kafka_publication IS 'no unknown state';

COMMENT ON INDEX kafka_publication_uncommitted IS 'finds what is not committed without reading the history that is';

CREATE TABLE kafka_claim (
    publication_id BIGINT NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    run_id VARCHAR(255),
    lease_until BIGINT,
    backend TEXT,
    request_token VARCHAR(255),
    requests INTEGER DEFAULT 0 NOT NULL,
    not_before BIGINT,
    failures_alone INTEGER DEFAULT 0 NOT NULL,
    failure TEXT,
    CONSTRAINT kafka_claim_pk PRIMARY KEY (publication_id),
    CONSTRAINT kafka_claim_of FOREIGN KEY(publication_id) REFERENCES kafka_publication (id),
    CONSTRAINT kafka_claim_counts CHECK (attempt >= 0 AND requests >= 0 AND failures_alone >= 0)
);

CREATE INDEX kafka_claim_leased ON kafka_claim (lease_until) WHERE lease_until IS NOT NULL;

COMMENT ON TABLE kafka_claim IS 'Who works on a publication; apart from it, so that a claim or a failed replay never touches a result';

COMMENT ON COLUMN kafka_claim.publication_id IS 'the publication';

COMMENT ON COLUMN kafka_claim.attempt IS 'raised by each claim; a publisher commits only while it is still its own';

COMMENT ON COLUMN kafka_claim.run_id IS 'the run that claimed last';

COMMENT ON COLUMN kafka_claim.lease_until IS 'ms, database clock: until when nobody claims without force; NULL when given back';

COMMENT ON COLUMN kafka_claim.backend IS 'the claimer''s database connection, ended by whoever claims next';

COMMENT ON COLUMN kafka_claim.request_token IS 'the token of the run that the sensor asked for; a run without it is a person''s';

COMMENT ON COLUMN kafka_claim.requests IS 'how often the sensor asked for a run';

COMMENT ON COLUMN kafka_claim.not_before IS 'ms, database clock: the sensor asks again no sooner';

COMMENT ON COLUMN kafka_claim.failures_alone IS 'failures of this slice in a run of its own: only these lead to giving up';

COMMENT ON COLUMN kafka_claim.failure IS 'why the last attempt failed';

COMMENT ON CONSTRAINT kafka_claim_pk ON kafka_claim IS 'one claim per publication: two holders meet here';

COMMENT ON CONSTRAINT kafka_claim_of ON kafka_claim IS 'no claim on nothing';

COMMENT ON CONSTRAINT kafka_claim_counts ON kafka_claim IS 'an attempt''s number never runs out of order';

COMMENT ON INDEX kafka_claim_leased IS 'finds leases that ended without reading the claims of history';

CREATE TABLE kafka_committed (
    asset VARCHAR(255) NOT NULL,
    source_id BIGINT NOT NULL,
    partition INTEGER NOT NULL,
    committed_through BIGINT NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT kafka_committed_pk PRIMARY KEY (asset, source_id, partition),
    CONSTRAINT kafka_committed_partition FOREIGN KEY(source_id, partition) REFERENCES kafka_progress (source_id, partition),
    CONSTRAINT kafka_committed_not_negative CHECK (committed_through >= 0)
);

COMMENT ON TABLE kafka_committed IS 'Per asset and partition the offset below which everything is committed, lost or skipped';

COMMENT ON COLUMN kafka_committed.asset IS 'the asset';

COMMENT ON COLUMN kafka_committed.source_id IS 'the source';

COMMENT ON COLUMN kafka_committed.partition IS 'the Kafka partition';

COMMENT ON COLUMN kafka_committed.committed_through IS 'the lowest start of a slice that is not committed, else planned_through';

COMMENT ON COLUMN kafka_committed.updated_at IS 'when it was last set';

COMMENT ON CONSTRAINT kafka_committed_pk ON kafka_committed IS 'one answer to: up to where';

COMMENT ON CONSTRAINT kafka_committed_partition ON kafka_committed IS 'no answer about a partition that is not planned';

COMMENT ON CONSTRAINT kafka_committed_not_negative ON kafka_committed IS 'no offset that Kafka cannot have';

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

CREATE TABLE kafka_target (
    table_name VARCHAR(255) NOT NULL,
    asset VARCHAR(255) NOT NULL,
    mode VARCHAR(16) NOT NULL,
    key_columns TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT kafka_target_pk PRIMARY KEY (table_name),
    CONSTRAINT kafka_target_asset UNIQUE (asset),
    CONSTRAINT kafka_target_key CHECK (mode = 'append' OR key_columns IS NOT NULL),
    CONSTRAINT kafka_target_mode CHECK (mode IN ('append', 'upsert'))
);

COMMENT ON TABLE kafka_target IS 'Which asset owns which table, and how it lands there';

COMMENT ON COLUMN kafka_target.table_name IS 'the table';

COMMENT ON COLUMN kafka_target.asset IS 'the one asset that writes it';

COMMENT ON COLUMN kafka_target.mode IS 'append or upsert';

COMMENT ON COLUMN kafka_target.key_columns IS 'upsert: the key''s columns, as a JSON list';

COMMENT ON COLUMN kafka_target.created_at IS 'when the asset took it';

COMMENT ON CONSTRAINT kafka_target_pk ON kafka_target IS 'no two assets replace each other''s rows';

COMMENT ON CONSTRAINT kafka_target_asset ON kafka_target IS 'a row''s lineage leads to one table';

COMMENT ON CONSTRAINT kafka_target_key ON kafka_target IS 'no upsert without its key';

COMMENT ON CONSTRAINT kafka_target_mode ON kafka_target IS 'no unknown mode';

CREATE TABLE kafka_quarantine (
    asset VARCHAR(255) NOT NULL,
    kafka_source BIGINT NOT NULL,
    kafka_partition INTEGER NOT NULL,
    kafka_offset BIGINT NOT NULL,
    slice_id BIGINT NOT NULL,
    reason TEXT NOT NULL,
    key BYTEA,
    value BYTEA,
    headers TEXT,
    kafka_timestamp BIGINT,
    quarantined_at TIMESTAMP WITH TIME ZONE NOT NULL,
    code VARCHAR(16),
    field VARCHAR(255),
    key_bytes BIGINT,
    value_bytes BIGINT,
    CONSTRAINT kafka_quarantine_pk PRIMARY KEY (asset, kafka_source, kafka_partition, kafka_offset),
    CONSTRAINT kafka_quarantine_slice FOREIGN KEY(slice_id) REFERENCES kafka_slice (id),
    CONSTRAINT kafka_quarantine_place CHECK (kafka_partition >= 0 AND kafka_offset >= 0)
);

CREATE INDEX kafka_quarantine_by_slice ON kafka_quarantine (slice_id);

COMMENT ON TABLE kafka_quarantine IS 'Records that could not become rows, with their bytes; committed with their slice';

COMMENT ON COLUMN kafka_quarantine.asset IS 'the asset whose table they did not reach';

COMMENT ON COLUMN kafka_quarantine.kafka_source IS 'the source';

COMMENT ON COLUMN kafka_quarantine.kafka_partition IS 'the Kafka partition';

COMMENT ON COLUMN kafka_quarantine.kafka_offset IS 'the offset';

COMMENT ON COLUMN kafka_quarantine.slice_id IS 'the slice; its replay quarantines anew';

COMMENT ON COLUMN kafka_quarantine.reason IS 'why the record could not become a row';

COMMENT ON COLUMN kafka_quarantine.key IS 'the record''s key, as Kafka delivered it';

COMMENT ON COLUMN kafka_quarantine.value IS 'the record''s value, as Kafka delivered it';

COMMENT ON COLUMN kafka_quarantine.headers IS 'its headers, as a JSON list';

COMMENT ON COLUMN kafka_quarantine.kafka_timestamp IS 'ms, Kafka''s clock: the record''s timestamp';

COMMENT ON COLUMN kafka_quarantine.quarantined_at IS 'when it was put here';

COMMENT ON COLUMN kafka_quarantine.code IS 'the kind of reason: few, where the reasons in words quote each record';

COMMENT ON COLUMN kafka_quarantine.field IS 'the declared field that the reason is about, where it is one';

COMMENT ON COLUMN kafka_quarantine.key_bytes IS 'how long the key is in Kafka; of a long one only the beginning is kept here';

COMMENT ON COLUMN kafka_quarantine.value_bytes IS 'how long the value is in Kafka; of a long one only the beginning is kept here';

COMMENT ON CONSTRAINT kafka_quarantine_pk ON kafka_quarantine IS 'no record is quarantined twice';

COMMENT ON CONSTRAINT kafka_quarantine_slice ON kafka_quarantine IS 'no bad record without its slice';

COMMENT ON CONSTRAINT kafka_quarantine_place ON kafka_quarantine IS 'no place that Kafka cannot have';

COMMENT ON INDEX kafka_quarantine_by_slice IS 'a replay clears its slice without reading all the others';

CREATE TABLE kafka_tombstone (
    asset VARCHAR(255) NOT NULL,
    key_digest CHAR(64) NOT NULL,
    key_text TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    order_value BIGINT,
    kafka_partition INTEGER NOT NULL,
    kafka_offset BIGINT NOT NULL,
    slice_id BIGINT NOT NULL,
    CONSTRAINT kafka_tombstone_pk PRIMARY KEY (asset, key_digest),
    CONSTRAINT kafka_tombstone_version CHECK (incarnation >= 1 AND kafka_partition >= 0 AND kafka_offset >= 0)
);

COMMENT ON TABLE kafka_tombstone IS 'Keys that were deleted in upsert tables, with the version that did it, so that no older slice brings one back';

COMMENT ON COLUMN kafka_tombstone.asset IS 'the asset';

COMMENT ON COLUMN kafka_tombstone.key_digest IS 'SHA-256 of the key, in hex: keys are longer than an index may be';

COMMENT ON COLUMN kafka_tombstone.key_text IS 'the key, to read';

COMMENT ON COLUMN kafka_tombstone.incarnation IS 'version, first: the incarnation of the topic';

COMMENT ON COLUMN kafka_tombstone.order_value IS 'version, second: what order_by names, as a number; NULL where that is the offset';

COMMENT ON COLUMN kafka_tombstone.kafka_partition IS 'version, third: the partition';

COMMENT ON COLUMN kafka_tombstone.kafka_offset IS 'version, last: the offset';

COMMENT ON COLUMN kafka_tombstone.slice_id IS 'the slice that deleted the key';

COMMENT ON CONSTRAINT kafka_tombstone_pk ON kafka_tombstone IS 'one last deletion per key';

COMMENT ON CONSTRAINT kafka_tombstone_version ON kafka_tombstone IS 'no version that Kafka cannot have';

-- The classic offset table: the next offset of each consumer group, which is the asset; retired topics left out
CREATE VIEW kafka_committed_offset AS
SELECT r.topic AS topic,
       c.asset AS consumer_group,
       c.partition AS topic_partition,
       c.committed_through AS next_offset,
       c.updated_at AS updated_at
FROM kafka_committed c
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL;

COMMENT ON VIEW kafka_committed_offset IS 'The classic offset table: the next offset of each consumer group, which is the asset; retired topics left out';

-- Offsets that wait: lag can be read and is not committed, hanging is held by a producer's open transaction
CREATE VIEW kafka_lag AS
SELECT c.asset AS asset,
       r.stream AS stream,
       r.topic AS topic,
       c.partition AS topic_partition,
       c.committed_through AS committed_through,
       p.planned_through AS planned_through,
       p.last_stable AS last_stable,
       p.high_watermark AS high_watermark,
       CASE WHEN p.last_stable > c.committed_through THEN p.last_stable - c.committed_through ELSE 0 END AS "lag",
       CASE WHEN p.high_watermark > p.last_stable THEN p.high_watermark - p.last_stable ELSE 0 END AS hanging,
       p.observed_at AS observed_at
FROM kafka_committed c
JOIN kafka_progress p ON p.source_id = c.source_id AND p.partition = c.partition
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL;

COMMENT ON VIEW kafka_lag IS 'Offsets that wait: lag can be read and is not committed, hanging is held by a producer''s open transaction';

-- Empty when all is well: offsets that no slice covers, or two do, and committed_through where it is wrong
CREATE VIEW kafka_gap AS
WITH chain AS (
    SELECT s.source_id AS source_id, s.partition AS part, s.start_offset AS start_offset, s.end_offset AS end_offset,
           LAG(s.end_offset) OVER (PARTITION BY s.source_id, s.partition ORDER BY s.start_offset) AS reached,
           p.origin AS origin
    FROM kafka_slice s
    JOIN kafka_progress p ON p.source_id = s.source_id AND p.partition = s.partition
),
plan AS (
    SELECT p.source_id AS source_id, p.partition AS part, p.origin AS origin, p.planned_through AS planned_through,
           COALESCE((SELECT MAX(s.end_offset) FROM kafka_slice s
                     WHERE s.source_id = p.source_id AND s.partition = p.partition), p.origin) AS reached
    FROM kafka_progress p
),
done AS (
    SELECT c.asset AS asset, c.source_id AS source_id, c.partition AS part, c.committed_through AS said,
           COALESCE((SELECT MIN(s.start_offset) FROM kafka_slice s
                     WHERE s.source_id = c.source_id AND s.partition = c.partition AND s.kind = 'normal'
                       AND NOT EXISTS (SELECT 1 FROM kafka_publication u
                                       WHERE u.slice_id = s.id AND u.asset = c.asset AND u.state = 'committed')),
                    p.planned_through) AS so
    FROM kafka_committed c
    JOIN kafka_progress p ON p.source_id = c.source_id AND p.partition = c.partition
),
published AS (
    SELECT DISTINCT u.asset AS asset, s.source_id AS source_id, s.partition AS part
    FROM kafka_publication u
    JOIN kafka_slice s ON s.id = u.slice_id
),
found AS (
    SELECT chain.source_id AS source_id, chain.part AS part, NULL AS asset,
           COALESCE(chain.reached, chain.origin) AS start_offset, chain.start_offset AS end_offset,
           'no slice covers these offsets' AS problem
    FROM chain WHERE chain.start_offset > COALESCE(chain.reached, chain.origin)
    UNION ALL
    SELECT chain.source_id, chain.part, NULL, chain.start_offset,
           CASE WHEN chain.end_offset < chain.reached THEN chain.end_offset ELSE chain.reached END,
           'two slices cover these offsets'
    FROM chain WHERE chain.start_offset < chain.reached
    UNION ALL
    SELECT chain.source_id, chain.part, NULL, chain.start_offset, chain.origin, 'a slice starts below the origin'
    FROM chain WHERE chain.reached IS NULL AND chain.start_offset < chain.origin
    UNION ALL
    SELECT plan.source_id, plan.part, NULL, plan.reached, plan.planned_through, 'no slice covers these offsets'
    FROM plan WHERE plan.reached < plan.planned_through
    UNION ALL
    SELECT plan.source_id, plan.part, NULL, plan.planned_through, plan.reached, 'a slice ends beyond planned_through'
    FROM plan WHERE plan.reached > plan.planned_through
    UNION ALL
    SELECT done.source_id, done.part, done.asset, done.so, done.said,
           'committed_through is beyond what is committed'
    FROM done WHERE done.said > done.so
    UNION ALL
    SELECT done.source_id, done.part, done.asset, done.said, done.so,
           'committed_through is behind what is committed'
    FROM done WHERE done.said < done.so
    UNION ALL
    SELECT plan.source_id, plan.part, published.asset, plan.origin, plan.planned_through,
           'committed_through is missing'
    FROM published
    JOIN plan ON plan.source_id = published.source_id AND plan.part = published.part
    WHERE NOT EXISTS (SELECT 1 FROM kafka_committed c
                      WHERE c.asset = published.asset AND c.source_id = published.source_id
                        AND c.partition = published.part)
)
SELECT r.stream AS stream, r.topic AS topic, r.incarnation AS incarnation, r.id AS kafka_source,
       found.part AS kafka_partition, found.asset AS asset, found.start_offset AS start_offset,
       found.end_offset AS end_offset, found.problem AS problem
FROM found
JOIN kafka_source r ON r.id = found.source_id;

COMMENT ON VIEW kafka_gap IS 'Empty when all is well: offsets that no slice covers, or two do, and committed_through where it is wrong';

-- From a row to its slice, run and code: joined by kafka_source, kafka_partition, kafka_offset in [start, end)
CREATE VIEW kafka_lineage AS
SELECT u.asset AS asset,
       t.table_name AS table_name,
       r.stream AS stream,
       r.topic AS topic,
       r.incarnation AS incarnation,
       s.source_id AS kafka_source,
       s.partition AS kafka_partition,
       s.start_offset AS start_offset,
       s.end_offset AS end_offset,
       s.id AS slice_id,
       s.kind AS kind,
       u.state AS state,
       u.committed_attempt AS attempt,
       u.run_id AS run_id,
       u.code_version AS code_version,
       u.committed_at AS committed_at
FROM kafka_slice s
JOIN kafka_source r ON r.id = s.source_id
LEFT JOIN kafka_publication u ON u.slice_id = s.id
LEFT JOIN kafka_target t ON t.asset = u.asset;

COMMENT ON VIEW kafka_lineage IS 'From a row to its slice, run and code: joined by kafka_source, kafka_partition, kafka_offset in [start, end)';

INSERT INTO kafka_ledger_version (version_num) VALUES ('0004');
