"""`decode/` on Spark's Python workers: it goes along with the query, so a cluster needs nothing of this package.

What a query carries is the text of its modules, compressed, under a name that says its content: workers that a query
of another version has used before get this one's beside it, and keep both.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession

_PACKAGE = "kafka_assets.decode"

Worker = Callable[[Iterator[Any]], Iterator[Any]]
"""What `mapInArrow` takes."""


def worker(does: str, schema: pa.Schema, *more: Any, module: str = "batches") -> Worker:
    """A function of a module of `decode/`, by name, as it runs on a worker, with its arguments after the batches."""
    name, packed = _packed()
    described = schema.serialize().to_pybytes()

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        # A worker knows none of this module: what is used here is imported here.
        import gc
        import importlib
        import importlib.abc
        import importlib.util
        import json
        import sys
        import zlib

        import pyarrow as pa

        if name not in sys.modules:
            texts = json.loads(zlib.decompress(packed))

            class Texts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
                def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
                    if fullname != name and not fullname.startswith(f"{name}."):
                        return None
                    return importlib.util.spec_from_loader(fullname, self, is_package=fullname == name)

                def exec_module(self, module: Any) -> None:
                    text = texts[module.__name__[len(name) + 1 :] or "__init__"]
                    exec(compile(text, f"<{module.__name__}>", "exec"), module.__dict__)

            sys.meta_path.append(Texts())
        done: Any = importlib.import_module(f"{name}.{module}")
        declared = pa.ipc.read_schema(pa.py_buffer(described))
        # Records come by the ten thousand, each an object, and the collector would look through all of them again and
        # again: a sixth of a task's time. None is in a cycle.
        gc.disable()
        try:
            yield from getattr(done, does)(batches, declared, *more)
        finally:
            gc.enable()
        # After each task Spark's worker looks for garbage in all that was ever imported: 30 ms of a core. What is there
        # after the first one stays, and nobody needs to look at it again.
        if not hasattr(done, "kept"):
            done.kept = True
            gc.collect()
            gc.freeze()

    return work


def answers(spark: SparkSession, asks: str, answer: pa.Schema, *more: Any) -> list[Row]:
    """What one worker answers to a question of `decode/reach.py`."""
    ask = worker(asks, answer, *more, module="reach")
    return spark.range(0, 1, 1, 1).mapInArrow(ask, ", ".join(f"{name} string" for name in answer.names)).collect()


@lru_cache(maxsize=1)
def _packed() -> tuple[str, bytes]:
    """The package's name on a worker, and the text of its modules."""
    texts = _texts()
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    name = f"_kafka_assets_decode_{digest[:16]}"
    there = {module: text.replace(_PACKAGE, name) for module, text in texts.items()}
    return name, zlib.compress(json.dumps(there).encode(), 9)


def _texts() -> dict[str, str]:
    """Each module's text, by its name."""
    files = [file for file in resources.files(_PACKAGE).iterdir() if file.name.endswith(".py")]
    return {file.name.removesuffix(".py"): file.read_text(encoding="utf-8") for file in files}
