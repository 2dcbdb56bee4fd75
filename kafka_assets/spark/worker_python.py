"""The Python of Spark's workers: whether what a query carries can run there.

Pickled functions run only under the minor version that pickled them; reading needs confluent-kafka there, and decoding
pyarrow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException, PySparkImportError
from pyspark.sql import SparkSession

from kafka_assets.errors import WorkersUnfit
from kafka_assets.spark.project_modules import is_the_projects
from kafka_assets.spark.traveling import answers

LEAST = {"pyarrow": (18,), "confluent-kafka": (2, 16)}
"""As in pyproject.toml: what reads and decodes is the same there and here."""

_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*?different version: ([\d.]+) than that in driver: ([\d.]+)", re.S
)
_MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'", re.M)
_PACKAGE = re.compile(r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] ([^\n]+)")
_PACKAGES = {"confluent_kafka": "confluent-kafka"}
"""What is installed under another name than it is imported by."""
_VERSIONS = pa.schema([(one, pa.string()) for one in ("python", "pyarrow", "numpy", "confluent_kafka")])
_WHERE = "spark.pyspark.python on the server and the executors; of a classic session PYSPARK_PYTHON here"


@dataclass(frozen=True)
class WorkerPython:
    """What a worker has."""

    python: str
    pyarrow: str
    numpy: str
    confluent_kafka: str

    def __str__(self) -> str:
        packages = f"pyarrow {self.pyarrow}, numpy {self.numpy}, confluent-kafka {self.confluent_kafka}"
        return f"Python {self.python}, {packages}"

    def require(self, least: Mapping[str, tuple[int, ...]] = LEAST) -> None:
        """Raises `WorkersUnfit` where a package is older than that."""
        for name, version in least.items():
            found = getattr(self, name.replace("-", "_"))
            if tuple(map(int, re.findall(r"\d+", found)[: len(version)])) < version:
                needed = ".".join(map(str, version))
                raise WorkersUnfit(
                    f"Spark's workers have {name} {found}",
                    why=f"records are read and decoded there, and that needs {name} {needed} or later",
                    cure=f"install {name}>={needed} in the Python of the workers, or name another Python: {_WHERE}",
                )


def require_fit(spark: SparkSession) -> WorkerPython:
    """Ask one worker what it has; raises `WorkersUnfit` where records could not be read and decoded there.

    Not guaranteed: that all workers have the same. One that has not fails its query in the same words.
    """
    try:
        [row] = answers(spark, "versions", _VERSIONS)
    except PySparkException as error:
        if (known := unfit(error)) is not None:
            raise known from error
        raise
    found = WorkerPython(**row.asDict())
    found.require()
    return found


def unfit(error: PySparkException) -> WorkersUnfit | None:
    """What it says of the workers' Python, in words; None where it says nothing of that."""
    if isinstance(error, PySparkImportError):
        return None  # this process lacks it
    said = str(error)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if versions := _OTHER_PYTHON.search(said):
        return WorkersUnfit(
            f"Spark's workers run Python {versions[1]}, and this process {versions[2]}",
            why="functions that one version sends no other one can load",
            cure=f"give the workers a Python {here}, or run kafka-assets under Python {versions[1]}: {_WHERE}",
        )
    if package := _PACKAGE.search(said):
        return WorkersUnfit(
            "the Python of Spark's workers lacks a package, or has too old a one",
            why=package[1].strip(),
            cure=f"install it in the Python of the workers, or name another Python: {_WHERE}",
        )
    missing = _MISSING.search(said)
    if missing is None:
        return None
    name = missing[1]
    if name.partition(".")[0] in ("kafka_assets", "dagster") or is_the_projects(name):
        return WorkersUnfit(
            f"a function that Spark's workers run imports {name}, which they do not have",
            why="a file that imports kafka_assets or Dagster declares assets, and is not sent to them: of it they have "
            "the functions that they run, and what those name",
            cure="write what they need in a module beside that imports neither",
        )
    return WorkersUnfit(
        f"Spark's workers have no module {name}",
        why="what runs there imports it, and of libraries nothing is sent along",
        cure=f"install {_PACKAGES.get(name, 'it')} in the Python of the workers, or name another Python: {_WHERE}",
    )
