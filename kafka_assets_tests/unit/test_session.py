"""Opening a session of a Spark Connect server that is not there, or is no such server."""

from __future__ import annotations

import socket
import traceback
from datetime import timedelta

import pytest

from kafka_assets.errors import SettingsError, SparkUnavailable
from kafka_assets.spark.session import open_session


@pytest.mark.slow
def test_a_server_that_was_never_there_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    told: list[str] = []
    with pytest.raises(SparkUnavailable, match=f"localhost:{free}") as found:
        open_session(
            {"spark.remote": f"sc://localhost:{free}/;token=x"}, patience=timedelta(seconds=2), say=told.append
        )
    assert "kafka-assets up" in found.value.cure
    assert any(f"localhost:{free} does not answer" in one for one in told)


@pytest.mark.slow
def test_a_server_that_listens_and_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"sc://localhost:{mute.getsockname()[1]}/;token=x"
        with pytest.raises(SparkUnavailable):
            open_session({"spark.remote": url}, patience=timedelta(seconds=3))


@pytest.mark.parametrize("address", ["sc://h/;token=hunter2;hunter2", "sc://h/hunter2", "https://hunter2"])
def test_an_address_that_cannot_be_read_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(SettingsError) as refused:
        open_session({"spark.remote": address})
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
