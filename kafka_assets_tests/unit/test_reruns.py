"""Who asked for a run, by the tags as Dagster sets them: a person replaces, the sensor and automatic retries do not."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.storage import tags as dagsters
from dagster._core.utils import make_new_run_id
from sqlalchemy import Engine

from kafka_assets.assets.names import TOKEN_TAG
from kafka_assets.assets.reruns import AUTOMATION_TAG, PARENT_TAG, RETRY_TAG, ROOT_TAG, Asked, asked_of
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows_of, scalar

SENSORS = {TOKEN_TAG: "token"}
BACKFILLS = {"dagster/backfill": "b"}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(instance: dg.DagsterInstance, tags: dict[str, str]) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun(job_name="landing", run_id=make_new_run_id(), tags=tags))


def again(instance: dg.DagsterInstance, parent: dg.DagsterRun, *, retry: int | None = None) -> dg.DagsterRun:
    """As `DagsterInstance.create_reexecuted_run` makes them, by hand or by the daemon that retries."""
    tags = {name: value for name, value in parent.tags.items() if name not in dagsters.TAGS_TO_MAYBE_OMIT_ON_RETRY}
    tags |= {} if retry is None else {RETRY_TAG: str(retry)}
    return run(instance, tags | {PARENT_TAG: parent.run_id, ROOT_TAG: parent.tags.get(ROOT_TAG, parent.run_id)})


def asked(instance: dg.DagsterInstance, one: dg.DagsterRun) -> Asked:
    return asked_of(one.tags, run_of=instance.get_run_by_id)


def test_the_tags_are_named_as_dagster_names_them() -> None:
    assert (PARENT_TAG, ROOT_TAG) == (dagsters.PARENT_RUN_ID_TAG, dagsters.ROOT_RUN_ID_TAG)
    assert RETRY_TAG == dagsters.RETRY_NUMBER_TAG
    # Else who executes an automatic retry again by hand would be taken for one.
    assert AUTOMATION_TAG == dagsters.AUTOMATION_CONDITION_TAG
    assert RETRY_TAG in dagsters.TAGS_TO_MAYBE_OMIT_ON_RETRY


def test_the_sensors_run_leaves_what_is_committed_and_any_other_replaces(instance: dg.DagsterInstance) -> None:
    assert asked(instance, run(instance, SENSORS)) == Asked(replaces=False)
    assert asked(instance, run(instance, BACKFILLS)) == Asked(replaces=True)


def test_what_an_automation_condition_asks_for_replaces_nothing_and_a_person_who_asks_again_does(
    instance: dg.DagsterInstance,
) -> None:
    asked_for = run(instance, {AUTOMATION_TAG: "true"})
    assert asked(instance, asked_for) == Asked(replaces=False)
    assert not asked(instance, again(instance, asked_for, retry=1)).replaces
    assert asked(instance, again(instance, asked_for)) == Asked(replaces=True)


def test_a_sensors_run_that_is_executed_again_by_hand_replaces(instance: dg.DagsterInstance) -> None:
    sensors = run(instance, SENSORS)
    assert asked(instance, again(instance, sensors)) == Asked(replaces=True)
    retry = again(instance, sensors, retry=1)
    assert asked(instance, again(instance, retry)) == Asked(replaces=True)


def test_an_automatic_retry_of_the_sensors_run_does_not(instance: dg.DagsterInstance) -> None:
    retry = again(instance, run(instance, SENSORS), retry=1)
    assert not asked(instance, retry).replaces
    assert not asked(instance, again(instance, retry, retry=2)).replaces


def test_an_automatic_retry_of_a_backfill_replaces_what_none_of_its_tries_has_committed(
    instance: dg.DagsterInstance,
) -> None:
    backfill = run(instance, BACKFILLS)
    first = again(instance, backfill, retry=1)
    second = again(instance, first, retry=2)
    third = again(instance, second, retry=3)
    tries = {backfill.run_id, first.run_id, second.run_id}
    assert asked(instance, third) == Asked(replaces=True, keeps=frozenset(tries))


def test_an_automatic_retry_of_what_was_executed_again_by_hand_is_as_that_was(instance: dg.DagsterInstance) -> None:
    by_hand = again(instance, run(instance, SENSORS))
    retry = again(instance, by_hand, retry=2)
    assert asked(instance, retry) == Asked(replaces=True, keeps=frozenset({by_hand.run_id}))


def test_of_a_run_that_was_deleted_the_tags_of_its_retry_remain(instance: dg.DagsterInstance) -> None:
    backfill = run(instance, BACKFILLS)
    first = again(instance, backfill, retry=1)
    second = again(instance, first, retry=2)
    instance.delete_run(first.run_id)
    assert asked(instance, second) == Asked(replaces=True, keeps=frozenset({backfill.run_id, first.run_id}))
    assert not asked_of({**SENSORS, PARENT_TAG: "gone", RETRY_TAG: "1"}, run_of=instance.get_run_by_id).replaces


def test_a_result_that_is_kept_stays_and_its_neighbours_are_replaced(engine: Engine) -> None:
    first, second = plan(engine, slices=[(0, 2), (2, 4)])
    Attempt(engine, [first], run_id="older").claim().publish()
    Attempt(engine, [second], run_id="tried").claim().publish()
    retry = Attempt(engine, [first, second], run_id="retry", replaces=True, keeps={"tried"}).claim(force=True)
    told = retry.publish(chunk_of(first, note="b"), chunk_of(second, note="b"))
    assert [one.outcome is None for one in told] == [False, True]
    assert [note for _, _, note in rows_of(engine)] == ["b", "b", "a", "a"]
    assert scalar(engine, "select group_concat(run_id) from kafka_publication") == "retry,tried"
