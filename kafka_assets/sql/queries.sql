-- What an operator asks the ledger. Each statement runs as it stands in SQLite, PostgreSQL, MariaDB and MySQL;
-- 'orders' stands for a topic, an asset and its table, and the numbers for what you look for.
-- None takes a lock that anybody waits for, but read those that say so on a quiet machine when history is long.

-- What is there? One line for each topic that is read, with all of its incarnations.
SELECT r.id, r.stream, r.topic, r.incarnation, r.first_seen, r.retired_at,
       COUNT(p.source_id) AS partitions, SUM(p.planned_through - p.origin) AS offsets_planned
FROM kafka_source r
LEFT JOIN kafka_progress p ON p.source_id = r.id
GROUP BY r.id, r.stream, r.topic, r.incarnation, r.first_seen, r.retired_at
ORDER BY r.stream, r.topic, r.incarnation;

-- Which table belongs to which asset, and how does it land there?
SELECT t.table_name, t.asset, t.mode, t.key_columns, t.created_at
FROM kafka_target t
ORDER BY t.table_name;

-- Up to where? The classic offset table: everything below next_offset is committed, lost or skipped.
SELECT o.consumer_group, o.topic, o.topic_partition, o.next_offset, o.updated_at
FROM kafka_committed_offset o
ORDER BY o.consumer_group, o.topic, o.topic_partition;

-- The next offset of one partition; no row where the ledger knows nothing of it.
SELECT o.next_offset
FROM kafka_committed_offset o
WHERE o.consumer_group = 'orders' AND o.topic = 'orders' AND o.topic_partition = 3;

-- The same with a default: 0 where the ledger knows nothing of it.
SELECT COALESCE(MAX(o.next_offset), 0) AS next_offset
FROM kafka_committed_offset o
WHERE o.consumer_group = 'orders' AND o.topic = 'orders' AND o.topic_partition = 3;

-- How far behind is it? hanging > 0 that stays: a producer left its transaction open.
SELECT l.asset, l.topic, l.topic_partition, l.committed_through, l.planned_through, l.last_stable,
       l.high_watermark, l.lag, l.hanging, l.observed_at
FROM kafka_lag l
ORDER BY l.lag DESC, l.asset, l.topic, l.topic_partition;

-- Is anything wrong? No row means: every planned offset is covered once, and committed_through is right.
-- Reads all of history.
SELECT g.stream, g.topic, g.incarnation, g.kafka_partition, g.asset, g.start_offset, g.end_offset, g.problem
FROM kafka_gap g
ORDER BY g.stream, g.topic, g.incarnation, g.kafka_partition, g.start_offset;

-- Which run wrote this row, by which code?
SELECT y.run_id, y.code_version, y.committed_at, y.slice_id, y.start_offset, y.end_offset, y.attempt
FROM orders o
JOIN kafka_lineage y
  ON y.table_name = 'orders'
 AND y.kafka_source = o.kafka_source
 AND y.kafka_partition = o.kafka_partition
 AND y.start_offset = (SELECT MAX(s.start_offset) FROM kafka_slice s
                       WHERE s.source_id = o.kafka_source AND s.partition = o.kafka_partition
                         AND s.start_offset <= o.kafka_offset)
 AND y.end_offset > o.kafka_offset
WHERE o.kafka_source = 1 AND o.kafka_partition = 3 AND o.kafka_offset = 120000;

-- Where did one offset go? Its slice, also when no row came of it.
SELECT s.id, s.start_offset, s.end_offset, s.kind, s.reason, u.asset, u.state, u.run_id, u.committed_at
FROM kafka_slice s
LEFT JOIN kafka_publication u ON u.slice_id = s.id
WHERE s.source_id = 1 AND s.partition = 3
  AND s.start_offset = (SELECT MAX(b.start_offset) FROM kafka_slice b
                        WHERE b.source_id = 1 AND b.partition = 3 AND b.start_offset <= 120000)
  AND s.end_offset > 120000;

-- What did each run commit? Reads all of history.
SELECT u.run_id, u.asset, COUNT(*) AS slices, SUM(u.records_read) AS records_read, SUM(u.rows_written) AS rows_written,
       SUM(u.quarantined) AS quarantined, MIN(u.committed_at) AS first_commit, MAX(u.committed_at) AS last_commit
FROM kafka_publication u
WHERE u.state = 'committed'
GROUP BY u.run_id, u.asset
ORDER BY last_commit DESC;

-- Which partitions are landed live, by whom, and which windows are open? The lease is ms since 1970, as below.
SELECT r.stream, r.topic, r.incarnation, p.partition, p.owner, p.owner_lease_until, p.planned_through,
       s.id AS open_window, s.start_offset, s.created_at
FROM kafka_progress p
JOIN kafka_source r ON r.id = p.source_id
LEFT JOIN kafka_slice s
  ON s.source_id = p.source_id AND s.partition = p.partition AND s.end_offset = p.planned_through AND s.is_open
WHERE p.owner IS NOT NULL OR s.id IS NOT NULL
ORDER BY r.stream, r.topic, p.partition;

-- What keeps a whole asset from landing, whatever slice is tried? No row is the answer you want.
SELECT asset, failure, code_version, since, tries, not_before
FROM kafka_stall
ORDER BY since;

-- Which slices wait, and which are stuck? Tried often, or failed; the lease is ms since 1970 on the database's clock.
SELECT u.asset, r.topic, r.incarnation, s.partition, s.start_offset, s.end_offset, u.state, c.attempt, c.requests,
       c.failures_alone, c.run_id, c.lease_until, c.not_before, c.failure
FROM kafka_publication u
JOIN kafka_slice s ON s.id = u.slice_id
JOIN kafka_source r ON r.id = s.source_id
JOIN kafka_claim c ON c.publication_id = u.id
WHERE u.state <> 'committed' AND s.kind = 'normal'
ORDER BY c.failures_alone DESC, c.attempt DESC, s.id;

-- Why are records in quarantine? Reads all that are.
SELECT q.asset, q.code, q.field, COUNT(*) AS records, MIN(q.reason) AS example,
       MIN(q.quarantined_at) AS first_one, MAX(q.quarantined_at) AS last_one
FROM kafka_quarantine q
GROUP BY q.asset, q.code, q.field
ORDER BY records DESC;

-- Which offsets did nobody read? Lost and skipped slices, and what expired of slices that landed. Reads all of history.
SELECT r.topic, r.incarnation, s.partition, s.start_offset, s.end_offset, s.kind, s.reason
FROM kafka_slice s
JOIN kafka_source r ON r.id = s.source_id
WHERE s.kind <> 'normal'
UNION ALL
SELECT r.topic, r.incarnation, s.partition, u.expired_start, u.expired_end, 'expired', u.asset
FROM kafka_publication u
JOIN kafka_slice s ON s.id = u.slice_id
JOIN kafka_source r ON r.id = s.source_id
WHERE u.expired > 0
ORDER BY 1, 2, 3, 4;

-- Do the records add up? No row: the database itself refuses what would be one. Reads all of history.
SELECT u.id, u.asset, u.start_offset, u.end_offset, u.records_read, u.holes, u.expired
FROM kafka_publication u
WHERE u.state = 'committed'
  AND (u.end_offset - u.start_offset <> u.records_read + u.holes + u.expired
       OR u.records_read <> u.landed + u.superseded + u.filtered + u.quarantined + u.tombstoned);
