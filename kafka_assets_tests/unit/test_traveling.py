"""The decoder goes along with a query: a worker that has nothing of this package gives the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from kafka_assets.decode import batches, packets
from kafka_assets.decode.passage import HEADER_TYPE, rows_schema
from kafka_assets.schema import declared, landed_schema
from kafka_assets.spark import traveling
from kafka_assets.spark.traveling import worker

SCHEMA = declared("id BIGINT NOT NULL, tags ARRAY<STRING>, m MAP<STRING,INT>", "json")
GIVEN = pa.record_batch(
    {
        "value": pa.array([b'{"id":1,"tags":["a"],"m":{"x":1}}', None, b'{"id":2.0}', b'{"id":"2"}'], pa.binary()),
        "key": pa.array([b"k", b"7", None, None], pa.binary()),
        "headers": pa.array([[]] * 4, HEADER_TYPE),
        "partition": pa.array([0] * 4, pa.int32()),
        "offset": pa.array([3, 4, 5, 6], pa.int64()),
        "timestampType": pa.array([0] * 4, pa.int32()),
        "timestamp": pa.array([1, 2, None, 4], pa.int64()),
    }
)
ASKED = (None, "json", ["kafka_offset"], [], [(0, 0, 10)], (["id"], None, SCHEMA), 1 << 20)
WORKER = """
import gc, pickle, sys
import pyarrow as pa

sys.path = [one for one in sys.path if not __import__("os").path.exists(one + "/kafka_assets")]
try:
    import kafka_assets
except ImportError:
    pass
else:
    raise SystemExit("this is no worker of a cluster")
work, batch = pickle.loads(sys.stdin.buffer.read())
made = list(work(iter([batch])))
kept = gc.get_freeze_count()
assert kept, "else Spark looks through all that was imported after each task"
again = list(work(iter([batch])))
assert made == again
assert gc.get_freeze_count() <= kept, "what a task leaves behind may be garbage"
print(sorted(name for name in sys.modules if name.startswith("_kafka_assets_decode_") and "." not in name))
with pa.ipc.new_file(sys.argv[1], made[0].schema) as file:
    for one in made:
        file.write_batch(one)
"""


@pytest.mark.slow
def test_a_worker_without_this_package_decodes_as_this_process_does(tmp_path: Path) -> None:
    sent = cloudpickle.dumps((worker("landed", SCHEMA, *ASKED), GIVEN))
    assert len(sent) < 50_000, "it is part of each query"
    program = f"import sys\nsys.path += {_packages()!r}\n{WORKER}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, tmp_path / "made"],
        input=sent, capture_output=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    [name] = eval(done.stdout)
    assert name == traveling._packed()[0]  # pyright: ignore[reportPrivateUsage]
    here = list(batches.landed([GIVEN], SCHEMA, *ASKED))
    made: Any = pa.ipc.open_file(str(tmp_path / "made")).read_all()
    assert made.equals(pa.Table.from_batches(here))
    assert made.column(packets.KIND).to_pylist() == [
        packets.ROWS,
        packets.BAD,
        packets.DELETES,
        packets.COUNTS,
        packets.ENDS,
    ]
    [rows] = batches.unpacked(
        [pa.record_batch({packets.PACKET: made.column(packets.PACKET).chunk(0).slice(0, 1)})],
        rows_schema(landed_schema(SCHEMA), ["kafka_offset"]),
        ["id", "kafka_offset"],
    )
    assert rows.to_pydict() == {"id": [1, 2], "kafka_offset": [3, 5]}


def test_another_text_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = traveling._packed()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(traveling, "_texts", lambda: {"__init__": "", "batches": "x = 1"})
    other, _ = traveling._packed.__wrapped__()  # pyright: ignore[reportPrivateUsage]
    assert name != other


def _packages() -> list[str]:
    """Where the libraries are, and not this package."""
    return [str(Path(pa.__file__).parents[1])]
