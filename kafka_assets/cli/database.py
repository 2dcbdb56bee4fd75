"""`kafka-assets db`: the ledger's schema in the database."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kafka_assets.cli.console import out, print_json

Url = Annotated[str | None, typer.Option(help="The database, as a SQLAlchemy URL; else as the settings have it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

db = typer.Typer(help="The ledger's schema.", no_args_is_help=True)


class Database(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    MYSQL = "mysql"


def register(app: typer.Typer) -> None:
    app.add_typer(db, name="db")


@db.command()
def init(url: Url = None, as_json: AsJson = False) -> None:
    """Make the ledger where there is none; does nothing where it stands."""
    _bring_up_to_date(url, as_json=as_json, only_when_empty=True)


@db.command()
def upgrade(url: Url = None, as_json: AsJson = False) -> None:
    """Bring the ledger to this version's revision; makes it where there is none."""
    _bring_up_to_date(url, as_json=as_json, only_when_empty=False)


@db.command()
def sql(
    dialect: Annotated[
        Database | None, typer.Option(help="Whose SQL; else that of the database in the settings.")
    ] = None,
) -> None:
    """Print the ledger's whole schema as SQL."""
    from kafka_assets.ledger.engine import parse_url
    from kafka_assets.ledger.schema import render

    name = dialect.value if dialect else parse_url(_url(None)).get_backend_name()
    print(render(name), end="")


def _bring_up_to_date(url: str | None, *, as_json: bool, only_when_empty: bool) -> None:
    from kafka_assets.ledger import schema
    from kafka_assets.ledger.engine import make_engine, shown

    engine = make_engine(_url(url))
    before = schema.current_revision(engine)
    if before is None or not only_when_empty:
        before = schema.upgrade(engine)
    schema.require_schema(engine)
    where = shown(engine.url)
    if as_json:
        print_json({"database": where, "before": before, "revision": schema.REVISION})
    elif before is None:
        out.print(f"made the ledger in {where} (revision {schema.REVISION})", highlight=False, markup=False)
    elif before == schema.REVISION:
        out.print(f"the ledger in {where} stands at revision {before}: nothing to do", highlight=False, markup=False)
    else:
        out.print(f"brought the ledger in {where} from {before} to {schema.REVISION}", highlight=False, markup=False)


def _url(given: str | None) -> str:
    from kafka_assets.settings import load_settings

    return given or load_settings().database_url
