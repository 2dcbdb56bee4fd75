"""The ledger's tables: the only truth about progress.

Columns say what they are for; indexes and constraints say what they prevent. CHECKs are written so
that NULL never passes one by accident: a CHECK that is NULL counts as kept. What a machine compares
is milliseconds since 1970 on the database's clock; what people read is a timestamp in UTC.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Computed, Integer, SmallInteger, String, false

from kafka_assets.ledger.columns import (
    BIG,
    LONG_TEXT,
    NAME,
    PARTITION_NOT_NEGATIVE,
    TOPIC,
    WORD,
    check,
    column,
    count,
    identity,
    index,
    key,
    metadata,
    optional,
    reference,
    table,
    unique,
)
from kafka_assets.ledger.constructs import Timestamp
from kafka_assets.ledger.landing import quarantine, target, tombstone

source = table(
    "kafka_source",
    "One incarnation of one topic, read by one stream; a topic created again (new topic id) is a new source",
    identity("names this source in every other table, and kafka_source in every row that lands"),
    column("stream", NAME, "the stream whose declaration reads the topic"),
    column("topic", TOPIC, "the name of the topic"),
    column("topic_id", String(64), "the id that Kafka gave the topic when it was created; empty before Kafka 2.8"),
    column("incarnation", Integer(), "1 for the first topic of this name, 2 after it was created again"),
    column("first_seen", Timestamp(), "when planning first met this topic id"),
    optional("retired_at", Timestamp(), "when the topic was seen to be gone or created again; NULL while it is read"),
    key("kafka_source_pk", "id", comment="one source per id"),
    unique("kafka_source_topic_id", "stream", "topic", "topic_id", comment="no topic is read twice by a stream"),
    unique("kafka_source_incarnation", "stream", "topic", "incarnation", comment="no two topics share Dagster keys"),
    check("kafka_source_incarnation_from_1", "incarnation >= 1", comment="no incarnation that a key cannot name"),
)

progress = table(
    "kafka_progress",
    "How far each partition of a source is planned, what the broker last said, and which live consumer owns it",
    column("source_id", BIG, "the source"),
    column("partition", Integer(), "the Kafka partition"),
    column("origin", BIG, "the offset that the first slice starts at; never changes once a slice exists"),
    column("planned_through", BIG, "slices exist for all of [origin, planned_through); moved by compare-and-set only"),
    column("log_start", BIG, "the lowest offset that the broker still had when it was last asked"),
    column("last_stable", BIG, "the end that read_committed saw then: the lowest offset of an open transaction"),
    column("high_watermark", BIG, "the end of the replicated log then; far above last_stable, a producer hangs"),
    column("observed_at", Timestamp(), "when the broker was last asked"),
    optional("pending_since", BIG, "ms, database clock: since when records wait to be planned; NULL when none do"),
    optional("owner", NAME, "the live consumer that plans this partition itself; NULL when the sensor does"),
    optional("owner_lease_until", BIG, "ms, database clock: until when the owner may"),
    optional("owner_backend", LONG_TEXT, "the owner's database connection, ended before anybody plans in its place"),
    key("kafka_progress_pk", "source_id", "partition", comment="one plan per partition"),
    unique("kafka_progress_origin", "source_id", "partition", "origin", comment="lets the first slice refer to it"),
    reference("kafka_progress_source", "source_id", "kafka_source(id)", comment="no progress without its source"),
    check("kafka_progress_partition_known", PARTITION_NOT_NEGATIVE, comment="no partition that Kafka cannot have"),
    check(
        "kafka_progress_order", "origin >= 0 AND planned_through >= origin",
        comment="planning never ends before its start",
    ),
    check(
        "kafka_progress_offsets", "log_start >= 0 AND last_stable >= 0 AND high_watermark >= 0",
        comment="an error code of the broker is never taken for an offset",
    ),
    check(
        "kafka_progress_owner",
        "(owner IS NULL AND owner_lease_until IS NULL AND owner_backend IS NULL)"
        " OR (owner IS NOT NULL AND owner_lease_until IS NOT NULL)",
        comment="nobody owns a partition for ever, and nobody's lease stays behind",
    ),
)  # fmt: skip

slice_ = table(
    "kafka_slice",
    "Offsets [start, end) of one partition, in a chain: each but the first starts where another one ends",
    identity("names the slice"),
    column("source_id", BIG, "the source"),
    column("partition", Integer(), "the Kafka partition"),
    column("start_offset", BIG, "the first offset in it"),
    column("end_offset", BIG, "the first offset after it"),
    optional("prior_end", BIG, "the end of the slice before it, equal to start_offset; NULL in the first"),
    optional("is_first", SmallInteger(), "1 in the first slice of a partition, else NULL"),
    Column(
        "first_start", BIG, Computed("CASE WHEN is_first = 1 THEN start_offset END", persisted=True), nullable=True,
        comment="start_offset in the first slice, else NULL: computed, for the reference to origin",
    ),
    column("is_open", Boolean(), "a live window that still grows: no Dagster key, no replay", server_default=false()),
    column("kind", WORD, "normal, lost (retention took it, or deletion) or skipped", server_default="normal"),
    optional("reason", LONG_TEXT, "why it is lost or skipped"),
    column("created_at", Timestamp(), "when it was planned"),
    key("kafka_slice_pk", "id", comment="one slice per id"),
    unique("kafka_slice_start", "source_id", "partition", "start_offset", comment="two slices never start together"),
    unique("kafka_slice_end", "end_offset", "source_id", "partition", comment="two slices never end together"),
    unique("kafka_slice_range", "id", "start_offset", "end_offset", comment="lets a publication carry the range"),
    # The offset stands first: MySQL 9.7 takes a row whose first column here equals its own for its own parent,
    # and looks no further, so that with the source first it would refuse nothing.
    reference(
        "kafka_slice_prior", "prior_end, source_id, partition", "kafka_slice(end_offset, source_id, partition)",
        comment="no gap: a slice starts where another one ends; and a window that one follows cannot grow into it",
    ),
    reference(
        "kafka_slice_first", "source_id, partition, first_start", "kafka_progress(source_id, partition, origin)",
        comment="the first slice starts at the origin of a planned partition; with kafka_slice_start, there is but one",
    ),
    check("kafka_slice_not_empty", "start_offset >= 0 AND end_offset > start_offset", comment="no empty slice"),
    check(
        "kafka_slice_chain",
        "(prior_end IS NOT NULL AND prior_end = start_offset AND is_first IS NULL)"
        " OR (prior_end IS NULL AND is_first IS NOT NULL AND is_first = 1)",
        comment="no slice stands outside the chain",
    ),
    check("kafka_slice_kind", "kind IN ('normal', 'lost', 'skipped')", comment="no unknown kind"),
    check("kafka_slice_reason", "kind = 'normal' OR reason IS NOT NULL", comment="nothing is lost in silence"),
    check("kafka_slice_open", "kind = 'normal' OR NOT is_open", comment="what is lost or skipped does not grow"),
    index(
        "kafka_slice_prior_end", "prior_end", "source_id", "partition",
        comment="growing a live window looks for slices that follow it: without this, through all of them",
    ),
    index(
        "kafka_slice_unread", "source_id", "partition", "kind", "start_offset", where="kind <> 'normal'",
        comment="finds what was lost or skipped without reading all that was not",
    ),
)  # fmt: skip

publication = table(
    "kafka_publication",
    "One asset's result for one slice; its counts commit together with its rows",
    identity("names the publication"),
    column("slice_id", BIG, "the slice"),
    column("start_offset", BIG, "the slice's start, held equal by kafka_publication_range"),
    optional("end_offset", BIG, "the slice's end, likewise; NULL only inside a transaction that grows a live window"),
    column("asset", NAME, "the asset, as a/b/c"),
    column("state", WORD, "planned, committed, or failed (given up until somebody acts)", server_default="planned"),
    optional("committed_attempt", Integer(), "the attempt whose rows these are"),
    optional("run_id", NAME, "the Dagster run that committed them"),
    optional("code_version", NAME, "the code that made them"),
    optional("committed_at", Timestamp(), "when they were committed"),
    count("records_read", "records that Kafka delivered"),
    count("landed", "of those: records that became rows"),
    count("superseded", "of those: records that a later version of their key replaced (upsert)"),
    count("filtered", "of those: records that the transform left out"),
    count("quarantined", "of those: records that could not become rows"),
    count("tombstoned", "of those: records that deleted their key (upsert)"),
    count("holes", "offsets that Kafka did not deliver: control records, aborted, compacted"),
    count("expired", "offsets that retention took before they were read"),
    optional("expired_start", BIG, "the first of the expired offsets"),
    optional("expired_end", BIG, "the first offset after them"),
    count("rows_written", "rows in the target; apart from the records, since a transform may make more or fewer"),
    count("bytes_read", "bytes of keys and values that were read"),
    optional("first_timestamp", BIG, "ms, Kafka's clock: the lowest record timestamp"),
    optional("last_timestamp", BIG, "ms, Kafka's clock: the highest record timestamp"),
    optional("duration_ms", BIG, "how long the publishing took"),
    optional("fingerprint", NAME, "a digest of what was read, to compare a replay with"),
    key("kafka_publication_pk", "id", comment="one publication per id"),
    unique("kafka_publication_slice", "slice_id", "asset", comment="an asset publishes a slice once, not twice"),
    reference("kafka_publication_of", "slice_id", "kafka_slice(id)", comment="no result without its slice"),
    reference(
        "kafka_publication_range", "slice_id, start_offset, end_offset", "kafka_slice(id, start_offset, end_offset)",
        comment="the counts are checked against the slice's own range, and no other",
    ),
    check("kafka_publication_state", "state IN ('planned', 'committed', 'failed')", comment="no unknown state"),
    check("kafka_publication_end", "state = 'planned' OR end_offset IS NOT NULL", comment="no result without an end"),
    check(
        "kafka_publication_commit",
        "(state = 'committed' AND committed_attempt IS NOT NULL AND committed_at IS NOT NULL)"
        " OR (state <> 'committed' AND committed_attempt IS NULL AND committed_at IS NULL)",
        comment="committed means that an attempt did it, and nothing else claims to",
    ),
    check(
        "kafka_publication_counts",
        "records_read >= 0 AND landed >= 0 AND superseded >= 0 AND filtered >= 0 AND quarantined >= 0"
        " AND tombstoned >= 0 AND holes >= 0 AND expired >= 0 AND rows_written >= 0 AND bytes_read >= 0",
        comment="no negative count hides another one",
    ),
    check(
        "kafka_publication_records",
        "records_read = landed + superseded + filtered + quarantined + tombstoned",
        comment="no record that was read is unaccounted for",
    ),
    check(
        "kafka_publication_offsets",
        "state <> 'committed'"
        " OR (end_offset IS NOT NULL AND end_offset - start_offset = records_read + holes + expired)",
        comment="no offset of a committed slice is unaccounted for",
    ),
    check(
        "kafka_publication_expired",
        "(expired = 0 AND expired_start IS NULL AND expired_end IS NULL)"
        " OR (expired > 0 AND expired_start IS NOT NULL AND expired_end IS NOT NULL AND end_offset IS NOT NULL"
        " AND expired = expired_end - expired_start AND expired_start >= start_offset AND expired_end <= end_offset)",
        comment="what expired is named, and lies in the slice",
    ),
    index(
        "kafka_publication_uncommitted", "state", "asset", "slice_id", where="state <> 'committed'",
        comment="finds what is not committed without reading the history that is",
    ),
)  # fmt: skip

claim = table(
    "kafka_claim",
    "Who works on a publication; apart from it, so that a claim or a failed replay never touches a result",
    column("publication_id", BIG, "the publication", autoincrement=False),
    count("attempt", "raised by each claim; a publisher commits only while it is still its own", Integer()),
    optional("run_id", NAME, "the run that claimed last"),
    optional("lease_until", BIG, "ms, database clock: until when nobody claims without force; NULL when given back"),
    optional("backend", LONG_TEXT, "the claimer's database connection, ended by whoever claims next"),
    optional("request_token", NAME, "the token of the run that the sensor asked for; a run without it is a person's"),
    count("requests", "how often the sensor asked for a run", Integer()),
    optional("not_before", BIG, "ms, database clock: the sensor asks again no sooner"),
    count("failures_alone", "failures of this slice in a run of its own: only these lead to giving up", Integer()),
    optional("failure", LONG_TEXT, "why the last attempt failed"),
    key("kafka_claim_pk", "publication_id", comment="one claim per publication: two holders meet here"),
    reference("kafka_claim_of", "publication_id", "kafka_publication(id)", comment="no claim on nothing"),
    check(
        "kafka_claim_counts", "attempt >= 0 AND requests >= 0 AND failures_alone >= 0",
        comment="an attempt's number never runs out of order",
    ),
    index(
        "kafka_claim_leased", "lease_until", where="lease_until IS NOT NULL",
        comment="finds leases that ended without reading the claims of history",
    ),
)  # fmt: skip

committed = table(
    "kafka_committed",
    "Per asset and partition the offset below which everything is committed, lost or skipped",
    column("asset", NAME, "the asset"),
    column("source_id", BIG, "the source"),
    column("partition", Integer(), "the Kafka partition"),
    column("committed_through", BIG, "the lowest start of a slice that is not committed, else planned_through"),
    column("updated_at", Timestamp(), "when it was last set"),
    key("kafka_committed_pk", "asset", "source_id", "partition", comment="one answer to: up to where"),
    reference(
        "kafka_committed_partition", "source_id, partition", "kafka_progress(source_id, partition)",
        comment="no answer about a partition that is not planned",
    ),
    check("kafka_committed_not_negative", "committed_through >= 0", comment="no offset that Kafka cannot have"),
)  # fmt: skip

published = table(
    "kafka_published",
    "How far planning has seen that an asset lacks no publication; what it saw once it does not look through again",
    column("asset", NAME, "the asset"),
    column("source_id", BIG, "the source"),
    column("partition", Integer(), "the Kafka partition"),
    column("published_through", BIG, "below it each slice that is to land has a publication of the asset"),
    # No reference to kafka_committed: writing the mark would wait for whoever commits.
    key("kafka_published_pk", "asset", "source_id", "partition", comment="one mark per asset and partition"),
    check("kafka_published_not_negative", "published_through >= 0", comment="no offset that Kafka cannot have"),
)  # fmt: skip

stall = table(
    "kafka_stall",
    "What keeps all of an asset from landing, and is no slice's fault; gone with the first slice that lands",
    column("asset", NAME, "the asset"),
    column("failure", LONG_TEXT, "what happened, why, and what to do: its table, its declaration or a right"),
    optional("code_version", NAME, "the code that met it; another one is tried soon"),
    column("since", Timestamp(), "when it was met first"),
    count("tries", "how often it was tried", Integer()),
    column("tried_at", BIG, "ms, database clock: when it was tried last"),
    column("not_before", BIG, "ms, database clock: the sensor tries again no sooner, and then one run alone"),
    key("kafka_stall_pk", "asset", comment="one answer to: why does nothing land"),
    check("kafka_stall_tries", "tries >= 0", comment="a pause grows with what was tried, and never shrinks"),
)  # fmt: skip

ledger_version = table(
    "kafka_ledger_version",
    "Which migration this ledger stands at",
    column("version_num", String(32), "the revision; another one than the code knows is refused"),
    key("kafka_ledger_version_pkc", "version_num", comment="no revision is applied twice"),
)

TABLES = (source, progress, slice_, publication, claim, committed, published, stall, target, quarantine, tombstone)
"""In an order in which they can be made, and read."""

__all__ = [
    "TABLES", "claim", "committed", "ledger_version", "metadata", "progress", "publication", "published", "quarantine",
    "slice_", "source", "stall", "target", "tombstone",
]  # fmt: skip
