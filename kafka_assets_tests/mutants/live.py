"""Mutants of live mode: who may commit on a partition, how a window grows, and who leaves it alone."""

from __future__ import annotations

from kafka_assets_tests.mutants.mutant import mutant

SQLITE = "unit/test_live.py::TestLiveOnSQLite::"
TOLD = "unit/test_live.py::"
BESIDE = "integration/test_live_beside.py::"

OF_LIVE = (
    mutant(
        "a live batch commits wherever planned_through stands",
        "move",
        ".where(_at(lease), g.planned_through == start, g.owner == lease.owner)",
        ".where(_at(lease), g.owner == lease.owner)",
        SQLITE + "test_a_batch_that_begins_elsewhere_commits_nothing[under its lock]",
    ),
    mutant(
        "a live batch commits whoever owns the partition",
        "move",
        ".where(_at(lease), g.planned_through == start, g.owner == lease.owner)",
        ".where(_at(lease), g.planned_through == start)",
        SQLITE + "test_a_zombie_commits_nothing_after_a_takeover[under its lock]",
    ),
    mutant(
        "a window grows without its publication's lock",
        "lock_window",
        "    lock_rows(connection, [window.publication_id])\n    row =",
        "    row =",
        BESIDE + "test_a_window_that_grows_at_this_moment_is_not_closed[postgresql]",
        BESIDE + "test_a_window_that_grows_at_this_moment_is_not_closed[mariadb]",
    ),
    mutant(
        "a window that was closed meanwhile grows",
        "lock_window",
        "    if not row.is_open or row.reached != window.end:\n",
        "    if row.reached != window.end:\n",
        BESIDE + "test_a_window_that_was_closed_since_the_owner_looked_does_not_grow[postgresql]",
    ),
    mutant(
        "Dagster is told the key of an open window",
        "_one",
        'done = row.state == "committed" and not row.is_open',
        'done = row.state == "committed"',
        TOLD + "test_dagster_is_told_of_a_window_once_it_is_closed",
    ),
    mutant(
        "a window that was met open is not told once it is closed",
        "unfinished",
        "    return {*planned, *open_publications(connection)}\n",
        "    return {*planned}\n",
        TOLD + "test_a_window_that_was_met_open_is_told_whatever_was_planned_since",
    ),
    mutant(
        "a replay of an open window is not refused",
        "_decide",
        "    if publication.is_open:\n",
        "    if publication.id == 0:\n",
        SQLITE + "test_an_open_window_is_refused_by_runs_and_skips_which_say_until_when",
    ),
    mutant(
        "a replay does not read the end of a window again",
        "_decide",
        "    if publication.key != held.publication.key:\n",
        "    if publication.id == 0:\n",
        SQLITE + "test_a_replay_of_a_window_that_has_grown_since_it_was_read_is_refused",
    ),
    mutant(
        "a lease is taken without ending the former owner's backend",
        "take",
        "            terminate(engine, backend)\n",
        "            pass\n",
        SQLITE + "test_a_backend_is_ended_before_its_lease_is_taken_and_not_while_it_stands",
        BESIDE + "test_a_frozen_owner_is_ended_and_its_partition_taken_over[postgresql-moved]",
    ),
    mutant(
        "a lease is taken from a backend that nobody ended",
        "_compare_and_set",
        "                    g.owner_backend.is_not_distinct_from(was.owner_backend),\n"
        "                    true() if lease.place in left else ended,\n",
        "",
        SQLITE + "test_an_owner_that_came_back_meanwhile_is_not_robbed",
    ),
    mutant(
        "what a group gives is taken from a member of another one, too",
        "_of_one_group",
        'bool(group) and former is not None and former.split(":")[4:] == group',
        "former is not None",
        SQLITE + "test_what_a_group_gives_is_not_waited_for_where_a_member_of_it_had_it",
    ),
    mutant(
        "whoever asks for a lease that stands ends its owner's backend",
        "take",
        "for place, row in standing.items() if place in open_ and row.owner != owner}",
        "for place, row in standing.items() if row.owner != owner}",
        SQLITE + "test_a_backend_is_ended_before_its_lease_is_taken_and_not_while_it_stands",
    ),
    mutant(
        "an owner's connection is not named in its leases",
        "LiveConnection._begun",
        "        register(self._engine, list(moves), self._backend)\n",
        "",
        BESIDE + "test_a_frozen_owner_is_ended_and_its_partition_taken_over[postgresql-moved]",
        BESIDE + "test_the_sensor_ends_a_frozen_owner_before_it_plans[postgresql-moved]",
    ),
    mutant(
        "a live commit without an answer is taken for none",
        "LiveConnection.owning",
        "            if not _committed(self._engine, moves, self._backend):\n",
        "            if self._backend:\n",
        SQLITE + "test_a_commit_without_an_answer_is_asked_about[True]",
    ),
    mutant(
        "a live commit without an answer is believed",
        "LiveConnection.owning",
        "            if not _committed(self._engine, moves, self._backend):\n",
        "            if not self._backend:\n",
        SQLITE + "test_a_commit_without_an_answer_is_asked_about[False]",
    ),
    mutant(
        "the sensor plans what is leased",
        "commit_plan",
        "                (p.c.owner_lease_until.is_(None) | (p.c.owner_lease_until < now_ms()))\n",
        "                p.c.origin >= 0\n",
        SQLITE + "test_a_leased_partition_is_planned_by_its_owner_alone",
    ),
    mutant(
        "slices are planned after a window that stays open",
        "commit_plan",
        "        close_windows(connection, window)\n",
        "",
        SQLITE + "test_whoever_plans_after_an_open_window_closes_it_first",
    ),
    mutant(
        "a topic that was created again stays its consumer's",
        "_retire",
        'nobody = {"owner": None, "owner_lease_until": None, "owner_backend": None}',
        'nobody = {"log_start": 0}',
        SQLITE + "test_a_topic_created_again_is_taken_from_its_owner",
    ),
    mutant(
        "an owner begins while slices wait",
        "ready",
        "            if row.committed_through < row.planned_through:\n",
        "            if False:\n",
        SQLITE + "test_an_owner_waits_for_what_is_planned_and_is_told_for_whom",
    ),
    mutant(
        "bad records are judged batch by batch",
        "LiveTable._settle",
        "judge(part.key, part.before.seen + part.seen, self._policy, examples=examples.of(part.key))",
        "judge(part.key, part.seen, self._policy, examples=examples.of(part.key))",
        SQLITE + "test_bad_records_are_judged_over_the_window_so_far",
    ),
    mutant(
        "a sensor waits for live commits",
        "_unlocked",
        "mine.with_for_update(key_share=True, skip_locked=True)",
        "mine.with_for_update(key_share=True)",
        BESIDE + "test_a_sensor_does_not_wait_for_a_live_commit[postgresql]",
    ),
    mutant(
        "a live commit sets committed_through by the statement that locks it",
        "advance",
        "select(done.c.committed_through).where(mine).with_for_update()",
        "select(done.c.committed_through).where(mine)",
        BESIDE + "test_a_run_and_an_owner_that_commit_at_the_same_time_leave_committed_through_right[postgresql-True]",
    ),
    mutant(
        "rows of another owner are taken for the records' fault",
        "_not_anothers",
        "    except RowsRefused:\n        require_standing(connection, moves)\n",
        "    except RowsRefused:\n",
        SQLITE + "test_rows_of_the_heir_are_not_taken_for_the_fault_of_the_zombies_records",
    ),
)
