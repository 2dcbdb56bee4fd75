"""Real local services from locked artifacts: a Kafka broker, a warm Spark Connect server, databases, a registry.

Everything of a project lives in one folder (`Settings.state`); what was downloaded lives in a cache per user.
"""

from kafka_assets.devstack.catalogue import DEFAULT, OPTIONAL
from kafka_assets.devstack.progress import Progress, Silent
from kafka_assets.devstack.spark import connector_jars
from kafka_assets.devstack.stack import Running, ServiceStatus, down, needed, status, up

__all__ = [
    "DEFAULT",
    "OPTIONAL",
    "Progress",
    "Running",
    "ServiceStatus",
    "Silent",
    "connector_jars",
    "down",
    "needed",
    "status",
    "up",
]
