"""`bench load` through a real sensor and real runs: every record is there once, and every one is in the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.audit.scratch import PREFIX
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topics import topic_names
from kafka_assets.lab.bench.latency import WHOLE
from kafka_assets.lab.bench.load_figures import figures_of
from kafka_assets.lab.bench.stream_load import StreamLoad, bench_load
from kafka_assets.settings import load_settings
from kafka_assets_tests.acceptance.project import Project


@pytest.mark.campaign
def test_two_streams_land_every_record_once_and_nothing_stays(
    project: Project, services_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(project.folder))
    settings, lines = load_settings(), list[str]()
    load = StreamLoad(streams=2, rate=10, seconds=8, warm_up=6, max_delay="1s")
    measured = bench_load(settings, settings.database_url, load, state=services_folder, tell=lines.append)
    assert measured.check.exact
    assert measured.caught_up is not None
    assert measured.check.produced >= 2 * 14 * 8  # a busy machine may be late for some of its beats
    assert sum(len(one.produced) for one in measured.slices) == measured.check.produced
    assert {one.stream for one in measured.slices} == {"load_0", "load_1"}
    assert all(
        made <= one.committed and one.planned <= one.committed for one in measured.slices for made in one.produced
    )
    figures = {one.name: one for one in figures_of(measured)}
    assert 0 < figures[f"{WHOLE}, median"].value <= figures[f"{WHOLE}, p95"].value <= figures[f"{WHOLE}, maximum"].value
    for role in ("spark", "kafka", "daemon", "code", "webserver", "nursery"):
        assert figures[f"CPU of {role}"].value >= 0
        assert figures[f"memory (PSS) of {role}"].value > 0
    assert figures["CPU"].value > 0
    assert [line.split()[0] for line in lines] == ["warm-up", "0.1"]
    assert not [name for name in topic_names(Connection(project.broker, {})) if name.startswith(PREFIX)]
    assert not list(project.folder.rglob(f"{PREFIX}*"))
