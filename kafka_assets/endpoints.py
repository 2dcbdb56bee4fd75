"""The address of a Spark: taken apart, and shown without its secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from kafka_assets.errors import SettingsError
from kafka_assets.masks import masked_url

_PORTS = {"sc": 15002, "spark": 7077}


@dataclass(frozen=True)
class Endpoint:
    """Where a Spark Connect server (`sc://`) or a master of Spark's own (`spark://`) listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine's loopback."""
        return self.host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", self.host) is not None


def endpoint_of(address: str) -> Endpoint | None:
    """Where this Spark listens; None of one that listens at no known place, as `local[2]` or `yarn`."""
    scheme, found, rest = address.partition("://")
    if not found or scheme not in _PORTS:
        return None
    try:
        parts = urlsplit(f"//{rest.partition('/')[0].partition(';')[0].partition(',')[0]}")
        host, port = parts.hostname, parts.port or _PORTS[scheme]
    except ValueError:
        return None
    return Endpoint(host, port) if host else None


def connect_endpoint(address: str) -> Endpoint:
    """Where this Spark Connect server listens."""
    found = endpoint_of(address) if address.startswith("sc://") else None
    if found is None:
        raise SettingsError(
            "the address of the Spark Connect server cannot be read",
            why="it is no sc://host:port",
            cure="write for example sc://spark.example.com:15002, with /;token=… behind it where the server wants one",
        )
    return found


def shown(address: str) -> str:
    """A Spark's address as it may be printed."""
    if re.fullmatch(r"local(-cluster)?(\[[^\]]*\])?|yarn|(spark|k8s)://[^;@?]*", address):
        return address
    return masked_url(address)
