"""The code location: the streams of the project's folder, with their sensor and resources."""

import dagster as dg

from kafka_assets.assets.definitions import build_definitions
from kafka_assets.assets.folder import load_assets
from kafka_assets.settings import load_settings


@dg.definitions
def defs() -> dg.Definitions:
    """What `dagster dev` loads."""
    return build_definitions(load_assets(load_settings().streams))
