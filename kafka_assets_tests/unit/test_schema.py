"""The ledger is made once, is what is written in sql/, and is refused where it is not this code's."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text, update

from kafka_assets.errors import LedgerMissing, UsageError
from kafka_assets.ledger import schema
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import make_engine, read, write
from kafka_assets.ledger.rendering import DRIVERS, split
from kafka_assets.ledger.views import VIEWS
from kafka_assets_tests.ledgers import plan

REPOSITORY = Path(__file__).parents[2]
INITIALISE = (
    "import sys; from kafka_assets.ledger import engine, schema; schema.ensure_schema(engine.make_engine(sys.argv[1]))"
)


@pytest.fixture
def nothing(tmp_path: Path) -> Engine:
    return make_engine(f"sqlite:///{tmp_path / 'new.db'}")


def objects(engine: Engine) -> list[tuple[str, ...]]:
    with read(engine) as connection:
        return [
            tuple(row)
            for row in connection.exec_driver_sql(
                "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
            )
        ]


def test_the_ledger_is_made_where_there_is_none(nothing: Engine) -> None:
    assert schema.current_revision(nothing) is None
    schema.ensure_schema(nothing)
    assert schema.current_revision(nothing) == schema.REVISION


def test_making_it_twice_changes_nothing(nothing: Engine) -> None:
    assert schema.upgrade(nothing) is None
    before = objects(nothing)
    schema.ensure_schema(nothing)
    assert schema.upgrade(nothing) == schema.REVISION
    assert objects(nothing) == before


@pytest.mark.slow
def test_processes_that_make_it_at_once_make_it_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    started = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", INITIALISE, url], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    assert schema.current_revision(make_engine(url)) == schema.REVISION


def test_an_initialisation_that_fails_leaves_nothing(nothing: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("kafka_assets.ledger.rendering.split", lambda sql: [*split(sql)[:5], "CREATE NONSENSE"])
        with pytest.raises(Exception, match="NONSENSE"):
            schema.upgrade(nothing)
    assert objects(nothing) == []
    schema.ensure_schema(nothing)


@pytest.mark.parametrize(("found", "cure"), [("0000", "kafka-assets db upgrade"), ("9999", "install")])
def test_a_ledger_of_another_version_is_refused_with_a_cure(engine: Engine, found: str, cure: str) -> None:
    with write(engine) as connection:
        connection.execute(update(t.ledger_version).values(version_num=found))
    for ask in (schema.ensure_schema, schema.require_schema):
        with pytest.raises(LedgerMissing) as caught:
            ask(engine)
        assert cure in caught.value.cure


def test_a_newer_ledger_is_not_downgraded(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(update(t.ledger_version).values(version_num="9999"))
    with pytest.raises(LedgerMissing):
        schema.upgrade(engine)
    assert schema.current_revision(engine) == "9999"


def test_a_database_without_a_ledger_is_refused_by_who_only_looks(nothing: Engine) -> None:
    with pytest.raises(LedgerMissing, match="has no ledger"):
        schema.require_schema(nothing)


def test_a_stranger_s_table_is_never_taken_for_the_ledger_s(nothing: Engine) -> None:
    with write(nothing) as connection:
        connection.execute(text("CREATE TABLE kafka_source (mine INTEGER)"))
    with pytest.raises(LedgerMissing, match="kafka_source"):
        schema.ensure_schema(nothing)
    assert [name for _, name, _, _ in objects(nothing)] == ["kafka_source"]


def test_rendered_is_migrated(engine: Engine, nothing: Engine) -> None:
    with write(nothing) as connection:
        for statement in split((REPOSITORY / "sql" / "sqlite.sql").read_text(encoding="utf-8")):
            connection.exec_driver_sql(statement)
    assert objects(nothing) == objects(engine)
    assert schema.current_revision(nothing) == schema.REVISION


def test_what_is_in_quarantine_stays_when_the_ledger_is_brought_to_this_revision(
    nothing: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0002")
        schema.upgrade(nothing)
    plan(nothing, slices=[(0, 5)])
    with write(nothing) as connection:
        connection.exec_driver_sql(
            "INSERT INTO kafka_quarantine SELECT 'a', 1, 0, 3, id, 'why', x'01', x'02', '[]', 5, '2026-01-01'"
            " FROM kafka_slice"
        )
    assert schema.upgrade(nothing) == "0002"
    with read(nothing) as connection:
        [row] = connection.exec_driver_sql("SELECT * FROM kafka_quarantine").all()
    kept = ("a", 1, 0, 3, row.slice_id, "why", b"\1", b"\2", "[]", 5, "2026-01-01")
    assert tuple(row) == (*kept, None, None, None, None)


@pytest.mark.parametrize("dialect", DRIVERS)
def test_the_files_in_sql_are_what_is_rendered(dialect: str) -> None:
    written = (REPOSITORY / "sql" / f"{dialect}.sql").read_text(encoding="utf-8")
    assert written == schema.render(dialect), "kafka-assets db sql --dialect … > sql/….sql"


def test_the_code_s_revision_is_the_last_migration() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.REVISION]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True), "older and newer are told apart by their order"


def test_the_tables_in_code_are_the_tables_in_the_database(engine: Engine) -> None:
    inspector = inspect(engine)
    assert set(inspector.get_table_names()) == set(t.metadata.tables)
    assert set(inspector.get_view_names()) == {view.name for view in VIEWS}
    assert set(t.TABLES) | {t.ledger_version} == set(t.metadata.tables.values())
    for table in t.metadata.tables.values():
        assert [column["name"] for column in inspector.get_columns(table.name)] == list(table.columns.keys())


def test_the_columns_of_a_view_in_code_are_those_in_the_database(engine: Engine) -> None:
    for view in VIEWS:
        assert [column["name"] for column in inspect(engine).get_columns(view.name)] == list(view.table.columns.keys())


def test_everything_says_what_it_is_for_or_what_it_prevents() -> None:
    for table in t.metadata.tables.values():
        assert table.comment
        for column in table.columns:
            assert column.comment, f"{table.name}.{column.name}"
        for constraint in table.constraints:
            assert constraint.name
            assert constraint.comment, constraint.name
        for index in table.indexes:
            assert index.info["comment"]


@pytest.mark.parametrize("dialect", DRIVERS)
def test_every_comment_is_in_the_sql(dialect: str) -> None:
    sql = schema.render(dialect).replace("''", "'").replace("%%", "%")
    for table in t.metadata.tables.values():
        parts = [table, *table.columns, *table.constraints]
        for said in [*(part.comment for part in parts), *(index.info["comment"] for index in table.indexes)]:
            assert said is not None
            assert said in sql
    for view in VIEWS:
        assert view.comment in sql


def test_there_is_no_sql_for_an_unknown_database() -> None:
    with pytest.raises(UsageError):
        schema.render("oracle")


def test_migrating_configures_no_logging(nothing: Engine, caplog: pytest.LogCaptureFixture) -> None:
    import logging

    before = (list(logging.root.handlers), logging.root.level)
    schema.ensure_schema(nothing)
    assert (list(logging.root.handlers), logging.root.level) == before


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import typer; from kafka_assets.cli.database import register; app = typer.Typer(); register(app);"
        "app.callback()(lambda: None); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "db", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    first = command_line("init", "--url", url)
    assert first.returncode == 0, first.stderr
    assert "made the ledger" in first.stdout
    assert "nothing to do" in command_line("init", "--url", url).stdout
    again = command_line("upgrade", "--url", url, "--json")
    assert json.loads(again.stdout)["before"] == json.loads(again.stdout)["revision"] == schema.REVISION


@pytest.mark.slow
def test_the_schema_is_printed_for_whoever_makes_it_by_hand() -> None:
    assert command_line("sql", "--dialect", "mariadb").stdout == schema.render("mariadb")


def test_two_threads_make_two_ledgers(tmp_path: Path) -> None:
    engines = [make_engine(f"sqlite:///{tmp_path / f'{number}.db'}") for number in range(4)]
    with ThreadPoolExecutor(len(engines)) as threads:
        list(threads.map(schema.ensure_schema, engines))
    assert {schema.current_revision(engine) for engine in engines} == {schema.REVISION}
