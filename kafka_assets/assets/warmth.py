"""What a nursery has ready before it forks: all that its runs would import, and read, each for itself."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dagster._core.instance.ref import InstanceRef
    from dagster._core.origin import JobPythonOrigin

DAGSTERS = (
    "dagster._cli.api",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.system_config.composite_descent",
)
"""What every run imports when it begins."""
WARM = (
    "sqlalchemy.dialects.sqlite",
    "pandas",
    "pyarrow.compute",
    "confluent_kafka.admin",
    "grpc._auth",
    "grpc._channel",
    "grpc._interceptor",
    "grpc._plugin_wrapping",
    "grpc_status.rpc_status",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.dataframe",
    "pyspark.sql.connect.functions",
    "kafka_assets.assets.land",
    "kafka_assets.sinks.publish",
    "kafka_assets.spark.session",
)
"""What a run of ours imports besides, if it is installed."""


def load(origin: JobPythonOrigin, instance: InstanceRef, known: str) -> None:
    """Import the definitions and what runs need besides. A function that makes them is called once, for all children:
    Dagster calls it again for each selection of assets."""
    from dagster._core.definitions.repository_definition import RepositoryLoadData
    from dagster._serdes import ConfigurableClassData, deserialize_value
    from dagster._utils.hosted_user_process import recon_job_from_origin
    from dagster.components.definitions import LazyDefinitions

    for name in DAGSTERS:
        importlib.import_module(name)
    for part in cast("Iterable[object]", instance):
        if isinstance(part, ConfigurableClassData):
            importlib.import_module(part.module_name)
    target = cast("Any", origin.repository_origin.code_pointer).load_target()
    if isinstance(target, LazyDefinitions) and not target.has_context_arg:
        once = LazyDefinitions[Any](load_fn=functools.cache(cast("Any", target).load_fn), has_context_arg=False)
        for module in list(sys.modules.values()):
            for name in [name for name, value in vars(module).items() if value is target]:
                setattr(module, name, once)
    job = recon_job_from_origin(origin)
    (job.with_repository_load_data(deserialize_value(known, RepositoryLoadData)) if known else job).get_definition()
    if "kafka_assets.streams" in sys.modules:
        for name in WARM:
            with suppress(ImportError):
                importlib.import_module(name)
        load_database()


def load_database() -> None:
    """Import what the settings' database needs, its driver among it; nothing is connected to."""
    from kafka_assets.errors import KafkaAssetsError
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.settings import load_settings
    from kafka_assets.sinks.road import road_for

    with suppress(KafkaAssetsError):  # a run that needs it says so
        road_for(make_engine(load_settings().database_url))


def open_once(instance: InstanceRef) -> None:
    """Open the instance, as each run does when it begins, and close it: what that imports and reads, the children have.

    Only where all of the instance is Dagster's own, on files: closed, it leaves neither a thread nor a connection.
    """
    from dagster._core.instance import DagsterInstance

    parts = (
        instance.storage_data,
        instance.scheduler_data,
        instance.secrets_loader_data,
        instance.defs_state_storage_data,
        instance.custom_instance_class_data,
    )
    if any(part is not None and not part.module_name.startswith("dagster.") for part in parts):
        return
    keep_revisions()
    with DagsterInstance.from_ref(instance):
        pass


@functools.cache
def keep_revisions() -> None:
    """From here on the revisions of Dagster's storages are read once in this process; nobody else's are kept.

    There are ninety, and Dagster reads all of them for each database of an instance, those of single runs among them.
    """
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    kept = functools.cache(read)  # Dagster has one configuration for each of its storages, and keeps it

    def from_config(config: Config) -> ScriptDirectory:
        named = config.get_main_option("script_location") or ""
        return kept(config) if named.startswith("dagster:") else read(config)

    ScriptDirectory.from_config = from_config
