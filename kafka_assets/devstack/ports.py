"""Free ports on 127.0.0.1: the same as last time where they are free."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable, Mapping

from kafka_assets.errors import ServiceError

HOST = "127.0.0.1"
# Below the range that Linux gives to outgoing connections: a port that is free now is not taken by chance later.
LOWEST, HIGHEST = 20_000, 32_000
LINGERS = 3.0
"""Seconds: who is killed may hold its port for a moment yet, on a busy machine."""


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        # As servers do: connections that are still closing do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(port: int, *, timeout: float = 0.5) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((HOST, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def choose(names: Iterable[str], *, remembered: Mapping[str, int], taken: set[int]) -> dict[str, int]:
    """A port for each name, none of them in `taken`: the remembered one where it is free."""
    chosen: dict[str, int] = {}
    for name in names:
        port = remembered.get(name)
        if port is None or port in taken or not becomes_free(port):
            port = _free_port(taken | set(chosen.values()))
        chosen[name] = port
    return chosen


def becomes_free(port: int) -> bool:
    """Whether the port of a service that ran here is free, or is soon."""
    deadline = time.monotonic() + LINGERS
    while not (free := is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return free


def _free_port(taken: set[int]) -> int:
    candidates = random.sample(range(LOWEST, HIGHEST), 200)
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise ServiceError(
        f"no free port was found on {HOST}",
        why=f"{len(candidates)} ports between {LOWEST} and {HIGHEST} were tried",
        cure="end what listens there (`ss -tlnp` lists it)",
    )
