"""Mutants of what lands: results and replays, the roads into tables, and the merge of an upsert."""

from __future__ import annotations

from kafka_assets_tests.mutants.mutant import mutant

SQLITE = "unit/test_publish.py::TestPublishOnSQLite::"
LOST = "integration/test_publish_lost.py::"
LOADS = "integration/test_publish_mysql.py::test_what_load_data_leaves_out_or_changes_is_looked_for_row_by_row"
LOCKS = "integration/test_locks.py::"
MERGE = "unit/test_merge.py::TestMergeOnSQLite::"
MAILBOX = "unit/test_mailbox.py::"
READS = "integration/test_fetch.py::"
MERGES = "integration/test_merge.py::TestMergeOnServers::"

OF_RESULTS = (
    mutant(
        "no delete before replace",
        "Append.replace",
        "        delete_rows(self._connection, self._table, publication)\n",
        "        return\n",
        SQLITE + "test_a_replay_replaces_its_own_rows_and_no_others",
    ),
    mutant(
        "a replay keeps the old quarantine",
        "_transaction",
        "            delete_quarantine(connection, publication)\n",
        "            pass\n",
        SQLITE + "test_bad_records_are_quarantined_with_their_slice",
    ),
    mutant(
        "what was read ahead lands though some of it has expired",
        "Reading._taken",
        "if self._ahead is None or self._ahead[0] != read_from or self._ahead[1].has_failed:",
        "if self._ahead is None or self._ahead[1].has_failed:",
        "unit/test_reading_ahead.py::test_what_expired_since_is_read_from_where_it_still_can",
    ),
    mutant(
        "a replay that lost records is taken",
        "_refuse_shrinking",
        "and outcome.records_read < publication.records_read and not force",
        "and outcome.records_read < 0 and not force",
        SQLITE + "test_a_replay_with_fewer_records_is_refused_unless_forced",
    ),
    mutant(
        "a run of the sensor replaces what is committed",
        "_decide",
        "return not publication.stays(replaces=work.replaces, keeps=work.keeps)",
        "return True",
        SQLITE + "test_a_run_of_the_sensor_does_nothing_for_what_is_committed",
    ),
    mutant(
        "a retry replaces what it tries again has committed",
        "Publication.stays",
        " or self.run_id in keeps)",
        ")",
        "unit/test_reruns.py::test_a_result_that_is_kept_stays_and_its_neighbours_are_replaced",
    ),
    mutant(
        "who executes the sensor's run again by hand replaces nothing",
        "asked_of",
        "replaces=by_hand or not by_itself",
        "replaces=not by_itself",
        "unit/test_reruns.py::test_a_sensors_run_that_is_executed_again_by_hand_replaces",
    ),
    mutant(
        "an automation condition replays every slice",
        "asked_of",
        "TOKEN_TAG in tags or AUTOMATION_TAG in tags",
        "TOKEN_TAG in tags",
        "unit/test_reruns.py::test_what_an_automation_condition_asks_for_replaces_nothing_and_a_person_who_asks_again_does",
    ),
    mutant(
        "a topic that is gone takes the others' places",
        "_plan",
        "assets=[stream.asset for stream in streams], topics=shown(seen))",
        "assets=[stream.asset for stream in streams])",
        "unit/test_tick.py::test_a_topic_that_is_gone_takes_no_place_of_those_that_wait",
    ),
    mutant(
        "a run that Dagster never started is waited for",
        "_may_come",
        "    return patience is not None and ",
        "    return patience is None or ",
        "unit/test_tick.py::test_a_run_that_dagster_never_started_is_asked_for_again_once_its_request_has_had_its_time",
    ),
    mutant(
        "what no slice can help gives slices up",
        "_fail",
        "counts=fault is Fault.SLICE",
        "counts=fault in (Fault.SLICE, Fault.STREAM)",
        "unit/test_making.py::test_what_the_declaration_causes_before_anything_is_claimed_is_no_slices_fault[error0]",
    ),
    mutant(
        "few slices make a long queue longer",
        "request_runs",
        "if flight.queued and stalled is None and grows(batch, max_offsets=max_offsets):",
        "if not batch:",
        "unit/test_tick.py::test_few_slices_wait_for_others_while_a_run_of_the_stream_is_in_dagsters_queue",
    ),
    mutant(
        "a signal takes the pause from what has failed",
        "withdraw",
        "c.run_id.is_distinct_from(run_id) if run_id else true(),",
        "c.run_id.is_distinct_from(run_id) if False else true(),",
        "unit/test_runner.py::test_a_signal_leaves_the_pause_of_what_has_failed_in_the_same_run",
    ),
    mutant(
        "many runs try what keeps all slices from landing",
        "request_runs",
        "    free = free if stalled is None else 1\n",
        "",
        "unit/test_tick.py::test_what_keeps_all_slices_from_landing_is_tried_by_one_run_at_a_time",
    ),
    mutant(
        "what was given up of a deleted topic is so for ever",
        "given_up",
        ', p.state != "committed", s.kind == "normal")\n            .where(not_gone())\n            .group_by',
        ', p.state != "committed")\n            .where(not_gone())\n            .group_by',
        "unit/test_tick.py::test_a_given_up_slice_of_a_topic_that_was_created_again_is_nobodys_trouble",
    ),
    mutant(
        "what another asset had landed of a deleted topic waits for somebody",
        "given_up",
        "            .where(not_gone())\n            .group_by",
        "            .group_by",
        "unit/test_tick.py::test_what_another_group_has_of_a_topic_that_was_created_again_waits_for_nobody",
    ),
    mutant(
        "Kafka is not asked again",
        "publish",
        "            work.confirm({**dict.fromkeys(held, Seen()), **_seen_in(chunks())})\n",
        "            pass\n",
        SQLITE + "test_what_the_broker_says_after_the_last_record_can_still_stop_the_commit",
    ),
    mutant(
        "a claim un-commits the result",
        "_compare_and_set",
        "            if taken.rowcount != 1:\n",
        "            connection.execute(\n"
        "                update(t.publication)\n"
        "                .where(t.publication.c.id == publication.id)\n"
        "                .values(state='planned', committed_attempt=None, run_id=None, code_version=None,\n"
        "                        committed_at=None, duration_ms=None, records_read=0, landed=0, holes=0)\n"
        "            )\n"
        "            if taken.rowcount != 1:\n",
        SQLITE + "test_a_second_sensor_and_a_failure_leave_a_committed_result_alone",
    ),
    mutant(
        "a failed replay un-commits the result",
        "record_failure",
        '.where(t.publication.c.id == held.publication.id, t.publication.c.state == "planned")',
        ".where(t.publication.c.id == held.publication.id)",
        SQLITE + "test_a_failed_replay_never_touches_a_result",
    ),
    mutant(
        "an unknown outcome is taken for a rollback",
        "publishing",
        "        if not _committed(engine, this.written, backend):\n",
        "        if backend:\n",
        LOST + "test_a_connection_lost_during_commit_is_asked_about[postgresql-True]",
    ),
    mutant(
        "an unknown outcome is taken for a commit",
        "publishing",
        "        if not _committed(engine, this.written, backend):\n",
        "        if not backend:\n",
        LOST + "test_a_connection_lost_during_commit_is_asked_about[postgresql-False]",
    ),
    mutant(
        "an unknown outcome is asked for without a lock",
        "lock_rows",
        "connection.execute(row.with_for_update(nowait=nowait)).all()",
        "connection.execute(row).all()",
        LOCKS + "test_a_result_is_asked_for_under_the_lock_that_a_backend_in_its_commit_holds[postgresql]",
    ),
    mutant(
        "a busy database is not tried again",
        "publish.attempt",
        "return retried(lambda: _transaction(engine, road, rest, started=started))",
        "return _transaction(engine, road, rest, started=started)",
        LOST + "test_a_lock_that_is_not_to_be_had_is_tried_again_with_the_whole_transaction[postgresql]",
    ),
    mutant(
        "too many bad records pass",
        "_transaction",
        "                judge(key, seen[key], work.bad_policy, examples=examples.of(key))\n",
        "                pass\n",
        SQLITE + "test_too_many_bad_records_fail_the_slice_from_a_hundred_on",
    ),
)

_COUNTED = "if taken is None or tuple(map(int, taken.groups())) != (count, 0, 0, 0):"
OF_ROADS = (
    mutant(
        "a worker reads on behind the end of its range",
        "_read",
        "[message for message in good if message.offset() < end] if at > end else good",
        "good",
        READS + "test_every_range_of_a_log_with_holes_has_exactly_its_committed_records",
    ),
    mutant(
        "a worker passes over what it cannot read",
        "_records",
        "            raise NotFetched(place=place, at=at, code=error.code(), why=error.str())\n        at",
        "            continue\n        at",
        READS + "test_records_that_expire_while_a_range_is_read_are_never_jumped",
    ),
    mutant(
        "headers take no room",
        "_Task.bounded",
        "np.cumsum(_sizes(batch) + _header_sizes(batch))",
        "np.cumsum(_sizes(batch))",
        "unit/test_passes.py::test_headers_take_room_too",
    ),
    mutant(
        "a task gives what it has made to whoever listens",
        "posted",
        'if not hmac.compare_digest(line.recv(PROOF_BYTES), proof(word, name, of="mailbox")):',
        "if not line.recv(PROOF_BYTES):",
        MAILBOX + "test_whoever_takes_a_mailbox_s_name_when_it_has_gone_is_given_nothing",
    ),
    mutant(
        "what a sender gives to Spark as well keeps its room",
        "Mailbox._kept",
        "                del self._units[name]\n                return False",
        "                return True",
        MAILBOX + "test_a_sender_who_does_not_hear_that_it_was_taken_gives_it_to_spark_alone",
    ),
    mutant(
        "a record of which two rows have no key is counted twice",
        "_with_keys",
        " if place not in known}",
        "}",
        "unit/test_transformed.py::test_a_record_of_which_two_rows_have_no_key_is_bad_once",
    ),
    mutant(
        "a function's records are read by whoever asks for them",
        "held",
        "kept = records.localCheckpoint(eager=True)",
        "kept = records",
        "integration/test_functions_read_once.py::test_records_are_read_once_and_all_are_told_of[twice-of records-3]",
    ),
    mutant(
        "LOAD DATA's answer is not read",
        "MySQLRoad._load",
        _COUNTED,
        "if taken is None:",
        LOADS + "[mariadb-True-modify note varchar(3)-0]",
        LOADS + "[mariadb-True-add constraint few check (id < 2)-2]",
        LOADS + "[mysql-True-add unique (note(10))-1]",
    ),
    mutant(
        "LOAD DATA's warnings are not read",
        "MySQLRoad._load",
        _COUNTED,
        "if taken is None or int(taken[1]) != count:",
        LOADS + "[mariadb-True-modify note varchar(3)-0]",
        LOADS + "[mysql-True-modify note varchar(3)-0]",
    ),
    mutant(
        "LOAD DATA's count of records is not read",
        "MySQLRoad._load",
        _COUNTED,
        "if taken is None or tuple(map(int, taken.groups()[1:])) != (0, 0, 0):",
        "integration/test_publish_mysql.py::test_rows_that_got_lost_on_their_way_to_the_server_are_sent_again[mariadb]",
    ),
)

OF_MERGES = (
    mutant(
        "a tombstone has no say",
        "Merge.settle",
        "            self._drop_buried()\n",
        "",
        MERGE + "test_slices_in_any_order_and_any_replay_come_to_the_same_end",
    ),
    mutant(
        "a tombstone's version is not compared",
        "Merge._drop_buried",
        "                  AND ({self._stone(version)}) > ({self._list(version, MERGE)}))",
        "                  AND stone.kafka_offset >= 0)",
        MERGE + "test_slices_in_any_order_and_any_replay_come_to_the_same_end",
    ),
    mutant(
        "a tombstone's order value is lost",
        "Merge._keep_tombstones",
        'value = "NULL" if ordered is None else self._road.quoted(ordered)',
        'value = "NULL"',
        "unit/test_merge.py::test_the_order_of_a_tombstone_is_kept",
    ),
    mutant(
        "an older row wins over the table's",
        "Merge._drop_older",
        '                  AND ({self._list(version, "standing")}) > ({self._list(version, MERGE)}))',
        '                  AND ({self._list(version, "standing")}) < ({self._list(version, MERGE)}))',
        MERGE + "test_the_later_version_wins_whichever_commits_first[order1]",
    ),
    mutant(
        "a tie loses",
        "Merge._drop_older",
        '                  AND ({self._list(version, "standing")}) > ({self._list(version, MERGE)}))',
        '                  AND ({self._list(version, "standing")}) >= ({self._list(version, MERGE)}))',
        MERGE + "test_a_replay_writes_again_what_it_wrote_and_takes_nothing_away",
    ),
    mutant(
        "no asset's lock",
        "Merge.lock",
        "            self._connection.execute(owned.with_for_update()).one()\n",
        "            pass\n",
        MERGES + "test_an_older_row_waits_for_a_tombstone_that_is_not_committed_yet[postgresql-]",
        MERGES + "test_an_older_row_waits_for_a_tombstone_that_is_not_committed_yet[mariadb-]",
    ),
    mutant(
        "the incarnation does not weigh",
        "version_columns",
        "return (INCARNATION, OFFSET) if ordered is None",
        "return (OFFSET,) if ordered is None",
        MERGE + "test_a_topic_created_again_outranks_the_old_one",
    ),
    mutant(
        "a key that moved is not looked for",
        "Merge._refuse_moved",
        "        for digest, before, now, offset in self._all(query):\n",
        "        for digest, before, now, offset in self._all(query)[:0]:\n",
        MERGE + "test_a_key_in_another_partition_fails_the_slice",
        MERGE + "test_a_key_in_two_partitions_of_one_run_fails_it",
    ),
)
