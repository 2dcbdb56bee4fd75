"""`bench publish` on real servers: its scratch database is gone when it ends."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets.audit.bench import bench_publish
from kafka_assets.audit.scratch import PREFIX


@pytest.mark.campaign
def test_a_server_is_measured_and_left_as_it_was(server: Engine) -> None:
    figures = bench_publish(server.url.render_as_string(hide_password=False), records=1000)
    assert [figure.unit for figure in figures] == ["rows/s", "rows/s"]
    with server.connect() as connection:
        listed = "pg_database" if server.dialect.name == "postgresql" else "information_schema.schemata"
        column = "datname" if server.dialect.name == "postgresql" else "schema_name"
        names = connection.exec_driver_sql(f"SELECT {column} FROM {listed}").scalars()
        assert [name for name in names if name.startswith(PREFIX)] == []
