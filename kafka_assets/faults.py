"""Named points of the code at which tests bring a fault about. Nothing is armed unless a test armed it.

A point has the name of what comes next there, so that it stays where it is when modules move: the code says
`reached("verify", asset)` before it verifies its attempts. Tests arm a point in their own process with `armed`, and in
others by `KAFKA_ASSETS_FAULT`, which those read when they start: `hang@verify`, several with commas.

    ACTION@POINT            hang: stand still for ten minutes · kill: SIGKILL to the own process
    ACTION@POINT:SUBJECT    only where the point is reached for this subject, an asset
    ACTION@POINT?FILE       only where FILE is there; it is renamed to FILE.struck, and holds the pid
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

SETTING = "KAFKA_ASSETS_FAULT"
POINTS = {
    "land": "a run's slices are claimed, and are landed next",
    "verify": "a publication's rows are in, and its attempts are verified next",
}
"""Every point, and what has happened there. For the asset whose slices they are, where there is a subject."""

Act = Callable[[], object]
_armed: dict[str, list[Callable[[str], object]]] = {}


def reached(point: str, subject: str = "") -> None:
    """The code is there. Costs a look at an empty dictionary where nothing is armed."""
    if _armed:
        for act in tuple(_armed.get(point, ())):
            act(subject)


@contextmanager
def armed(point: str, act: Act) -> Generator[None]:
    """While the block lasts, this is done wherever the point is reached; what it raises, the code meets there."""
    strikes = _arm(point, lambda _: act())
    try:
        yield
    finally:
        _armed[point].remove(strikes)
        if not _armed[point]:
            del _armed[point]


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm what the environment names, for as long as this process lasts."""
    for spec in filter(None, environment.get(SETTING, "").split(",")):
        words, _, file = spec.partition("?")
        action, _, place = words.partition("@")
        point, _, subject = place.partition(":")
        if action not in _ACTIONS or point not in POINTS:
            raise ValueError(f"{SETTING} has {spec!r}: it takes {'|'.join(_ACTIONS)}@{'|'.join(POINTS)}")
        _arm(point, _striking(_ACTIONS[action], subject=subject, told=Path(file) if file else None))


def _arm(point: str, act: Callable[[str], object]) -> Callable[[str], object]:
    if point not in POINTS:
        raise ValueError(f"there is no point {point!r}: there are {', '.join(POINTS)}")
    _armed.setdefault(point, []).append(act)
    return act


def _striking(action: Act, *, subject: str, told: Path | None) -> Callable[[str], object]:
    def strike(reached_for: str) -> None:
        if subject in ("", reached_for) and (told is None or _taken(told)):
            action()

    return strike


def _taken(told: Path) -> bool:
    """Whether the file is there for this process: of two that come at once, one takes it."""
    aside = told.with_name(f"{told.name}.{os.getpid()}")
    try:
        told.rename(aside)
    except FileNotFoundError:
        return False
    aside.write_text(str(os.getpid()), encoding="utf-8")
    aside.rename(told.with_name(f"{told.name}.struck"))
    return True


def _hang() -> None:
    time.sleep(600)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_ACTIONS: Mapping[str, Act] = {"hang": _hang, "kill": _kill}

arm_from(os.environ)
