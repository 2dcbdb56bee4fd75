"""What a Spark server shows of a query, in its UI and its event log, holds no password of Kafka's."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from kafka_assets.assets.resources import KafkaResource
from kafka_assets.devstack import spark as spark_service
from kafka_assets.devstack.ports import choose
from kafka_assets.devstack.processes import environment
from kafka_assets.devstack.progress import Silent
from kafka_assets.devstack.spark import SparkConnect
from kafka_assets_tests.integration import project
from kafka_assets_tests.integration.living import waited
from kafka_assets_tests.integration.project import Landing, failure_of
from kafka_assets_tests.java_options import QUICK_SPARK

PASSWORD = "S3cret" + secrets.token_hex(8)
NO_SECRET = "shown" + secrets.token_hex(8)
"""What a query says, and all can see."""
SHOWING = """
spark.ui.enabled true
spark.ui.port {ui}
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir {folder}
spark.sql.ui.retainedExecutions 1000
spark.sql.connect.ui.retainedSessions 1000
spark.sql.connect.ui.retainedStatements 1000
"""


LINK = r"/[\w/-]*(\?id=[^&]+(&amp;attempt=0)?)?"
"""A page, and not the same one in another order."""


@dataclass(frozen=True)
class Shows:
    """A Spark server with a UI and an event log."""

    remote: str
    ui: str
    folder: Path
    log: Path

    def pages(self) -> dict[str, str]:
        """Each page of the UI that a link leads to, and what programs are told."""
        found: dict[str, str] = {}
        [application] = json.loads(_got(f"{self.ui}/api/v1/applications"))
        api = f"{self.ui}/api/v1/applications/{application['id']}"
        waiting = [self.ui, f"{api}/sql?length=1000", f"{api}/stages?details=true", f"{api}/environment"]
        while waiting:
            page = waiting.pop()
            if page in found or "kill" in page:
                continue
            found[page] = _got(page)
            links = (urljoin(page, link) for link in re.findall(r"href=[\"']([^\"'#]*)", found[page]))
            waiting += [link for link in links if re.fullmatch(self.ui + LINK, link)]
        return found

    def events(self) -> str:
        """What its event log has by now."""
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def _got(page: str) -> str:
    with urllib.request.urlopen(page.replace("&amp;", "&"), timeout=60) as answer:
        return answer.read().decode(errors="replace")


@pytest.fixture
def shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shows]:
    ports = choose(("client", "ui"), remembered={}, taken=set())
    folder = tmp_path / "events"
    folder.mkdir()
    more = SHOWING.format(ui=ports["ui"], folder=folder) + QUICK_SPARK
    monkeypatch.setattr(spark_service, "DEFAULTS", spark_service.DEFAULTS + more)
    service = SparkConnect(tmp_path / "spark", token=secrets.token_urlsafe(16))
    launch = service.prepare({"client": ports["client"]}, Silent())
    log = tmp_path / "spark.log"
    with log.open("wb") as output:
        command = [str(part) for part in launch.command]
        process = subprocess.Popen(
            command, env={**environment(), **launch.env}, stdout=output, stderr=output, cwd=tmp_path
        )
    try:
        waited(lambda: process.poll() is not None or service.unready(ports) is None, SparkConnect.patience)
        assert process.poll() is None, log.read_text(errors="replace")
        yield Shows(service.url(ports), f"http://127.0.0.1:{ports['ui']}", folder, log)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def spark_remote(shows: Shows) -> str:
    return shows.remote


def test_a_password_of_kafkas_is_on_no_page_and_in_no_event(
    landing: Callable[..., Landing], shows: Shows, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"sasl.password": PASSWORD, "ssl.key.password": PASSWORD}
    monkeypatch.setattr(project, "KafkaResource", partial(KafkaResource, properties=known))

    def stop(batches: Any) -> Any:
        for _ in batches:
            raise ValueError("stopped on purpose")
        yield from ()

    as_they_come = landing()
    transformed = landing(transform=lambda records: records.filter(f"note <> '{NO_SECRET}'"))
    failing = landing(transform=lambda records: records.mapInArrow(stop, records.schema))
    for stream in (as_they_come, transformed, failing):
        stream.topic()
        stream.produce_ids(0, 5)
    for stream in (as_they_come, transformed):
        stream.land()
    [request] = failing.tick().requests
    assert "stopped on purpose" in failure_of(failing.run(request))
    gone = replace(as_they_come, broker="127.0.0.1:1")
    as_they_come.produce_ids(5, 6)
    [request] = as_they_come.tick().requests
    gone.run(request)
    pages, events = shows.pages(), shows.events()
    for seen in ("/SQL/execution", "/connect/session"):
        assert any(NO_SECRET in text for page, text in pages.items() if seen in page), seen
    assert NO_SECRET in events and "stopped on purpose" in events
    everything = {**pages, "events": events, "log": shows.log.read_text(errors="replace")}
    assert [name for name, text in everything.items() if PASSWORD in text] == []
