"""The address of a Spark, taken apart and shown."""

from __future__ import annotations

import pytest

from kafka_assets.endpoints import connect_endpoint, endpoint_of, shown
from kafka_assets.errors import SettingsError


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("sc://localhost", "localhost:15002"),
        ("sc://localhost:2/;token=x", "localhost:2"),
        ("sc://[::1]:15002", "[::1]:15002"),
        ("sc://[2001:db8::7]/;use_ssl=true", "[2001:db8::7]:15002"),
        ("spark://one:7077,two:7077", "one:7077"),
        ("spark://one", "one:7077"),
        ("local[2]", None),
        ("yarn", None),
        ("SC://localhost:2", None),
        ("sc://localhost:much", None),
    ],
)
def test_where_a_spark_listens(address: str, place: str | None) -> None:
    found = endpoint_of(address)
    assert place == (str(found) if found else None)


@pytest.mark.parametrize("host", ["localhost", "[::1]", "127.0.0.1", "127.8.9.1"])
def test_what_is_on_this_machine_is_known(host: str) -> None:
    assert connect_endpoint(f"sc://{host}:1").is_here
    assert not connect_endpoint("sc://spark.example.com").is_here
    assert not connect_endpoint("sc://127.example.com").is_here


@pytest.mark.parametrize("address", ["https://h/;token=hunter2", "sc:h/;token=hunter2", "SC://h/;token=hunter2", "h"])
def test_what_is_no_endpoint_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(SettingsError) as refused:
        connect_endpoint(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "sc://h:1/;token=hunter2",
        "https://h/;token=hunter2",
        "sc:h/;token=hunter2",
        "SC://h;token=hunter2",
        "sc://h/;Token=hunter2;use_ssl=true",
        "sc://h/;x-api-key=hunter2",
        "sc://h/;session_id=hunter2",
        "sc://me:hunter2@h:1",
        "spark://me:hunter2@h:1",
    ],
)
def test_no_secret_of_an_address_is_shown(address: str) -> None:
    assert "hunter2" not in shown(address)
    assert "***" in shown(address)


@pytest.mark.parametrize("address", ["local[*]", "local-cluster[2,1,1024]", "yarn", "spark://one:7077,two:7077"])
def test_what_has_no_secret_is_shown_whole(address: str) -> None:
    assert shown(address) == address
    assert shown("sc://h:1/;use_ssl=true") == "sc://h:1/;use_ssl=true"
