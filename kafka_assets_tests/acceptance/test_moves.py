"""Replay, skip and import-offsets in a project: what lands afterwards is exact, and the ledger has no gap."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.groups import set_offsets
from kafka_assets.ledger.engine import write
from kafka_assets_tests.acceptance.conftest import Project


def test_slices_land_again_in_place_of_what_they_had(project: Project) -> None:
    project.topic("again", partitions=1)
    project.declare("again", topic="again", max_records=100)
    project.produce("again", 0, 300, partitions=1)
    _json(project, "run", "--until-caught-up")
    _spoil(project)

    done = _json(project, "replay", "again", "again:0:0-100", "--yes")
    assert done == {"replayed": ["again:0:0-100"], "failed": {}, "left": {}}
    assert _spoilt(project) == 200
    # Every slice that meets the range, though it begins before it or ends after it.
    done = _json(project, "replay", "again", "--partition", "0", "--from", "150", "--to", "201", "--yes")
    assert done["replayed"] == ["again:0:100-200", "again:0:200-300"]
    assert _spoilt(project) == 0

    assert project.sql("select count(*) from again") == 300
    assert project.sql("select min(committed_attempt) from kafka_publication") == 2
    _whole(project, "again", 300)


def test_a_time_leads_to_the_slices_of_its_records(project: Project) -> None:
    project.topic("timed", partitions=1)
    project.declare("timed", topic="timed", max_records=100)
    project.produce("timed", 0, 100, partitions=1)
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    project.produce("timed", 100, 200, partitions=1)
    _json(project, "run", "--until-caught-up")
    _spoil(project, "timed")
    done = _json(project, "replay", "timed", "--since", str(middle), "--yes")
    assert done["replayed"] == ["timed:0:100-200"]
    assert _spoilt(project, "timed") == 100
    assert "nothing was done" in _run(project, "replay", "timed", "--until", str(middle), code=2).stderr
    _whole(project, "timed", 200)


def test_a_replay_names_the_one_slice_that_fails(project: Project) -> None:
    project.topic("broken", partitions=1)
    project.declare("broken", topic="broken", max_records=100)
    project.produce("broken", 0, 300, partitions=1, bad_every=150)
    _json(project, "run", "--until-caught-up")
    project.declare("broken", topic="broken", max_records=100, attributes='on_bad="fail"')
    _spoil(project, "broken")

    done = _json(project, "replay", "broken", "--partition", "0", "--from", "0", "--to", "250", "--yes", code=1)

    assert done["replayed"] == ["broken:0:0-100"]
    assert sorted(done["failed"]) == ["broken:0:100-200", "broken:0:200-300"]
    assert "on_bad: fail" in done["failed"]["broken:0:100-200"]
    assert _spoilt(project, "broken") == 198, "what failed has what it had"
    _whole(project, "broken", 300)


def test_a_jump_leaves_a_reason_and_no_gap(project: Project) -> None:
    project.topic("jump", partitions=2)
    project.declare("jump", topic="jump", max_records=100)
    project.produce("jump", 0, 400, partitions=2)
    _json(project, "plan")  # 0-100 and 100-200 of each partition wait
    project.produce("jump", 400, 600, partitions=2)
    boundary = int(time.time() * 1000) + 1
    time.sleep(0.01)
    project.produce("jump", 600, 800, partitions=2)

    at = ["--partition", "0", "--from", "100", "--to", "250", "--reason", "a bad deploy"]
    done = _json(project, "skip", "jump", *at, "--yes")
    assert done["skipped"] == ["jump:0:100-200", "jump:0:200-250"]
    # Partition 0 is planned to 250, partition 1 to 200: by time, both are skipped up to the same moment.
    done = _json(project, "skip", "jump", "--until", str(boundary), "--reason", "old news", "--yes")
    assert done["skipped"] == ["jump:0:0-100", "jump:0:250-300", "jump:1:0-100", "jump:1:100-200", "jump:1:200-300"]
    assert project.sql("select count(*) from kafka_gap") == 0
    beyond = ["--partition", "0", "--from", "350", "--to", "401", "--reason", "r", "--yes"]
    assert "ends at 400" in _run(project, "skip", "jump", *beyond, code=2).stderr
    # What lies before a jump into the future is planned, and lands.
    at = ["--partition", "1", "--from", "350", "--reason", "to the end"]
    assert _json(project, "skip", "jump", *at, "--yes")["skipped"] == ["jump:1:350-400"]

    _json(project, "run", "--until-caught-up")
    assert project.sql("select count(*) from jump") == 100 + 50
    assert project.sql("select min(kafka_offset) from jump") == 300
    assert project.sql("select sum(end_offset - start_offset) from kafka_slice where kind = 'skipped'") == 650
    _whole(project, "jump", 800)


def test_a_running_system_moves_here_without_loss_or_doubles(project: Project) -> None:
    project.topic("moved", partitions=2)
    project.declare("moved", topic="moved")
    project.produce("moved", 0, 400, partitions=2)
    connection = Connection(project.broker, {})
    set_offsets(connection, "old-system", {("moved", 0): 120})

    lacking = _run(project, "import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes", code=2)
    assert "no offset is stored of partitions 1" in lacking.stderr
    set_offsets(connection, "old-system", {("moved", 1): 150})
    nobody = _run(project, "import-offsets", "moved", "--group", "no-such", "--means", "next", "--yes", code=1)
    assert "does not exist" in nobody.stderr
    done = _json(project, "import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes")
    assert [(one["partition"], one["origin"], one["to land"]) for one in done["partitions"]] == [
        (0, 120, 80),
        (1, 150, 50),
    ]
    again = _run(project, "import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes", code=1)
    assert "knows stream 'moved' already" in again.stderr

    _json(project, "run", "--until-caught-up")
    assert project.sql("select count(*) from moved") == 130
    assert project.sql("select min(kafka_offset) from moved where kafka_partition = 0") == 120
    _whole(project, "moved", 400)


def test_a_table_of_last_offsets_is_taken_over(project: Project) -> None:
    project.topic("kept", partitions=2)
    project.declare("kept", topic="kept")
    project.produce("kept", 0, 20, partitions=2)
    with write(project.engine) as connection:
        connection.exec_driver_sql("create table progress (t text, p integer, o integer)")
        connection.exec_driver_sql("insert into progress values ('kept', 0, 4), ('kept', 1, 9)")
    names = ["--topic-column", "t", "--partition-column", "p", "--offset-column", "o"]
    done = _json(project, "import-offsets", "kept", "--table", "progress", *names, "--means", "last", "--yes")
    assert [one["origin"] for one in done["partitions"]] == [5, 10]
    _json(project, "run", "--until-caught-up")
    assert project.sql("select count(*) from kept") == 5
    _whole(project, "kept", 20)


def _spoil(project: Project, table: str = "again") -> None:
    with write(project.engine) as connection:
        connection.exec_driver_sql(f"update {table} set note = 'spoilt'")


def _spoilt(project: Project, table: str = "again") -> Any:
    return project.sql(f"select count(*) from {table} where note = 'spoilt'")


def _whole(project: Project, name: str, offsets: int) -> None:
    assert project.landed(name, offsets)
    assert project.sql("select count(*) from kafka_gap") == 0


def _json(project: Project, *command: str, code: int = 0) -> Any:
    return json.loads(_run(project, *command, "--json", code=code).stdout)


def _run(project: Project, *command: str, code: int) -> subprocess.CompletedProcess[str]:
    arguments = [str(Path(sys.executable).with_name("kafka-assets")), *command]
    done = subprocess.run(
        arguments,
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done
