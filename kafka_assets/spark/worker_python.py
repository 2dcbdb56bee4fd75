"""The Python of Spark's workers: whether what a query carries can run there.

Pickled functions run only under the minor version that pickled them, and the decoder needs pyarrow there.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException, PySparkImportError
from pyspark.sql import SparkSession

from kafka_assets.errors import WorkersUnfit
from kafka_assets.spark.project_modules import is_the_projects

LEAST_PYARROW = (18,)
"""As in pyproject.toml; the decoder is the same there and here."""

_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*?different version: ([\d.]+) than that in driver: ([\d.]+)", re.S
)
_MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'", re.M)
_PACKAGE = re.compile(r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] ([^\n]+)")
_WHERE = "spark.pyspark.python on the server and the executors; of a classic session PYSPARK_PYTHON here"


@dataclass(frozen=True)
class WorkerPython:
    """What a worker has."""

    python: str
    pyarrow: str
    numpy: str

    def __str__(self) -> str:
        return f"Python {self.python}, pyarrow {self.pyarrow}, numpy {self.numpy}"


def require_fit(spark: SparkSession) -> WorkerPython:
    """Ask one worker what it has; raises `WorkersUnfit` where the decoder would not run there.

    Not guaranteed: that all workers have the same. One that has not fails its query in the same words.
    """
    try:
        [row] = _asked(spark).collect()
    except PySparkException as error:
        if (known := unfit(error)) is not None:
            raise known from error
        raise
    found = WorkerPython(row.python, row.pyarrow, row.numpy)
    if tuple(int(part) for part in re.findall(r"\d+", found.pyarrow)[:1]) < LEAST_PYARROW:
        least = ".".join(map(str, LEAST_PYARROW))
        raise WorkersUnfit(
            f"Spark's workers have pyarrow {found.pyarrow}",
            why=f"records are decoded there, and that needs pyarrow {least} or later",
            cure=f"install pyarrow>={least} in the Python of the workers, or name another Python: {_WHERE}",
        )
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
        cure=f"install it in the Python of the workers, or name another Python: {_WHERE}",
    )


def _asked(spark: SparkSession) -> Any:
    def report(batches: Any) -> Any:
        import sys

        import numpy
        import pyarrow as pa

        for _ in batches:
            version = ".".join(map(str, sys.version_info[:3]))
            found = {"python": [version], "pyarrow": [pa.__version__], "numpy": [numpy.__version__]}
            yield pa.RecordBatch.from_pydict(found)

    return spark.range(0, 1, 1, 1).mapInArrow(report, "python string, pyarrow string, numpy string")
