"""Real local services from locked artifacts: a Kafka broker, a warm Spark Connect server, databases, a registry.

Everything of a project lives in one folder (`Settings.state`); what was downloaded lives in a cache per user.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_assets.devstack.catalogue import DEFAULT, OPTIONAL
    from kafka_assets.devstack.progress import Progress, Silent
    from kafka_assets.devstack.stack import Running, ServiceStatus, down, needed, status, up

__all__ = [
    "DEFAULT",
    "OPTIONAL",
    "Progress",
    "Running",
    "ServiceStatus",
    "Silent",
    "down",
    "needed",
    "status",
    "up",
]

_HOMES = {
    "DEFAULT": "catalogue",
    "OPTIONAL": "catalogue",
    "Progress": "progress",
    "Silent": "progress",
}


def __getattr__(name: str) -> Any:
    """Load the services only for who asks for them: runs use what is here of processes, and no service."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'stack')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
