"""Which services there are, and how each is made for a project."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path

from kafka_assets.devstack.dagster import Dagster
from kafka_assets.devstack.kafka import Kafka
from kafka_assets.devstack.mariadb import MariaDB
from kafka_assets.devstack.mysql import MySQL
from kafka_assets.devstack.ports import choose
from kafka_assets.devstack.postgresql import PostgreSQL
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.registry import Registry
from kafka_assets.devstack.service import Service
from kafka_assets.devstack.spark import SparkConnect
from kafka_assets.devstack.state import State, StateFile
from kafka_assets.endpoints import Endpoint, endpoint_of
from kafka_assets.errors import ServiceError, UsageError
from kafka_assets.settings import Settings

DEFAULT = ("kafka", "spark")
OPTIONAL = ("postgresql", "mariadb", "mysql", "registry", "dagster")
CLUSTER_SIZES = (1, 3)


def needed(file: StateFile, settings: Settings) -> list[str]:
    """Of the default services those that the settings do not name another one for."""
    ports = file.read().ports
    own = {chosen["client"] for name, chosen in ports.items() if name.startswith("kafka-")}
    brokers = (settings.bootstrap_servers or "").split(",")
    elsewhere = settings.bootstrap_servers and not any(_is_here(one, own) for one in brokers)
    endpoint = endpoint_of(settings.spark_remote or "")
    spark = {chosen["client"] for name, chosen in ports.items() if name == "spark"}
    other = settings.spark_master or (
        settings.spark_remote and not (endpoint and endpoint.is_here and endpoint.port in spark)
    )
    return [name for name, theirs in zip(DEFAULT, (elsewhere, other), strict=True) if not theirs]


def _is_here(address: str, own: set[int]) -> bool:
    host, _, port = address.strip().rpartition(":")
    return port.isdecimal() and int(port) in own and Endpoint(host, int(port)).is_here


def resolve(file: StateFile, names: Sequence[str], *, brokers: int | None) -> list[Service]:
    """The services with these names, as this project has them or is to have them from now on."""
    unknown = [name for name in names if name not in DEFAULT + OPTIONAL]
    if unknown:
        raise UsageError(
            f"there is no service {', '.join(map(repr, unknown))}",
            cure=f"choose among {', '.join(OPTIONAL)}",
        )
    state = file.read()
    size = _cluster_size(state, file.folder, brokers)
    keys = {"spark": secrets.token_urlsafe(24), "cluster": _cluster_id(), "password": secrets.token_urlsafe(12)}

    def edit(state: State) -> None:
        state.secrets = {**keys, **state.secrets}
        if "kafka" in names:
            state.brokers = size

    state = file.change(edit)
    services: list[Service] = []
    for name in dict.fromkeys(names):
        services += _kafka(file.folder, state, size) if name == "kafka" else [_single(name, file.folder, state)]
    return services


def known(file: StateFile) -> list[Service]:
    """Every service that this project ever had."""
    state = file.read()
    names = [name for name in ("spark", *OPTIONAL) if name in state.ports]
    singles = [_single(name, file.folder, state) for name in names]
    return [*singles, *_kafka(file.folder, state, state.brokers or 0)]


def assign_ports(file: StateFile, services: Sequence[Service], progress: Progress) -> dict[str, dict[str, int]]:
    """Ports for services that are about to start: as last time, where they are free; else others, and it is said."""
    state = file.read()
    chosen = {name: ports for name, ports in state.ports.items() if name not in {one.name for one in services}}
    for service in services:
        taken = {port for ports in chosen.values() for port in ports.values()}
        remembered = state.ports.get(service.name, {})
        chosen[service.name] = choose(service.port_names, remembered=remembered, taken=taken)
        for name, port in chosen[service.name].items():
            if remembered.get(name, port) != port:
                progress.say(f"port {remembered[name]} of {service.name} is taken by another program; taking {port}")

    def edit(state: State) -> None:
        state.ports = chosen

    file.change(edit)
    return {service.name: chosen[service.name] for service in services}


def _single(name: str, folder: Path, state: State) -> Service:
    password = state.secrets.get("password", "")
    match name:
        case "spark":
            return SparkConnect(folder, token=state.secrets.get("spark", ""))
        case "postgresql":
            return PostgreSQL(folder, password=password)
        case "mariadb":
            return MariaDB(folder, password=password)
        case "mysql":
            return MySQL(folder, password=password)
        case "registry":
            return Registry(folder)
        case _:
            return Dagster(folder)


def _kafka(folder: Path, state: State, size: int) -> list[Service]:
    cluster = state.secrets.get("cluster", "")
    return [Kafka(folder, node=node, size=size, cluster=cluster) for node in range(1, size + 1)]


def _cluster_size(state: State, folder: Path, asked: int | None) -> int:
    if asked is not None and asked not in CLUSTER_SIZES:
        raise UsageError(f"a cluster of {asked} brokers cannot be made", cure="take --brokers 1 or --brokers 3")
    if state.brokers is not None and asked is not None and asked != state.brokers:
        raise ServiceError(
            f"this project's Kafka cluster has {state.brokers} broker(s), not {asked}",
            why=f"its data in {folder} is spread over them",
            cure="go on without --brokers, or remove the data with `kafka-assets down --delete`",
        )
    return state.brokers or asked or 1


def _cluster_id() -> str:
    """A Kafka cluster id: 16 random bytes in URL-safe base64. Kafka refuses one that begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
