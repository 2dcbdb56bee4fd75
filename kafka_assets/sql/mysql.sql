-- The ledger of kafka_assets in MySQL, as of revision 0004.
-- Rendered from kafka_assets/ledger by `kafka-assets db sql`; a change is made there.

-- Which migration this ledger stands at
CREATE TABLE kafka_ledger_version (
    version_num VARCHAR(32) NOT NULL COMMENT 'the revision; another one than the code knows is refused',
    -- no revision is applied twice
    CONSTRAINT kafka_ledger_version_pkc PRIMARY KEY (version_num)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Which migration this ledger stands at' COLLATE utf8mb4_bin;

-- One incarnation of one topic, read by one stream; a topic created again (new topic id) is a new source
CREATE TABLE kafka_source (
    id BIGINT NOT NULL COMMENT 'names this source in every other table, and kafka_source in every row that lands' AUTO_INCREMENT,
    stream VARCHAR(255) NOT NULL COMMENT 'the stream whose declaration reads the topic',
    topic VARCHAR(249) NOT NULL COMMENT 'the name of the topic',
    topic_id VARCHAR(64) NOT NULL COMMENT 'the id that Kafka gave the topic when it was created; empty before Kafka 2.8',
    incarnation INTEGER NOT NULL COMMENT '1 for the first topic of this name, 2 after it was created again',
    first_seen DATETIME(6) NOT NULL COMMENT 'when planning first met this topic id',
    retired_at DATETIME(6) COMMENT 'when the topic was seen to be gone or created again; NULL while it is read',
    -- one source per id
    CONSTRAINT kafka_source_pk PRIMARY KEY (id),
    -- no two topics share Dagster keys
    CONSTRAINT kafka_source_incarnation UNIQUE (stream, topic, incarnation),
    -- no topic is read twice by a stream
    CONSTRAINT kafka_source_topic_id UNIQUE (stream, topic, topic_id),
    -- no incarnation that a key cannot name
    CONSTRAINT kafka_source_incarnation_from_1 CHECK (incarnation >= 1)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One incarnation of one topic, read by one stream; a topic created again (new topic id) is a new source' COLLATE utf8mb4_bin;

-- How far each partition of a source is planned, what the broker last said, and which live consumer owns it
CREATE TABLE kafka_progress (
    source_id BIGINT NOT NULL COMMENT 'the source',
    `partition` INTEGER NOT NULL COMMENT 'the Kafka partition',
    origin BIGINT NOT NULL COMMENT 'the offset that the first slice starts at; never changes once a slice exists',
    planned_through BIGINT NOT NULL COMMENT 'slices exist for all of [origin, planned_through); moved by compare-and-set only',
    log_start BIGINT NOT NULL COMMENT 'the lowest offset that the broker still had when it was last asked',
    last_stable BIGINT NOT NULL COMMENT 'the end that read_committed saw then: the lowest offset of an open transaction',
    high_watermark BIGINT NOT NULL COMMENT 'the end of the replicated log then; far above last_stable, a producer hangs',
    observed_at DATETIME(6) NOT NULL COMMENT 'when the broker was last asked',
    pending_since BIGINT COMMENT 'ms, database clock: since when records wait to be planned; NULL when none do',
    owner VARCHAR(255) COMMENT 'the live consumer that plans this partition itself; NULL when the sensor does',
    owner_lease_until BIGINT COMMENT 'ms, database clock: until when the owner may',
    owner_backend LONGTEXT COMMENT 'the owner''s database connection, ended before anybody plans in its place',
    -- one plan per partition
    CONSTRAINT kafka_progress_pk PRIMARY KEY (source_id, `partition`),
    -- lets the first slice refer to it
    CONSTRAINT kafka_progress_origin UNIQUE (source_id, `partition`, origin),
    -- no progress without its source
    CONSTRAINT kafka_progress_source FOREIGN KEY(source_id) REFERENCES kafka_source (id),
    -- an error code of the broker is never taken for an offset
    CONSTRAINT kafka_progress_offsets CHECK (log_start >= 0 AND last_stable >= 0 AND high_watermark >= 0),
    -- planning never ends before its start
    CONSTRAINT kafka_progress_order CHECK (origin >= 0 AND planned_through >= origin),
    -- nobody owns a partition for ever, and nobody's lease stays behind
    CONSTRAINT kafka_progress_owner CHECK ((owner IS NULL AND owner_lease_until IS NULL AND owner_backend IS NULL) OR (owner IS NOT NULL AND owner_lease_until IS NOT NULL)),
    -- no partition that Kafka cannot have
    CONSTRAINT kafka_progress_partition_known CHECK (`partition` >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='How far each partition of a source is planned, what the broker last said, and which live consumer owns it' COLLATE utf8mb4_bin;

-- Offsets [start, end) of one partition, in a chain: each but the first starts where another one ends
CREATE TABLE kafka_slice (
    id BIGINT NOT NULL COMMENT 'names the slice' AUTO_INCREMENT,
    source_id BIGINT NOT NULL COMMENT 'the source',
    `partition` INTEGER NOT NULL COMMENT 'the Kafka partition',
    start_offset BIGINT NOT NULL COMMENT 'the first offset in it',
    end_offset BIGINT NOT NULL COMMENT 'the first offset after it',
    prior_end BIGINT COMMENT 'the end of the slice before it, equal to start_offset; NULL in the first',
    is_first SMALLINT COMMENT '1 in the first slice of a partition, else NULL',
    first_start BIGINT GENERATED ALWAYS AS (CASE WHEN is_first = 1 THEN start_offset END) STORED COMMENT 'start_offset in the first slice, else NULL: computed, for the reference to origin',
    is_open BOOL NOT NULL COMMENT 'a live window that still grows: no Dagster key, no replay' DEFAULT false,
    kind VARCHAR(16) NOT NULL COMMENT 'normal, lost (retention took it, or deletion) or skipped' DEFAULT 'normal',
    reason LONGTEXT COMMENT 'why it is lost or skipped',
    created_at DATETIME(6) NOT NULL COMMENT 'when it was planned',
    -- one slice per id
    CONSTRAINT kafka_slice_pk PRIMARY KEY (id),
    -- two slices never end together
    CONSTRAINT kafka_slice_end UNIQUE (end_offset, source_id, `partition`),
    -- lets a publication carry the range
    CONSTRAINT kafka_slice_range UNIQUE (id, start_offset, end_offset),
    -- two slices never start together
    CONSTRAINT kafka_slice_start UNIQUE (source_id, `partition`, start_offset),
    -- the first slice starts at the origin of a planned partition; with kafka_slice_start, there is but one
    CONSTRAINT kafka_slice_first FOREIGN KEY(source_id, `partition`, first_start) REFERENCES kafka_progress (source_id, `partition`, origin),
    -- no gap: a slice starts where another one ends; and a window that one follows cannot grow into it
    CONSTRAINT kafka_slice_prior FOREIGN KEY(prior_end, source_id, `partition`) REFERENCES kafka_slice (end_offset, source_id, `partition`),
    -- no slice stands outside the chain
    CONSTRAINT kafka_slice_chain CHECK ((prior_end IS NOT NULL AND prior_end = start_offset AND is_first IS NULL) OR (prior_end IS NULL AND is_first IS NOT NULL AND is_first = 1)),
    -- no unknown kind
    CONSTRAINT kafka_slice_kind CHECK (kind IN ('normal', 'lost', 'skipped')),
    -- no empty slice
    CONSTRAINT kafka_slice_not_empty CHECK (start_offset >= 0 AND end_offset > start_offset),
    -- what is lost or skipped does not grow
    CONSTRAINT kafka_slice_open CHECK (kind = 'normal' OR NOT is_open),
    -- nothing is lost in silence
    CONSTRAINT kafka_slice_reason CHECK (kind = 'normal' OR reason IS NOT NULL)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Offsets [start, end) of one partition, in a chain: each but the first starts where another one ends' COLLATE utf8mb4_bin;

CREATE INDEX kafka_slice_prior_end ON kafka_slice (prior_end, source_id, `partition`) COMMENT 'growing a live window looks for slices that follow it: without this, through all of them';

CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, `partition`, kind, start_offset) COMMENT 'finds what was lost or skipped without reading all that was not';

-- One asset's result for one slice; its counts commit together with its rows
CREATE TABLE kafka_publication (
    id BIGINT NOT NULL COMMENT 'names the publication' AUTO_INCREMENT,
    slice_id BIGINT NOT NULL COMMENT 'the slice',
    start_offset BIGINT NOT NULL COMMENT 'the slice''s start, held equal by kafka_publication_range',
    end_offset BIGINT COMMENT 'the slice''s end, likewise; NULL only inside a transaction that grows a live window',
    asset VARCHAR(255) NOT NULL COMMENT 'the asset, as a/b/c',
    state VARCHAR(16) NOT NULL COMMENT 'planned, committed, or failed (given up until somebody acts)' DEFAULT 'planned',
    committed_attempt INTEGER COMMENT 'the attempt whose rows these are',
    run_id VARCHAR(255) COMMENT 'the Dagster run that committed them',
    code_version VARCHAR(255) COMMENT 'the code that made them',
    committed_at DATETIME(6) COMMENT 'when they were committed',
    records_read BIGINT NOT NULL COMMENT 'records that Kafka delivered' DEFAULT 0,
    landed BIGINT NOT NULL COMMENT 'of those: records that became rows' DEFAULT 0,
    superseded BIGINT NOT NULL COMMENT 'of those: records that a later version of their key replaced (upsert)' DEFAULT 0,
    filtered BIGINT NOT NULL COMMENT 'of those: records that the transform left out' DEFAULT 0,
    quarantined BIGINT NOT NULL COMMENT 'of those: records that could not become rows' DEFAULT 0,
    tombstoned BIGINT NOT NULL COMMENT 'of those: records that deleted their key (upsert)' DEFAULT 0,
    holes BIGINT NOT NULL COMMENT 'offsets that Kafka did not deliver: control records, aborted, compacted' DEFAULT 0,
    expired BIGINT NOT NULL COMMENT 'offsets that retention took before they were read' DEFAULT 0,
    expired_start BIGINT COMMENT 'the first of the expired offsets',
    expired_end BIGINT COMMENT 'the first offset after them',
    rows_written BIGINT NOT NULL COMMENT 'rows in the target; apart from the records, since a transform may make more or fewer' DEFAULT 0,
    bytes_read BIGINT NOT NULL COMMENT 'bytes of keys and values that were read' DEFAULT 0,
    first_timestamp BIGINT COMMENT 'ms, Kafka''s clock: the lowest record timestamp',
    last_timestamp BIGINT COMMENT 'ms, Kafka''s clock: the highest record timestamp',
    duration_ms BIGINT COMMENT 'how long the publishing took',
    fingerprint VARCHAR(255) COMMENT 'a digest of what was read, to compare a replay with',
    -- one publication per id
    CONSTRAINT kafka_publication_pk PRIMARY KEY (id),
    -- an asset publishes a slice once, not twice
    CONSTRAINT kafka_publication_slice UNIQUE (slice_id, asset),
    -- no result without its slice
    CONSTRAINT kafka_publication_of FOREIGN KEY(slice_id) REFERENCES kafka_slice (id),
    -- the counts are checked against the slice's own range, and no other
    CONSTRAINT kafka_publication_range FOREIGN KEY(slice_id, start_offset, end_offset) REFERENCES kafka_slice (id, start_offset, end_offset),
    -- committed means that an attempt did it, and nothing else claims to
    CONSTRAINT kafka_publication_commit CHECK ((state = 'committed' AND committed_attempt IS NOT NULL AND committed_at IS NOT NULL) OR (state <> 'committed' AND committed_attempt IS NULL AND committed_at IS NULL)),
    -- no negative count hides another one
    CONSTRAINT kafka_publication_counts CHECK (records_read >= 0 AND landed >= 0 AND superseded >= 0 AND filtered >= 0 AND quarantined >= 0 AND tombstoned >= 0 AND holes >= 0 AND expired >= 0 AND rows_written >= 0 AND bytes_read >= 0),
    -- no result without an end
    CONSTRAINT kafka_publication_end CHECK (state = 'planned' OR end_offset IS NOT NULL),
    -- what expired is named, and lies in the slice
    CONSTRAINT kafka_publication_expired CHECK ((expired = 0 AND expired_start IS NULL AND expired_end IS NULL) OR (expired > 0 AND expired_start IS NOT NULL AND expired_end IS NOT NULL AND end_offset IS NOT NULL AND expired = expired_end - expired_start AND expired_start >= start_offset AND expired_end <= end_offset)),
    -- no offset of a committed slice is unaccounted for
    CONSTRAINT kafka_publication_offsets CHECK (state <> 'committed' OR (end_offset IS NOT NULL AND end_offset - start_offset = records_read + holes + expired)),
    -- no record that was read is unaccounted for
    CONSTRAINT kafka_publication_records CHECK (records_read = landed + superseded + filtered + quarantined + tombstoned),
    -- no unknown state
    CONSTRAINT kafka_publication_state CHECK (state IN ('planned', 'committed', 'failed'))
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One asset''s result for one slice; its counts commit together with its rows' COLLATE utf8mb4_bin;

CREATE INDEX kafka_publication_uncommitted ON kafka_publication (state, asset, slice_id) COMMENT 'finds what is not committed without reading the history that is';

-- Who works on a publication; apart from it, so that a claim or a failed replay never touches a result
CREATE TABLE kafka_claim (
    publication_id BIGINT NOT NULL COMMENT 'the publication',
    attempt INTEGER NOT NULL COMMENT 'raised by each claim; a publisher commits only while it is still its own' DEFAULT 0,
    run_id VARCHAR(255) COMMENT 'the run that claimed last',
    lease_until BIGINT COMMENT 'ms, database clock: until when nobody claims without force; NULL when given back',
    backend LONGTEXT COMMENT 'the claimer''s database connection, ended by whoever claims next',
    request_token VARCHAR(255) COMMENT 'the token of the run that the sensor asked for; a run without it is a person''s',
    requests INTEGER NOT NULL COMMENT 'how often the sensor asked for a run' DEFAULT 0,
    not_before BIGINT COMMENT 'ms, database clock: the sensor asks again no sooner',
    failures_alone INTEGER NOT NULL COMMENT 'failures of this slice in a run of its own: only these lead to giving up' DEFAULT 0,
    failure LONGTEXT COMMENT 'why the last attempt failed',
    -- one claim per publication: two holders meet here
    CONSTRAINT kafka_claim_pk PRIMARY KEY (publication_id),
    -- no claim on nothing
    CONSTRAINT kafka_claim_of FOREIGN KEY(publication_id) REFERENCES kafka_publication (id),
    -- an attempt's number never runs out of order
    CONSTRAINT kafka_claim_counts CHECK (attempt >= 0 AND requests >= 0 AND failures_alone >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Who works on a publication; apart from it, so that a claim or a failed replay never touches a result' COLLATE utf8mb4_bin;

CREATE INDEX kafka_claim_leased ON kafka_claim (lease_until) COMMENT 'finds leases that ended without reading the claims of history';

-- Per asset and partition the offset below which everything is committed, lost or skipped
CREATE TABLE kafka_committed (
    asset VARCHAR(255) NOT NULL COMMENT 'the asset',
    source_id BIGINT NOT NULL COMMENT 'the source',
    `partition` INTEGER NOT NULL COMMENT 'the Kafka partition',
    committed_through BIGINT NOT NULL COMMENT 'the lowest start of a slice that is not committed, else planned_through',
    updated_at DATETIME(6) NOT NULL COMMENT 'when it was last set',
    -- one answer to: up to where
    CONSTRAINT kafka_committed_pk PRIMARY KEY (asset, source_id, `partition`),
    -- no answer about a partition that is not planned
    CONSTRAINT kafka_committed_partition FOREIGN KEY(source_id, `partition`) REFERENCES kafka_progress (source_id, `partition`),
    -- no offset that Kafka cannot have
    CONSTRAINT kafka_committed_not_negative CHECK (committed_through >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Per asset and partition the offset below which everything is committed, lost or skipped' COLLATE utf8mb4_bin;

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

-- Which asset owns which table, and how it lands there
CREATE TABLE kafka_target (
    table_name VARCHAR(255) NOT NULL COMMENT 'the table',
    asset VARCHAR(255) NOT NULL COMMENT 'the one asset that writes it',
    mode VARCHAR(16) NOT NULL COMMENT 'append or upsert',
    key_columns LONGTEXT COMMENT 'upsert: the key''s columns, as a JSON list',
    created_at DATETIME(6) NOT NULL COMMENT 'when the asset took it',
    -- no two assets replace each other's rows
    CONSTRAINT kafka_target_pk PRIMARY KEY (table_name),
    -- a row's lineage leads to one table
    CONSTRAINT kafka_target_asset UNIQUE (asset),
    -- no upsert without its key
    CONSTRAINT kafka_target_key CHECK (mode = 'append' OR key_columns IS NOT NULL),
    -- no unknown mode
    CONSTRAINT kafka_target_mode CHECK (mode IN ('append', 'upsert'))
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Which asset owns which table, and how it lands there' COLLATE utf8mb4_bin;

-- Records that could not become rows, with their bytes; committed with their slice
CREATE TABLE kafka_quarantine (
    asset VARCHAR(255) NOT NULL COMMENT 'the asset whose table they did not reach',
    kafka_source BIGINT NOT NULL COMMENT 'the source',
    kafka_partition INTEGER NOT NULL COMMENT 'the Kafka partition',
    kafka_offset BIGINT NOT NULL COMMENT 'the offset',
    slice_id BIGINT NOT NULL COMMENT 'the slice; its replay quarantines anew',
    reason LONGTEXT NOT NULL COMMENT 'why the record could not become a row',
    `key` LONGBLOB COMMENT 'the record''s key, as Kafka delivered it',
    value LONGBLOB COMMENT 'the record''s value, as Kafka delivered it',
    headers LONGTEXT COMMENT 'its headers, as a JSON list',
    kafka_timestamp BIGINT COMMENT 'ms, Kafka''s clock: the record''s timestamp',
    quarantined_at DATETIME(6) NOT NULL COMMENT 'when it was put here',
    code VARCHAR(16) COMMENT 'the kind of reason: few, where the reasons in words quote each record',
    field VARCHAR(255) COMMENT 'the declared field that the reason is about, where it is one',
    key_bytes BIGINT COMMENT 'how long the key is in Kafka; of a long one only the beginning is kept here',
    value_bytes BIGINT COMMENT 'how long the value is in Kafka; of a long one only the beginning is kept here',
    -- no record is quarantined twice
    CONSTRAINT kafka_quarantine_pk PRIMARY KEY (asset, kafka_source, kafka_partition, kafka_offset),
    -- no bad record without its slice
    CONSTRAINT kafka_quarantine_slice FOREIGN KEY(slice_id) REFERENCES kafka_slice (id),
    -- no place that Kafka cannot have
    CONSTRAINT kafka_quarantine_place CHECK (kafka_partition >= 0 AND kafka_offset >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Records that could not become rows, with their bytes; committed with their slice' COLLATE utf8mb4_bin;

CREATE INDEX kafka_quarantine_by_slice ON kafka_quarantine (slice_id) COMMENT 'a replay clears its slice without reading all the others';

-- Keys that were deleted in upsert tables, with the version that did it, so that no older slice brings one back
CREATE TABLE kafka_tombstone (
    asset VARCHAR(255) NOT NULL COMMENT 'the asset',
    key_digest CHAR(64) NOT NULL COMMENT 'SHA-256 of the key, in hex: keys are longer than an index may be',
    key_text LONGTEXT NOT NULL COMMENT 'the key, to read',
    incarnation INTEGER NOT NULL COMMENT 'version, first: the incarnation of the topic',
    order_value BIGINT COMMENT 'version, second: what order_by names, as a number; NULL where that is the offset',
    kafka_partition INTEGER NOT NULL COMMENT 'version, third: the partition',
    kafka_offset BIGINT NOT NULL COMMENT 'version, last: the offset',
    slice_id BIGINT NOT NULL COMMENT 'the slice that deleted the key',
    -- one last deletion per key
    CONSTRAINT kafka_tombstone_pk PRIMARY KEY (asset, key_digest),
    -- no version that Kafka cannot have
    CONSTRAINT kafka_tombstone_version CHECK (incarnation >= 1 AND kafka_partition >= 0 AND kafka_offset >= 0)
) ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Keys that were deleted in upsert tables, with the version that did it, so that no older slice brings one back' COLLATE utf8mb4_bin;

-- The classic offset table: the next offset of each consumer group, which is the asset; retired topics left out
CREATE SQL SECURITY INVOKER VIEW kafka_committed_offset AS
SELECT r.topic AS topic,
       c.asset AS consumer_group,
       c.partition AS topic_partition,
       c.committed_through AS next_offset,
       c.updated_at AS updated_at
FROM kafka_committed c
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL;

-- Offsets that wait: lag can be read and is not committed, hanging is held by a producer's open transaction
CREATE SQL SECURITY INVOKER VIEW kafka_lag AS
SELECT c.asset AS asset,
       r.stream AS stream,
       r.topic AS topic,
       c.partition AS topic_partition,
       c.committed_through AS committed_through,
       p.planned_through AS planned_through,
       p.last_stable AS last_stable,
       p.high_watermark AS high_watermark,
       CASE WHEN p.last_stable > c.committed_through THEN p.last_stable - c.committed_through ELSE 0 END AS `lag`,
       CASE WHEN p.high_watermark > p.last_stable THEN p.high_watermark - p.last_stable ELSE 0 END AS hanging,
       p.observed_at AS observed_at
FROM kafka_committed c
JOIN kafka_progress p ON p.source_id = c.source_id AND p.partition = c.partition
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL;

-- Empty when all is well: offsets that no slice covers, or two do, and committed_through where it is wrong
CREATE SQL SECURITY INVOKER VIEW kafka_gap AS
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

-- From a row to its slice, run and code: joined by kafka_source, kafka_partition, kafka_offset in [start, end)
CREATE SQL SECURITY INVOKER VIEW kafka_lineage AS
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

INSERT INTO kafka_ledger_version (version_num) VALUES ('0004');
