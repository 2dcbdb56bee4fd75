"""Mutants of the protocol: who may commit, in which order locks are taken, and how far planning has come."""

from __future__ import annotations

from kafka_assets_tests.mutants.mutant import Change, Mutant, mutant

SQLITE = "unit/test_publish.py::TestPublishOnSQLite::"
HISTORY = "unit/test_history.py::"
TICK = "unit/test_tick.py::"
SERVERS = "integration/test_publish.py::TestPublishOnServers::"
FROZEN = "integration/test_publish_frozen.py::"
LOST = "integration/test_publish_lost.py::"
NEIGHBOURS = "integration/test_publish_neighbours.py::"
LOCKS = "integration/test_locks.py::"
SESSIONS = "integration/test_schema_servers.py::"

_ALONE = "test_whoever_waits_for_the_first_of_two_slices_does_not_hold_the_second"
_TERMINATION = """\
        for name in {claim.backend for claim in standing.values()} - {None, backend}:
            assert name is not None
            terminate(engine, name)
"""
_CLAIM = """\
        claims = _compare_and_set(
            engine, publications, standing, run_id=run_id, backend=backend, force=force, over=over, lease_ms=lease_ms
        )
"""

OF_FENCES = (
    mutant(
        "no attempt check (and termination switched off)",
        "verify_attempts",
        "if attempt != held.attempt:",
        "if attempt is None:",
        SQLITE + "test_an_attempt_that_nobody_ended_commits_nothing_after_a_takeover",
        SERVERS + "test_an_attempt_that_nobody_ended_commits_nothing_after_a_takeover[postgresql]",
    ),
    mutant(
        "attempt check without its lock",
        "verify_attempts",
        ".with_for_update()",
        "",
        LOST + "test_a_lock_that_is_not_to_be_had_is_tried_again_with_the_whole_transaction[postgresql]",
        LOCKS + f"{_ALONE}[postgresql-verify]",
    ),
    mutant(
        "no termination before the claim",
        "claim",
        "            terminate(engine, name)\n",
        "",
        FROZEN + "test_a_frozen_holder_is_ended_and_its_slice_taken_over[postgresql-between]",
        FROZEN + "test_a_frozen_holder_is_ended_and_its_slice_taken_over[postgresql-verified]",
    ),
    mutant(
        "termination after the claim",
        "claim",
        _TERMINATION + _CLAIM,
        _CLAIM + _TERMINATION,
        FROZEN + "test_a_frozen_holder_is_ended_and_its_slice_taken_over[postgresql-verified]",
    ),
    mutant(
        "a number that was used again is ended",
        "_PG_END",
        'WHERE pid = :number AND {_PG_START} = :start"',
        'WHERE pid = :number AND :start > 0"',
        LOST + "test_a_number_that_is_used_again_is_not_ended[postgresql]",
    ),
    mutant(
        "a claim is written whatever attempt stands there",
        "_compare_and_set",
        "                c.attempt == was.attempt,\n",
        "",
        SQLITE + "test_two_runs_that_read_the_same_claim_never_hold_the_same_attempt",
    ),
    mutant(
        "a claim is written whatever backend stands there",
        "_compare_and_set",
        "                c.backend.is_not_distinct_from(was.backend),\n",
        "",
        SQLITE + "test_a_claim_reads_again_when_the_holder_registered_another_backend_meanwhile",
    ),
    mutant(
        "a live lease is not respected",
        "_refuse_live_leases",
        "        if held.held_ms > 0 and held.run_id not in over:\n",
        "        if held.held_ms > 10**9:\n",
        SQLITE + "test_a_live_lease_is_respected_and_an_ended_one_is_taken_over",
    ),
    mutant(
        "a run that is over holds up the one that tries it again",
        "_compare_and_set",
        "            if not force and was.run_id not in over:\n",
        "            if not force:\n",
        SQLITE + "test_a_lease_that_a_run_left_behind_holds_up_nobody_who_knows_that_it_is_over",
    ),
    mutant(
        "a zombie writes into the heir's claim",
        "_mine",
        "t.claim.c.publication_id == held.publication.id, t.claim.c.attempt == held.attempt)",
        "t.claim.c.publication_id == held.publication.id)",
        SQLITE + "test_a_zombie_leaves_the_heir_s_claim_alone",
    ),
    mutant(
        "no registration of the backend before BEGIN",
        "publishing.register",
        "        register_backend(engine, claims, backend)\n",
        "",
        LOST + "test_each_try_names_its_own_backend_before_it_begins[postgresql]",
        FROZEN + "test_a_frozen_holder_is_ended_and_its_slice_taken_over[postgresql-between]",
    ),
    mutant(
        "the backend of a busy try is left",
        "publishing",
        "            terminate(engine, backend)\n",
        "            pass\n",
        LOST + "test_the_backend_of_a_try_that_was_busy_is_ended[postgresql]",
    ),
    mutant(
        "the tick ends nobody's backend",
        "tick",
        "troubles=[*end_expired(engine, log=log), *end_live(engine, log=log)]",
        "troubles=[]",
        TICK + "test_a_tick_ends_what_holders_that_are_gone_left_behind",
    ),
    mutant(
        "a request is stored whatever attempt stands there",
        "store_request",
        "                    c.attempt == one.attempt,\n",
        "",
        TICK + "test_a_request_is_not_stored_for_what_was_claimed_since_it_was_due",
    ),
    mutant(
        "the sensor ends backends of planned slices only",
        "end_expired",
        ".where(c.lease_until <= now_ms(), c.backend.is_not(None))",
        ".join(t.publication, t.publication.c.id == c.publication_id)"
        ".where(c.lease_until <= now_ms(), c.backend.is_not(None), t.publication.c.state == 'planned')",
        FROZEN + "test_the_sensor_ends_a_frozen_replay_of_a_committed_slice[postgresql]",
    ),
    mutant(
        "the lease's clock stands still in a transaction",
        "_postgresql_now_ms",
        "(epoch FROM clock_timestamp())",
        "(epoch FROM now())",
        "integration/test_schema_contract.py::TestSchemaOnServers::"
        "test_the_clock_is_the_database_s_and_moves_within_a_transaction[postgresql]",
    ),
)

OF_LOCKS = (
    Mutant(
        "publications are locked in the order given",
        (
            Change("lock", "    ordered = sorted(ids)\n", "    ordered = list(ids)\n"),
            Change("lock_rows", "    for number in sorted(ids):\n", "    for number in ids:\n"),
        ),
        (LOCKS + f"{_ALONE}[postgresql-lock]",),
    ),
    mutant(
        "claims are taken in the order given",
        "_compare_and_set",
        "for publication in sorted(publications, key=lambda one: one.id):",
        "for publication in publications:",
        LOCKS + f"{_ALONE}[postgresql-claim]",
    ),
    mutant(
        "attempts are verified in the order given",
        "verify_attempts",
        "for held in sorted(claims, key=lambda one: one.publication.id):",
        "for held in claims:",
        LOCKS + f"{_ALONE}[postgresql-verify]",
    ),
    mutant(
        "committed_through in the order of the slices",
        "_advance",
        "in sorted({(one.asset, one.source_id, one.key.partition) for one in done}):",
        "in dict.fromkeys((one.asset, one.source_id, one.key.partition) for one in done):",
        NEIGHBOURS + "test_publishers_of_several_partitions_never_wait_for_each_other_in_a_circle[postgresql]",
    ),
    mutant(
        "committed_through is set by the statement that locks it",
        "advance",
        "select(done.c.committed_through).where(mine).with_for_update()",
        "select(done.c.committed_through).where(mine)",
        NEIGHBOURS + "test_neighbours_that_commit_at_the_same_time_leave_committed_through_right[postgresql-True]",
    ),
    mutant(
        "committed_through jumps over what is not committed",
        "advance",
        "            uncommitted_by(asset),\n",
        "            ~uncommitted_by(asset),\n",
        SQLITE + "test_slices_commit_in_any_order_and_committed_through_waits_for_the_lowest",
    ),
    mutant(
        "committed_through is looked for below itself, too",
        "advance",
        "            s.start_offset >= through,\n",
        "",
        HISTORY + "test_no_operation_reads_history",
    ),
    mutant(
        "no idle timeout from the first shared lock on",
        "verify_attempts",
        "    set_idle_timeout(connection, IDLE_SECONDS)\n",
        "",
        LOST + "test_the_transaction_may_pause_for_spark_but_not_once_others_wait[postgresql]",
        LOST + "test_the_transaction_may_pause_for_spark_but_not_once_others_wait[mariadb]",
    ),
    mutant(
        "an idle timeout while Spark works",
        "publishing",
        "            set_idle_timeout(connection, 0)\n",
        "",
        LOST + "test_the_transaction_may_pause_for_spark_but_not_once_others_wait[postgresql]",
    ),
    mutant(
        "no idle timeout under the asset's lock",
        "Merge.lock",
        "        set_idle_timeout(self._connection, IDLE_SECONDS)\n",
        "",
        LOCKS + "test_a_publisher_that_is_frozen_in_its_merge_does_not_keep_the_asset_s_lock[postgresql]",
    ),
    mutant(
        "REPEATABLE READ",
        "make_engine",
        'options["isolation_level"] = "READ COMMITTED"',
        'options["isolation_level"] = "REPEATABLE READ"',
        SESSIONS + "test_a_statement_sees_what_others_committed_before_it[mariadb]",
    ),
    mutant(
        "an UPDATE counts only what it changed",
        "mysql_arguments",
        '"client_flag": CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES,',
        '"client_flag": CLIENT.LOCAL_FILES,',
        SESSIONS + "test_an_update_counts_the_row_that_it_found_unchanged[mariadb]",
    ),
)

OF_PLANNING = (
    mutant(
        "planned_through moves wherever it stands",
        "commit_plan",
        "                p.c.planned_through == expected,\n",
        "",
        SQLITE + "test_two_planners_cannot_plan_the_same_offsets",
    ),
    mutant(
        "slices are planned of a topic that is gone",
        "require_not_retired",
        "    if retired_at is not None:\n",
        "    if retired_at == 0:\n",
        SQLITE + "test_a_planner_that_saw_the_topic_before_it_was_deleted_plans_nothing_of_it",
    ),
    mutant(
        "what a deleted topic left unread is not recorded",
        "_make",
        "            _retire(connection, row.id)\n",
        "            pass\n",
        SQLITE + "test_a_topic_created_again_is_a_new_source_and_the_rest_of_the_old_one_is_lost",
    ),
    mutant(
        "what commits while its topic is retired becomes lost",
        "_retire",
        "    orphans = [number for number in orphans if number in still]\n",
        "",
        LOCKS + "test_what_commits_while_its_topic_is_retired_never_becomes_lost[postgresql]",
        LOCKS + "test_what_commits_while_its_topic_is_retired_never_becomes_lost[mariadb]",
    ),
)
