"""The wheel and the source archive carry the schema, and make a ledger away from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kafka_assets.ledger.rendering import DRIVERS

REPOSITORY = Path(__file__).parents[2]
CARRIED = {
    *(f"kafka_assets/sql/{name}.sql" for name in (*DRIVERS, "queries")),
    *(f"kafka_assets/ledger/migrations/versions/0001/{name}.sql" for name in DRIVERS),
    *(f"kafka_assets/ledger/migrations/versions/0002/{name}.sql" for name in DRIVERS),
    *(f"kafka_assets/ledger/migrations/versions/0003/{name}.sql" for name in DRIVERS),
    "kafka_assets/ledger/migrations/env.py",
    "kafka_assets/ledger/migrations/versions/revision_0001.py",
    "kafka_assets/ledger/migrations/versions/revision_0002.py",
    "kafka_assets/ledger/migrations/versions/revision_0003.py",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and a source archive, built from a copy: building leaves traces where it happens."""
    folder = tmp_path_factory.mktemp("built")
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, names):
        source, copy = REPOSITORY / name, folder / "copy" / name
        if source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "copy"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return folder / "dist"


def test_the_wheel_carries_sql_and_migrations(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert set(zipfile.ZipFile(wheel).namelist()) >= CARRIED


def test_the_source_archive_carries_sql_and_migrations(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert names >= CARRIED


def test_the_wheel_makes_a_ledger_away_from_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kafka_assets.ledger import engine, schema;"
        "assert schema.__file__.startswith(sys.argv[1]); schema.ensure_schema(engine.make_engine('sqlite:///x.db'));"
        "schema.require_schema(engine.make_engine('sqlite:///x.db'))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "installed"], cwd=tmp_path, check=True)
