"""What users do with this package: test_warnings.py runs it with `-W error`, where every warning is an error.

warned.py FOLDER BROKER SPARK_REMOTE DATABASE_URL
"""

from __future__ import annotations

import sys
import warnings
from datetime import timedelta
from pathlib import Path

import dagster as dg

import kafka_assets
from kafka_assets import build_definitions, load_assets
from kafka_assets.assets.checks import the_health_sensor
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.assets.runner import Runner
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.settings import Settings


def main(folder: Path, broker: str, spark_remote: str, database_url: str) -> None:
    # The example: functions, YAML, assets downstream, a check of its own.
    example = load_assets(Path(kafka_assets.__file__).parent / "defs")
    build_definitions(example).get_repository_def().load_all_definitions()

    assets = load_assets(folder)
    resources = {
        KAFKA: KafkaResource(bootstrap_servers=broker),
        SPARK: SparkResource(spark_config={"spark.remote": spark_remote}),
        IO_MANAGER: SliceIOManager(database_url=database_url),
    }
    defs = build_definitions(assets, resources=resources)
    settings = Settings(
        project=folder, streams=folder, bootstrap_servers=broker, database_url=database_url, spark_remote=spark_remote
    )
    with dg.DagsterInstance.ephemeral() as instance:
        with Runner(settings, instance=instance, assets=assets, resources=resources) as runner:
            done = runner.until_caught_up(patience=timedelta(minutes=1))
        assert done.caught_up, done
        for sensor in (the_sensor(), the_health_sensor()):
            with dg.build_sensor_context(instance=instance, definitions=defs, resources=resources) as context:
                sensor.evaluate_tick(context)
        checks = [one for one in defs.asset_checks or () if isinstance(one, dg.AssetChecksDefinition)]
        job = dg.Definitions(
            assets=defs.assets,
            asset_checks=checks,
            jobs=[dg.define_asset_job("checked", selection=dg.AssetSelection.checks(*checks))],
            resources=resources,
        ).resolve_job_def("checked")
        judged = job.execute_in_process(instance=instance).get_asset_check_evaluations()
        assert judged and all(one.passed for one in judged), judged
    print(f"{done.runs} runs, {len(judged)} checks")


if __name__ == "__main__":
    if sys.argv[5:] == ["--warns"]:
        warnings.warn("for the test of this test", DeprecationWarning, stacklevel=1)
    main(Path(sys.argv[1]), *sys.argv[2:5])
