"""A schema registry: Apicurio, which speaks Confluent's API. It keeps its schemas in memory, until it stops."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.devstack.unpack import unpacked, untar

API = "/apis/ccompat/v7"


class Registry(Service):
    """The project's schema registry."""

    artifacts = ("registry",)

    def __init__(self, state: Path) -> None:
        super().__init__(state, "registry")

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        self.folder.mkdir(parents=True, exist_ok=True)
        (artifact,) = artifacts.group("registry")
        (archive,) = fetch.fetch([artifact], progress=progress)
        place = artifacts.cache_folder() / "unpacked" / f"registry-{artifact.version}"
        home = unpacked(place, lambda folder: untar(archive, folder), size=2 * artifact.size, progress=progress)
        (runner,) = home.rglob(f"apicurio-registry-app-{artifact.version}-runner.jar")
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
        listen = f"-Dquarkus.http.port={ports['client']}"
        return Launch([find_java(), *options, listen, "-jar", runner], folder=self.folder)

    def unready(self, ports: Mapping[str, int]) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", ports["client"], timeout=3)
        try:
            connection.request("GET", f"{API}/subjects")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()
        return None if status == http.client.OK else f"it answered with status {status}"

    def url(self, ports: Mapping[str, int]) -> str:
        return f"http://127.0.0.1:{ports['client']}{API}"
