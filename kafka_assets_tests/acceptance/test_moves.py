"""Replay, skip and import-offsets in a project: what lands afterwards is exact, and the ledger has no gap."""

from __future__ import annotations

import time
from typing import Any

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.groups import set_offsets
from kafka_assets.ledger.engine import write
from kafka_assets_tests.acceptance.project import Project
from kafka_assets_tests.commands import Commands


def test_slices_land_again_in_place_of_what_they_had(project: Project, command: Commands) -> None:
    project.topic("again", partitions=1)
    project.declare("again", topic="again", max_records=100)
    project.produce("again", 0, 300, partitions=1)
    command("run", "--until-caught-up")
    _spoil(project)

    done = command("replay", "again", "again:0:0-100", "--yes", "--json").json
    assert done == {"replayed": ["again:0:0-100"], "failed": {}, "untried": [], "left": {}}
    assert _spoilt(project) == 200
    # Every slice that meets the range, though it begins before it or ends after it.
    done = command("replay", "again", "--partition", "0", "--from", "150", "--to", "201", "--yes", "--json").json
    assert done["replayed"] == ["again:0:100-200", "again:0:200-300"]
    assert _spoilt(project) == 0

    assert project.sql("select count(*) from again") == 300
    assert project.sql("select min(committed_attempt) from kafka_publication") == 2
    _whole(project, "again", 300)


def test_a_time_leads_to_the_slices_of_its_records(project: Project, command: Commands) -> None:
    project.topic("timed", partitions=1)
    project.declare("timed", topic="timed", max_records=100)
    project.produce("timed", 0, 100, partitions=1)
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    project.produce("timed", 100, 200, partitions=1)
    command("run", "--until-caught-up")
    _spoil(project, "timed")
    done = command("replay", "timed", "--since", str(middle), "--yes", "--json").json
    assert done["replayed"] == ["timed:0:100-200"]
    assert _spoilt(project, "timed") == 100
    assert "nothing was done" in command("replay", "timed", "--until", str(middle), code=2).err
    _whole(project, "timed", 200)


def test_a_replay_names_the_one_slice_that_fails(project: Project, command: Commands) -> None:
    project.topic("broken", partitions=1)
    project.declare("broken", topic="broken", max_records=100)
    project.produce("broken", 0, 300, partitions=1, bad_every=150)
    command("run", "--until-caught-up")
    project.declare("broken", topic="broken", max_records=100, attributes='on_bad="fail"')
    _spoil(project, "broken")

    done = command("replay", "broken", "--partition", "0", "--from", "0", "--to", "250", "--yes", "--json", code=1).json

    assert done["replayed"] == ["broken:0:0-100"]
    assert sorted(done["failed"]) == ["broken:0:100-200", "broken:0:200-300"]
    assert "on_bad: fail" in done["failed"]["broken:0:100-200"]
    assert _spoilt(project, "broken") == 198, "what failed has what it had"
    _whole(project, "broken", 300)


def test_a_jump_leaves_a_reason_and_no_gap(project: Project, command: Commands) -> None:
    project.topic("jump", partitions=2)
    project.declare("jump", topic="jump", max_records=100)
    project.produce("jump", 0, 400, partitions=2)
    command("plan")  # 0-100 and 100-200 of each partition wait
    project.produce("jump", 400, 600, partitions=2)
    boundary = int(time.time() * 1000) + 1
    time.sleep(0.01)
    project.produce("jump", 600, 800, partitions=2)

    at = ["--partition", "0", "--from", "100", "--to", "250", "--reason", "a bad deploy"]
    done = command("skip", "jump", *at, "--yes", "--json").json
    assert done["skipped"] == ["jump:0:100-200", "jump:0:200-250"]
    # Partition 0 is planned to 250, partition 1 to 200: by time, both are skipped up to the same moment.
    done = command("skip", "jump", "--until", str(boundary), "--reason", "old news", "--yes", "--json").json
    assert done["skipped"] == ["jump:0:0-100", "jump:0:250-300", "jump:1:0-100", "jump:1:100-200", "jump:1:200-300"]
    assert project.sql("select count(*) from kafka_gap") == 0
    beyond = ["--partition", "0", "--from", "350", "--to", "401", "--reason", "r", "--yes"]
    assert "ends at 400" in command("skip", "jump", *beyond, code=2).err
    # What lies before a jump into the future is planned, and lands.
    at = ["--partition", "1", "--from", "350", "--reason", "to the end"]
    assert command("skip", "jump", *at, "--yes", "--json").json["skipped"] == ["jump:1:350-400"]

    command("run", "--until-caught-up")
    assert project.sql("select count(*) from jump") == 100 + 50
    assert project.sql("select min(kafka_offset) from jump") == 300
    assert project.sql("select sum(end_offset - start_offset) from kafka_slice where kind = 'skipped'") == 650
    _whole(project, "jump", 800)


def test_a_running_system_moves_here_without_loss_or_doubles(project: Project, command: Commands) -> None:
    project.topic("moved", partitions=2)
    project.declare("moved", topic="moved")
    project.produce("moved", 0, 400, partitions=2)
    connection = Connection(project.broker, {})
    set_offsets(connection, "old-system", {("moved", 0): 120})

    lacking = command("import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes", code=2)
    assert "no offset is stored of partitions 1" in lacking.err
    set_offsets(connection, "old-system", {("moved", 1): 150})
    nobody = command("import-offsets", "moved", "--group", "no-such", "--means", "next", "--yes", code=1)
    assert "does not exist" in nobody.err
    done = command("import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes", "--json").json
    assert [(one["partition"], one["origin"], one["to land"]) for one in done["partitions"]] == [
        (0, 120, 80),
        (1, 150, 50),
    ]
    again = command("import-offsets", "moved", "--group", "old-system", "--means", "next", "--yes", code=1)
    assert "knows stream 'moved' already" in again.err

    command("run", "--until-caught-up")
    assert project.sql("select count(*) from moved") == 130
    assert project.sql("select min(kafka_offset) from moved where kafka_partition = 0") == 120
    _whole(project, "moved", 400)


def test_a_table_of_last_offsets_is_taken_over(project: Project, command: Commands) -> None:
    project.topic("kept", partitions=2)
    project.declare("kept", topic="kept")
    project.produce("kept", 0, 20, partitions=2)
    with write(project.engine) as connection:
        connection.exec_driver_sql("create table progress (t text, p integer, o integer)")
        connection.exec_driver_sql("insert into progress values ('kept', 0, 4), ('kept', 1, 9)")
    names = ["--topic-column", "t", "--partition-column", "p", "--offset-column", "o"]
    done = command("import-offsets", "kept", "--table", "progress", *names, "--means", "last", "--yes", "--json").json
    assert [one["origin"] for one in done["partitions"]] == [5, 10]
    command("run", "--until-caught-up")
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
