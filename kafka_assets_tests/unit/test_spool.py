"""Rows that wait on disk for SQLite's one writer."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from kafka_assets.errors import CountsDisagree, DiskFull, Retryable, SettingsError
from kafka_assets.ledger.engine import write
from kafka_assets.sinks.spool import SPOOL, spool_folder, spool_place
from kafka_assets.sinks.sqlite import _written  # pyright: ignore[reportPrivateUsage]
from kafka_assets_tests.ledgers import Attempt, plan, rows_of, target

HELD = """
import sys, time
from pathlib import Path
from kafka_assets.sinks.spool import spool_folder
with spool_folder(Path(sys.argv[1])) as folder:
    (folder / "0.arrow").write_text("rows")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_they_wait_beside_the_database_or_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spool_place("/data/ledger.db") == Path("/data/ledger.db-spool")
    monkeypatch.setenv(SPOOL, str(tmp_path))
    assert spool_place("/data/ledger.db") == tmp_path


def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HELD, str(tmp_path / "spool")]
    killed, living = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    try:
        left, kept = (Path(one.stdout.readline().strip()) for one in (killed, living) if one.stdout)
        killed.kill()
        killed.wait()
        assert left.exists()
        with spool_folder(tmp_path / "spool") as folder:
            assert not left.exists()
            assert kept.exists() and folder.exists()
        assert not folder.exists()
    finally:
        for one in (killed, living):
            one.kill()
            one.communicate()


def test_a_landing_leaves_nothing_there(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 5)])
    Attempt(engine, [key]).claim().publish()
    assert list(spool_place(str(engine.url.database)).glob("slices-*")) == []


def test_a_full_disk_is_said_and_the_slice_tried_again() -> None:
    with pytest.raises(DiskFull, match=SPOOL) as caught:
        _written(pa.table({"a": ["x" * 100_000]}), Path("/dev/full"))
    assert isinstance(caught.value, Retryable)


def test_a_folder_that_cannot_be_made_is_no_slices_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=SPOOL), spool_folder(tmp_path / "file" / "spool"):
        pass

    def full(**asked: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(DiskFull, match=SPOOL), spool_folder(tmp_path / "spool"):
        pass


def test_rows_that_a_trigger_takes_away_without_a_word_are_missed(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 5)])
    table = target(engine)
    with write(engine) as connection:
        connection.exec_driver_sql(
            "create trigger quiet before insert on orders when new.id = 3 begin select raise(ignore); end"
        )
    with pytest.raises(CountsDisagree, match="5 rows were sent to the table 'orders', and 4 arrived"):
        Attempt(engine, [key]).claim().publish(table=table)
    assert rows_of(engine) == []


def test_rows_that_a_trigger_keeps_from_being_replaced_are_told(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 5)])
    table = target(engine)
    Attempt(engine, [key]).claim().publish(table=table)
    before = rows_of(engine)
    with write(engine) as connection:
        connection.exec_driver_sql(
            "create trigger kept before delete on orders when old.id = 3 begin select raise(ignore); end"
        )
    with pytest.raises(CountsDisagree, match="rows of slice orders:0:0-5 are to be replaced in the table 'orders'"):
        Attempt(engine, [key], replaces=True).claim(force=True).publish(table=table)
    assert rows_of(engine) == before
