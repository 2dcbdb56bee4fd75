"""A Spark cluster that changes while a slice lands through it: what is killed, and what comes late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_assets_tests.integration.living import waited
from kafka_assets_tests.integration.on_cluster import (
    Meeting,
    check_functions,
    check_landed,
    function_of,
    meanwhile,
    produced,
)
from kafka_assets_tests.integration.project import Landing, failure_of
from kafka_assets_tests.spark_cluster import SparkCluster
from kafka_assets_tests.spark_tasks import Task

pytestmark = pytest.mark.campaign

RECORDS = 60_000
Declare = Callable[..., Landing]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of many queries, so that there is a middle of them."""
    monkeypatch.setattr("kafka_assets.assets.landing.QUERY_OFFSETS", 5_000)


@pytest.fixture(autouse=True)
def two_workers(cluster: SparkCluster) -> None:
    """The test before may have killed some, or added one."""
    for name in cluster.workers[2:]:
        cluster.kill_worker(name)
    cluster.fill_up(workers=2)


class Work:
    """The tasks that the cluster has had since the test began."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster
        self._before = len(cluster.told.tasks)

    @property
    def tasks(self) -> list[Task]:
        return self._cluster.told.tasks[self._before :]

    def of(self, *executors: int, ended: str) -> list[int]:
        """Which tasks of these executors ended so, by their place among all."""
        return [at for at, task in enumerate(self.tasks) if task.executor in executors and task.ended == ended]

    def begun(self) -> None:
        """Some tasks are done; the run goes on."""
        waited(lambda: sum(task.ended == "finished" for task in self.tasks) >= 2)

    def frozen_at_work(self) -> int:
        """An executor that stands still, with a task that it has begun."""
        self.begun()
        at_work: list[Task] = []
        waited(lambda: at_work.extend(task for task in self.tasks if not task.ended) or at_work)
        victim = at_work[0].executor
        self._cluster.signalled(victim, signal.SIGSTOP)
        waited(lambda: self._keeps(victim))
        return victim

    def _keeps(self, executor: int) -> bool:
        """Whether it has a task now; of one that it had ended when it was stopped the server hears a moment later."""
        seen = self.of(executor, ended="")
        time.sleep(0.5)
        return bool(set(seen) & set(self.of(executor, ended="")))


@pytest.mark.parametrize("killed", ["executor", "worker"])
def test_spark_tries_again_what_died_in_mid_slice(landing: Declare, cluster: SparkCluster, killed: str) -> None:
    made = produced(landing, cluster, records=RECORDS)
    work = Work(cluster)
    dead: list[int] = []
    started: list[int] = []

    def kill() -> None:
        dead.append(work.frozen_at_work())
        started.append(len(work.tasks))
        if killed == "worker":
            cluster.kill_worker(cluster.worker_of(dead[0]))
        else:
            cluster.signalled(dead[0], signal.SIGKILL)

    with meanwhile(kill):
        [request] = made.land().requests
    assert request, "all in one run"
    check_landed(made, records=RECORDS)
    assert work.of(*dead, ended="lost")
    assert any(task.attempt == 1 and task.ended == "finished" for task in work.tasks), "tried again"
    assert made.sql("select max(attempt) from kafka_claim") == 1
    if killed == "worker":
        [other] = cluster.workers
        after = {task.executor for task in work.tasks[started[0] :] if task.ended == "finished"}
        assert after and {cluster.worker_of(one) for one in after} == {other}


@pytest.mark.parametrize("killed", ["executor", "worker"])
def test_records_that_died_with_their_executor_are_read_again_by_the_next_run(
    landing: Declare, cluster: SparkCluster, tmp_path: Path, killed: str
) -> None:
    meeting = Meeting(tmp_path / "meeting")
    made = produced(landing, cluster, records=RECORDS, transform=function_of(tmp_path / "defs", meeting))

    def kill() -> None:
        with meeting.kept():
            waited(meeting.workers)
            victim = meeting.workers()[0]
            if killed == "worker":
                cluster.kill_worker(victim)
            else:
                [executor] = cluster.executors(victim)
                cluster.signalled(executor, signal.SIGKILL)

    [request] = made.tick().requests
    with meanwhile(kill):
        result = made.run(request)
    assert "lost an executor" in failure_of(result)
    told = made.rows("select attempt, failures_alone, failure like '%lost an executor%' from kafka_claim")
    assert told == [(1, 0, 1)] * 2, "no slice's fault"
    assert made.sql("select max(lease_until) from kafka_claim") <= time.time() * 1000, "given back"
    assert made.sql("select count(*) from kafka_publication where state = 'committed'") == 0
    waited(lambda: made.land().requests)
    check_landed(made, records=RECORDS)
    assert check_functions(made) <= set(cluster.workers)
    assert made.sql("select max(attempt) from kafka_claim") == 2


class Late:
    """A worker that comes when a run's work has begun, while the executors that there are stand still."""

    def __init__(self, cluster: SparkCluster) -> None:
        self.cluster, self.work = cluster, Work(cluster)
        self.others = list(cluster.workers)
        self.name = ""
        self.begun = 0
        """How many tasks had begun when it was there."""

    def join(self) -> None:
        self.work.begun()
        for name in self.others:
            self.signal(name, signal.SIGSTOP)
        self.name = self.cluster.add_worker()
        waited(lambda: self.cluster.executor_on(self.name) is not None)
        self.begun = len(self.work.tasks)

    def join_for_company(self) -> None:
        self.join()
        for name in self.others:
            self.signal(name, signal.SIGCONT)

    def join_instead(self) -> None:
        self.join()
        for name in self.others:
            self.cluster.kill_worker(name)

    def signal(self, worker: str, what: signal.Signals) -> None:
        executor = self.cluster.executor_on(worker)
        assert executor is not None
        self.cluster.signalled(executor, what)


def test_functions_and_helpers_reach_a_worker_that_joins_in_mid_run(
    landing: Declare, cluster: SparkCluster, tmp_path: Path
) -> None:
    transform = function_of(tmp_path / "defs", Meeting(tmp_path / "meeting"))
    made = produced(landing, cluster, records=RECORDS, partitions=4, transform=transform)
    late = Late(cluster)
    with meanwhile(late.join_for_company):
        [request] = made.land().requests
    assert request, "all in one run"
    check_landed(made, records=RECORDS, partitions=4)
    workers = check_functions(made)
    assert {late.name} < workers <= set(cluster.workers)


def test_a_worker_that_joins_in_mid_run_lands_the_rest_when_all_others_are_killed(
    landing: Declare, cluster: SparkCluster
) -> None:
    made = produced(landing, cluster, records=RECORDS, partitions=4)
    late = Late(cluster)
    with meanwhile(late.join_instead):
        [request] = made.land().requests
    assert request, "all in one run"
    check_landed(made, records=RECORDS, partitions=4)
    assert cluster.workers == [late.name]
    ends = [(cluster.worker_of(task.executor), task.ended) for task in late.work.tasks]
    assert {worker for worker, ended in ends[: late.begun] if ended == "finished"} & set(late.others)
    assert "lost" in {ended for worker, ended in ends if worker != late.name}
    assert {worker for worker, ended in ends[late.begun :] if ended == "finished"} == {late.name}
