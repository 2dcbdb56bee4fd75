-- The ledger of kafka_assets in SQLite, as of revision 0004.
-- Rendered from kafka_assets/ledger by `kafka-assets db sql`; a change is made there.

-- Which migration this ledger stands at
CREATE TABLE kafka_ledger_version (
    -- the revision; another one than the code knows is refused
    version_num VARCHAR(32) NOT NULL,
    -- no revision is applied twice
    CONSTRAINT kafka_ledger_version_pkc PRIMARY KEY (version_num)
);

-- One incarnation of one topic, read by one stream; a topic created again (new topic id) is a new source
CREATE TABLE kafka_source (
    -- names this source in every other table, and kafka_source in every row that lands
    id INTEGER NOT NULL,
    -- the stream whose declaration reads the topic
    stream VARCHAR(255) NOT NULL,
    -- the name of the topic
    topic VARCHAR(249) NOT NULL,
    -- the id that Kafka gave the topic when it was created; empty before Kafka 2.8
    topic_id VARCHAR(64) NOT NULL,
    -- 1 for the first topic of this name, 2 after it was created again
    incarnation INTEGER NOT NULL,
    -- when planning first met this topic id
    first_seen DATETIME NOT NULL,
    -- when the topic was seen to be gone or created again; NULL while it is read
    retired_at DATETIME,
    -- one source per id
    CONSTRAINT kafka_source_pk PRIMARY KEY (id),
    -- no two topics share Dagster keys
    CONSTRAINT kafka_source_incarnation UNIQUE (stream, topic, incarnation),
    -- no topic is read twice by a stream
    CONSTRAINT kafka_source_topic_id UNIQUE (stream, topic, topic_id),
    -- no incarnation that a key cannot name
    CONSTRAINT kafka_source_incarnation_from_1 CHECK (incarnation >= 1)
);

-- How far each partition of a source is planned, what the broker last said, and which live consumer owns it
CREATE TABLE kafka_progress (
    -- the source
    source_id BIGINT NOT NULL,
    -- the Kafka partition
    partition INTEGER NOT NULL,
    -- the offset that the first slice starts at; never changes once a slice exists
    origin BIGINT NOT NULL,
    -- slices exist for all of [origin, planned_through); moved by compare-and-set only
    planned_through BIGINT NOT NULL,
    -- the lowest offset that the broker still had when it was last asked
    log_start BIGINT NOT NULL,
    -- the end that read_committed saw then: the lowest offset of an open transaction
    last_stable BIGINT NOT NULL,
    -- the end of the replicated log then; far above last_stable, a producer hangs
    high_watermark BIGINT NOT NULL,
    -- when the broker was last asked
    observed_at DATETIME NOT NULL,
    -- ms, database clock: since when records wait to be planned; NULL when none do
    pending_since BIGINT,
    -- the live consumer that plans this partition itself; NULL when the sensor does
    owner VARCHAR(255),
    -- ms, database clock: until when the owner may
    owner_lease_until BIGINT,
    -- the owner's database connection, ended before anybody plans in its place
    owner_backend TEXT,
    -- one plan per partition
    CONSTRAINT kafka_progress_pk PRIMARY KEY (source_id, partition),
    -- lets the first slice refer to it
    CONSTRAINT kafka_progress_origin UNIQUE (source_id, partition, origin),
    -- no progress without its source
    CONSTRAINT kafka_progress_source FOREIGN KEY(source_id) REFERENCES kafka_source (id),
    -- an error code of the broker is never taken for an offset
    CONSTRAINT kafka_progress_offsets CHECK (log_start >= 0 AND last_stable >= 0 AND high_watermark >= 0),
    -- planning never ends before its start
    CONSTRAINT kafka_progress_order CHECK (origin >= 0 AND planned_through >= origin),
    -- nobody owns a partition for ever, and nobody's lease stays behind
    CONSTRAINT kafka_progress_owner CHECK ((owner IS NULL AND owner_lease_until IS NULL AND owner_backend IS NULL) OR (owner IS NOT NULL AND owner_lease_until IS NOT NULL)),
    -- no partition that Kafka cannot have
    CONSTRAINT kafka_progress_partition_known CHECK (partition >= 0)
);

-- Offsets [start, end) of one partition, in a chain: each but the first starts where another one ends
CREATE TABLE kafka_slice (
    -- names the slice
    id INTEGER NOT NULL,
    -- the source
    source_id BIGINT NOT NULL,
    -- the Kafka partition
    partition INTEGER NOT NULL,
    -- the first offset in it
    start_offset BIGINT NOT NULL,
    -- the first offset after it
    end_offset BIGINT NOT NULL,
    -- the end of the slice before it, equal to start_offset; NULL in the first
    prior_end BIGINT,
    -- 1 in the first slice of a partition, else NULL
    is_first SMALLINT,
    -- start_offset in the first slice, else NULL: computed, for the reference to origin
    first_start BIGINT GENERATED ALWAYS AS (CASE WHEN is_first = 1 THEN start_offset END) STORED,
    -- a live window that still grows: no Dagster key, no replay
    is_open BOOLEAN DEFAULT 0 NOT NULL,
    -- normal, lost (retention took it, or deletion) or skipped
    kind VARCHAR(16) DEFAULT 'normal' NOT NULL,
    -- why it is lost or skipped
    reason TEXT,
    -- when it was planned
    created_at DATETIME NOT NULL,
    -- one slice per id
    CONSTRAINT kafka_slice_pk PRIMARY KEY (id),
    -- two slices never end together
    CONSTRAINT kafka_slice_end UNIQUE (end_offset, source_id, partition),
    -- lets a publication carry the range
    CONSTRAINT kafka_slice_range UNIQUE (id, start_offset, end_offset),
    -- two slices never start together
    CONSTRAINT kafka_slice_start UNIQUE (source_id, partition, start_offset),
    -- the first slice starts at the origin of a planned partition; with kafka_slice_start, there is but one
    CONSTRAINT kafka_slice_first FOREIGN KEY(source_id, partition, first_start) REFERENCES kafka_progress (source_id, partition, origin),
    -- no gap: a slice starts where another one ends; and a window that one follows cannot grow into it
    CONSTRAINT kafka_slice_prior FOREIGN KEY(prior_end, source_id, partition) REFERENCES kafka_slice (end_offset, source_id, partition),
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
);

-- growing a live window looks for slices that follow it: without this, through all of them
CREATE INDEX kafka_slice_prior_end ON kafka_slice (prior_end, source_id, partition);

-- finds what was lost or skipped without reading all that was not
CREATE INDEX kafka_slice_unread ON kafka_slice (source_id, partition, kind, start_offset) WHERE kind <> 'normal';

-- One asset's result for one slice; its counts commit together with its rows
CREATE TABLE kafka_publication (
    -- names the publication
    id INTEGER NOT NULL,
    -- the slice
    slice_id BIGINT NOT NULL,
    -- the slice's start, held equal by kafka_publication_range
    start_offset BIGINT NOT NULL,
    -- the slice's end, likewise; NULL only inside a transaction that grows a live window
    end_offset BIGINT,
    -- the asset, as a/b/c
    asset VARCHAR(255) NOT NULL,
    -- planned, committed, or failed (given up until somebody acts)
    state VARCHAR(16) DEFAULT 'planned' NOT NULL,
    -- the attempt whose rows these are
    committed_attempt INTEGER,
    -- the Dagster run that committed them
    run_id VARCHAR(255),
    -- the code that made them
    code_version VARCHAR(255),
    -- when they were committed
    committed_at DATETIME,
    -- records that Kafka delivered
    records_read BIGINT DEFAULT 0 NOT NULL,
    -- of those: records that became rows
    landed BIGINT DEFAULT 0 NOT NULL,
    -- of those: records that a later version of their key replaced (upsert)
    superseded BIGINT DEFAULT 0 NOT NULL,
    -- of those: records that the transform left out
    filtered BIGINT DEFAULT 0 NOT NULL,
    -- of those: records that could not become rows
    quarantined BIGINT DEFAULT 0 NOT NULL,
    -- of those: records that deleted their key (upsert)
    tombstoned BIGINT DEFAULT 0 NOT NULL,
    -- offsets that Kafka did not deliver: control records, aborted, compacted
    holes BIGINT DEFAULT 0 NOT NULL,
    -- offsets that retention took before they were read
    expired BIGINT DEFAULT 0 NOT NULL,
    -- the first of the expired offsets
    expired_start BIGINT,
    -- the first offset after them
    expired_end BIGINT,
    -- rows in the target; apart from the records, since a transform may make more or fewer
    rows_written BIGINT DEFAULT 0 NOT NULL,
    -- bytes of keys and values that were read
    bytes_read BIGINT DEFAULT 0 NOT NULL,
    -- ms, Kafka's clock: the lowest record timestamp
    first_timestamp BIGINT,
    -- ms, Kafka's clock: the highest record timestamp
    last_timestamp BIGINT,
    -- how long the publishing took
    duration_ms BIGINT,
    -- a digest of what was read, to compare a replay with
    fingerprint VARCHAR(255),
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
);

-- finds what is not committed without reading the history that is
CREATE INDEX kafka_publication_uncommitted ON kafka_publication (state, asset, slice_id) WHERE state <> 'committed';

-- Who works on a publication; apart from it, so that a claim or a failed replay never touches a result
CREATE TABLE kafka_claim (
    -- the publication
    publication_id BIGINT NOT NULL,
    -- raised by each claim; a publisher commits only while it is still its own
    attempt INTEGER DEFAULT 0 NOT NULL,
    -- the run that claimed last
    run_id VARCHAR(255),
    -- ms, database clock: until when nobody claims without force; NULL when given back
    lease_until BIGINT,
    -- the claimer's database connection, ended by whoever claims next
    backend TEXT,
    -- the token of the run that the sensor asked for; a run without it is a person's
    request_token VARCHAR(255),
    -- how often the sensor asked for a run
    requests INTEGER DEFAULT 0 NOT NULL,
    -- ms, database clock: the sensor asks again no sooner
    not_before BIGINT,
    -- failures of this slice in a run of its own: only these lead to giving up
    failures_alone INTEGER DEFAULT 0 NOT NULL,
    -- why the last attempt failed
    failure TEXT,
    -- one claim per publication: two holders meet here
    CONSTRAINT kafka_claim_pk PRIMARY KEY (publication_id),
    -- no claim on nothing
    CONSTRAINT kafka_claim_of FOREIGN KEY(publication_id) REFERENCES kafka_publication (id),
    -- an attempt's number never runs out of order
    CONSTRAINT kafka_claim_counts CHECK (attempt >= 0 AND requests >= 0 AND failures_alone >= 0)
);

-- finds leases that ended without reading the claims of history
CREATE INDEX kafka_claim_leased ON kafka_claim (lease_until) WHERE lease_until IS NOT NULL;

-- Per asset and partition the offset below which everything is committed, lost or skipped
CREATE TABLE kafka_committed (
    -- the asset
    asset VARCHAR(255) NOT NULL,
    -- the source
    source_id BIGINT NOT NULL,
    -- the Kafka partition
    partition INTEGER NOT NULL,
    -- the lowest start of a slice that is not committed, else planned_through
    committed_through BIGINT NOT NULL,
    -- when it was last set
    updated_at DATETIME NOT NULL,
    -- one answer to: up to where
    CONSTRAINT kafka_committed_pk PRIMARY KEY (asset, source_id, partition),
    -- no answer about a partition that is not planned
    CONSTRAINT kafka_committed_partition FOREIGN KEY(source_id, partition) REFERENCES kafka_progress (source_id, partition),
    -- no offset that Kafka cannot have
    CONSTRAINT kafka_committed_not_negative CHECK (committed_through >= 0)
);

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

-- What keeps all of an asset from landing, and is no slice's fault; gone with the first slice that lands
CREATE TABLE kafka_stall (
    -- the asset
    asset VARCHAR(255) NOT NULL,
    -- what happened, why, and what to do: its table, its declaration or a right
    failure TEXT NOT NULL,
    -- the code that met it; another one is tried soon
    code_version VARCHAR(255),
    -- when it was met first
    since DATETIME NOT NULL,
    -- how often it was tried
    tries INTEGER DEFAULT 0 NOT NULL,
    -- ms, database clock: when it was tried last
    tried_at BIGINT NOT NULL,
    -- ms, database clock: the sensor tries again no sooner, and then one run alone
    not_before BIGINT NOT NULL,
    -- one answer to: why does nothing land
    CONSTRAINT kafka_stall_pk PRIMARY KEY (asset),
    -- a pause grows with what was tried, and never shrinks
    CONSTRAINT kafka_stall_tries CHECK (tries >= 0)
);

-- Which asset owns which table, and how it lands there
CREATE TABLE kafka_target (
    -- the table
    table_name VARCHAR(255) NOT NULL,
    -- the one asset that writes it
    asset VARCHAR(255) NOT NULL,
    -- append or upsert
    mode VARCHAR(16) NOT NULL,
    -- upsert: the key's columns, as a JSON list
    key_columns TEXT,
    -- when the asset took it
    created_at DATETIME NOT NULL,
    -- no two assets replace each other's rows
    CONSTRAINT kafka_target_pk PRIMARY KEY (table_name),
    -- a row's lineage leads to one table
    CONSTRAINT kafka_target_asset UNIQUE (asset),
    -- no upsert without its key
    CONSTRAINT kafka_target_key CHECK (mode = 'append' OR key_columns IS NOT NULL),
    -- no unknown mode
    CONSTRAINT kafka_target_mode CHECK (mode IN ('append', 'upsert'))
);

-- Records that could not become rows, with their bytes; committed with their slice
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

-- a replay clears its slice without reading all the others
CREATE INDEX kafka_quarantine_by_slice ON kafka_quarantine (slice_id);

-- Keys that were deleted in upsert tables, with the version that did it, so that no older slice brings one back
CREATE TABLE kafka_tombstone (
    -- the asset
    asset VARCHAR(255) NOT NULL,
    -- SHA-256 of the key, in hex: keys are longer than an index may be
    key_digest CHAR(64) NOT NULL,
    -- the key, to read
    key_text TEXT NOT NULL,
    -- version, first: the incarnation of the topic
    incarnation INTEGER NOT NULL,
    -- version, second: what order_by names, as a number; NULL where that is the offset
    order_value BIGINT,
    -- version, third: the partition
    kafka_partition INTEGER NOT NULL,
    -- version, last: the offset
    kafka_offset BIGINT NOT NULL,
    -- the slice that deleted the key
    slice_id BIGINT NOT NULL,
    -- one last deletion per key
    CONSTRAINT kafka_tombstone_pk PRIMARY KEY (asset, key_digest),
    -- no version that Kafka cannot have
    CONSTRAINT kafka_tombstone_version CHECK (incarnation >= 1 AND kafka_partition >= 0 AND kafka_offset >= 0)
);

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

INSERT INTO kafka_ledger_version (version_num) VALUES ('0004');
