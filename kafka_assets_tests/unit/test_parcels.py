"""What a stream's file hands to Spark arrives on a worker that has nothing of the project, nor of this package."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StringType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from kafka_assets import load_assets
from kafka_assets.assets.folder import broken_in
from kafka_assets.errors import StreamError
from kafka_assets.spark import project_modules
from kafka_assets.spark.parcels import packed

WORKER = """
import importlib.abc, pickle, sys

class NoneOfOurs(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka_assets", "dagster"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoneOfOurs())
for parcel in pickle.loads(sys.stdin.buffer.read()):
    function = pickle.loads(parcel)
    print(function("x"))
"""
STREAM = """
import functools
import threading
from pyspark.sql import functions as F
from kafka_assets import kafka_asset

{top}

@kafka_asset(topic="{name}", target="{name}", schema="id BIGINT")
def {name}(records):
    return records
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Writes files of a project and loads its streams; gives a module of them."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(files: dict[str, str], module: str = "orders") -> Any:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        declared = load_assets(tmp_path / "defs")
        assert not broken_in(declared), [str(one.error) for one in broken_in(declared)]
        return sys.modules[f"kafka_assets_streams.{module}"]

    yield write
    for name in set(sys.modules) - before:
        if project_modules.is_the_projects(name):
            del sys.modules[name]


def on_a_worker(*parcels: bytes, folder: Path) -> list[str]:
    """What these functions give for "x" in one worker, one after the other."""
    program = f"import sys\nsys.path.append({str(Path(pa.__file__).parents[1])!r})\n{WORKER}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=cloudpickle.dumps(parcels), capture_output=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


def stream(top: str, name: str = "orders") -> str:
    return STREAM.format(top=textwrap.dedent(top), name=name)


FORMS: dict[str, dict[str, str]] = {
    "a function of the file, with what it names": {
        "defs/orders.py": stream("MARK = '!'\ndef mark(v): return v + MARK\ndef clean(v): return mark(v.upper())"),
    },
    "a helper beside it": {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "def clean(v): return v.upper() + '!'",
    },
    "a helper's module": {
        "defs/orders.py": stream("from . import helper\ndef clean(v): return helper.clean(v)"),
        "defs/helper.py": "def clean(v): return v.upper() + '!'",
    },
    "a helper of a helper": {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "from .marks import mark\ndef clean(v): return mark(v.upper())",
        "defs/marks.py": "def mark(v): return v + '!'",
    },
    "helpers that import each other": {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "from . import marks\nMARK = '!'\ndef clean(v): return marks.mark(v.upper())",
        "defs/marks.py": "from . import helper\ndef mark(v): return v + helper.MARK",
    },
    "an import in the function": {
        "defs/orders.py": stream("def clean(v):\n    from .helper import clean as done\n    return done(v)"),
        "defs/helper.py": "def clean(v):\n    import shouts\n    return shouts.loud(v)",
        "shouts.py": "def loud(v): return v.upper() + '!'",
    },
    "a package of the project": {
        "defs/orders.py": stream("from shop.text.cleaning import clean"),
        "shop/__init__.py": "import dagster as dg",
        "shop/text/__init__.py": "MARK = '!'",
        "shop/text/cleaning.py": "from . import MARK\nfrom ..case import upper\ndef clean(v): return upper(v) + MARK",
        "shop/case.py": "def upper(v): return v.upper()",
    },
    "a sub-folder of the streams": {
        "defs/orders.py": stream("from .shop.helper import clean"),
        "defs/shop/helper.py": "from ..marks import mark\ndef clean(v): return mark(v.upper())",
        "defs/marks.py": "def mark(v): return v + '!'",
    },
    "another stream's function": {
        "defs/orders.py": stream("from .others import clean"),
        "defs/others.py": stream("from .helper import mark\ndef clean(v): return mark(v.upper())", "others"),
        "defs/helper.py": "def mark(v): return v + '!'",
    },
    "a class": {
        "defs/orders.py": stream(
            "class Base:\n    def mark(self, v): return v + '!'\n"
            "class Cleaner(Base):\n    def __call__(self, v): return super().mark(v.upper())\nclean = Cleaner()"
        ),
    },
    "a cache at the top": {
        "defs/orders.py": stream(
            "from .helper import mark\n@functools.lru_cache(maxsize=2)\ndef upper(v): return v.upper()\n"
            "def clean(v): return mark(upper(v))"
        ),
        "defs/helper.py": "import functools\n@functools.cache\ndef mark(v): return v + '!'",
    },
    "a lock at the top of a helper": {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "import threading\nlock = threading.Lock()\ndef clean(v):\n    with lock:\n"
        "        return v.upper() + '!'",
    },
    "what only a type checker imports": {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dagster\n"
        "def clean(v): return v.upper() + '!'",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_each_form_arrives(form: str, project: Callable[..., Any], tmp_path: Path) -> None:
    parcel = packed(project(FORMS[form]).clean)
    assert on_a_worker(parcel, parcel, folder=tmp_path.parent) == ["X!", "X!"]
    assert not cloudpickle.list_registry_pickle_by_value()


def test_two_files_of_one_name_are_two(project: Callable[..., Any], tmp_path: Path) -> None:
    files = {
        "defs/a/orders.py": stream("from .helper import mark\ndef clean(v): return mark(v) + 'a'", "a"),
        "defs/b/orders.py": stream("from .helper import mark\ndef clean(v): return mark(v) + 'b'", "b"),
        "defs/a/helper.py": "def mark(v): return v + '1'",
        "defs/b/helper.py": "def mark(v): return v + '2'",
    }
    first = packed(project(files, "a.orders").clean)
    second = packed(sys.modules["kafka_assets_streams.b.orders"].clean)
    assert on_a_worker(first, second, first, folder=tmp_path.parent) == ["x1a", "x2b", "x1a"]


def test_a_worker_that_has_served_an_older_text_takes_the_newer(project: Callable[..., Any], tmp_path: Path) -> None:
    files = {
        "defs/orders.py": stream("from .helper import clean"),
        "defs/helper.py": "from .marks import MARK\ndef clean(v): return v + MARK",
        "defs/marks.py": "MARK = '1'",
    }
    first = packed(project(files).clean)
    second = packed(project({"defs/marks.py": "MARK = 'two'"}).clean)
    assert on_a_worker(first, second, folder=tmp_path.parent) == ["x1", "xtwo"]


def test_texts_of_two_functions_of_one_query_do_not_push_each_other_out(
    project: Callable[..., Any], tmp_path: Path
) -> None:
    files = {
        "defs/orders.py": stream("from . import one, two\n"),
        "defs/one.py": "def clean(v):\n    from . import three\n    return v + three.MARK",
        "defs/two.py": "def clean(v): return v + '2'",
        "defs/three.py": "MARK = '3'",
    }
    module = project(files)
    parcels = [packed(one.clean) for one in (module.one, module.two)]
    assert on_a_worker(*parcels, *parcels, folder=tmp_path.parent) == ["x3", "x2", "x3", "x2"]


def test_what_cannot_travel_is_named_with_its_file_and_the_cure(project: Callable[..., Any], tmp_path: Path) -> None:
    top = "LOCK = threading.Lock()\ndef held(v):\n    with LOCK:\n        return v\ndef clean(v): return held(v)"
    clean = project({"defs/orders.py": stream(top)}).clean
    with pytest.raises(StreamError) as raised:
        CloudPickleSerializer().dumps((clean, None))
    assert raised.value.what == f"{tmp_path}/defs/orders.py: held cannot go to Spark's workers"
    assert raised.value.why == (
        "it uses LOCK, and an object of thread.lock cannot be sent: cannot pickle '_thread.lock' object"
    )
    assert "make LOCK inside the function; or write both in a module beside" in raised.value.cure
    assert not cloudpickle.list_registry_pickle_by_value()


def test_what_a_nested_function_holds_is_named_too(project: Callable[..., Any]) -> None:
    held = "    lock = threading.Lock()\n    def clean(v):\n        with lock:\n            return v\n    return clean"
    top = f"def made():\n{held}\nclean = made()"
    with pytest.raises(StreamError, match=r"it uses lock, and an object of thread\.lock"):
        packed(project({"defs/orders.py": stream(top)}).clean)


def test_what_is_none_of_the_projects_travels_as_ever() -> None:
    assert packed(textwrap.dedent) == cloudpickle.dumps(textwrap.dedent)
    assert not project_modules.is_the_projects("pyarrow.compute")
    assert not project_modules.is_the_projects("json.decoder")
    assert not project_modules.is_the_projects("kafka_assets.streams")
    assert project_modules.is_the_projects(__name__)
    assert not project_modules.is_importable_there(__name__)


def test_a_package_with_an_assets_function_is_the_projects_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    (installed / "sold").mkdir(parents=True)
    (installed / "sold" / "__init__.py").write_text("def of_it(records): return records")
    monkeypatch.syspath_prepend(installed)
    assert not project_modules.is_the_projects("sold")
    from sold import of_it  # type: ignore[import-not-found]

    project_modules.claim(of_it)
    assert project_modules.is_the_projects("sold")


@pytest.mark.parametrize("made", ["F.udf", "F.pandas_udf"])
@pytest.mark.parametrize("connect", [False, True])
def test_a_udf_at_the_top_of_a_file_needs_no_session(
    project: Callable[..., Any], made: str, connect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    if connect:  # as in a process that has had a session of Spark Connect
        monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    top = f"import pandas as pd\n@{made}('string')\ndef clean(v: pd.Series) -> pd.Series:\n    return v\n"
    made_there: Any = project({"defs/orders.py": stream(top)}).clean
    assert isinstance(made_there._unwrapped, UserDefinedFunction) != connect
    assert made_there.func("x") == "x"
    assert made_there.returnType in ("string", StringType())  # another test's session may read it


def test_an_ordinary_udf_with_annotations_is_made_without_a_word(project: Callable[..., Any]) -> None:
    top = """
from decimal import Decimal

@F.udf("bigint")
def cents(amount: Decimal) -> int:
    return int(amount * 100)
"""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        orders = project({"defs/orders.py": STREAM.format(name="orders", top=top)})
    assert [str(one.message) for one in said if "eval type" in str(one.message)] == []
    assert orders.cents.evalType == PythonEvalType.SQL_BATCHED_UDF
