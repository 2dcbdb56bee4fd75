"""What the soaks judge by, and that they go on where they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets_tests.soak.mixed import Minute, growth
from kafka_assets_tests.soak.progress import Progress


def minute(number: int) -> Minute:
    megabytes = dict.fromkeys(("heap", "driver", "workers", "nursery", "daemon", "code", "webserver"), 100.0)
    return Minute(number, committed=5, produced=5, runs=1, worker_processes=1, **megabytes)  # type: ignore[arg-type]


def test_what_only_warms_up_has_not_grown_and_what_goes_on_has() -> None:
    assert growth([10.0, 50.0, 99.0, 101.0, 100.0, 100.0, 99.0, 101.0]) == 1.0
    grown = growth([float(number) for number in range(100, 200)])
    assert grown is not None and grown > 1.3
    assert growth([1.0] * 7) is None


def test_one_peak_is_no_growth() -> None:
    assert growth([100.0] * 19 + [900.0]) == 1.0


def test_a_soak_goes_on_where_it_was_with_the_same_server_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Progress(tmp_path / "progress.json", Minute)
    first.begin(server=17)
    assert (first.begin_records(1_000), first.begin_records(10)) == (0, 1_000)
    first.read(minute(1))
    first.kill(3.5)
    again = Progress(tmp_path / "progress.json", Minute)
    again.begin(server=17)
    assert again.readings == [minute(1)] and again.kills == [3.5] and again.begin_records(1) == 1_010
    assert capsys.readouterr().out.count(minute(1).row()) == 2
    with pytest.raises(SystemExit, match="another one"):
        Progress(tmp_path / "progress.json", Minute).begin(server=18)
