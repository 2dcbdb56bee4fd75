"""What is on this machine is asked for directly, whatever proxy the environment names: it would see every secret."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kafka_assets.devstack.dagster import graphql
from kafka_assets.errors import SparkUnavailable
from kafka_assets.spark.session import open_session


class Webserver(BaseHTTPRequestHandler):
    """Answers as Dagster's does."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"here": True}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """It says nothing."""


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy is told that the environment names for everything."""
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                with proxy.accept()[0] as caller:
                    heard.append(caller.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        threading.Thread(target=listen, daemon=True).start()
        yield heard
        proxy.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_local_spark_is_asked_without_it(overheard: list[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    with pytest.raises(SparkUnavailable):
        open_session({"spark.remote": f"sc://localhost:{free}/;token=hunter2"}, patience=timedelta(seconds=1))
    assert overheard == []


def test_a_local_dagster_is_asked_without_it(overheard: list[bytes]) -> None:
    with HTTPServer(("127.0.0.1", 0), Webserver) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert graphql(f"http://127.0.0.1:{server.server_port}", "{ here }") == {"here": True}
        server.shutdown()
    assert overheard == []


@pytest.mark.slow
def test_another_spark_is_asked_through_it(overheard: list[bytes]) -> None:
    with pytest.raises(SparkUnavailable):
        open_session({"spark.remote": "sc://spark.example.com:15002/;token=x"}, patience=timedelta(seconds=1))
    assert overheard[0].startswith(b"CONNECT spark.example.com:15002")
