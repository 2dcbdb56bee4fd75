"""A producer's times are bounded, whoever gives them: no broker."""

from __future__ import annotations

import pytest

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.producer_config import LONGEST, configured
from kafka_assets.errors import SettingsError, UsageError


def patience(timeout: float | None = None, **properties: str) -> float:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    config, seconds = configured(
        Connection("nowhere:1", named), compression=None, transactional_id=None, timeout=timeout
    )
    assert config["delivery.timeout.ms"] == str(int(seconds * 1000))
    assert "message.timeout.ms" not in config
    return seconds


def test_the_time_of_a_record_is_the_callers_then_the_users_then_two_minutes() -> None:
    assert patience() == 120
    assert patience(message_timeout_ms="7000") == patience(delivery_timeout_ms="7000") == 7
    assert patience(1.5, message_timeout_ms="7000") == 1.5
    assert patience(LONGEST) == LONGEST


@pytest.mark.parametrize("timeout", [0.0, 0.0009, -1.0, float("inf"), float("nan"), LONGEST * 2])
def test_a_timeout_without_end_is_bad_usage(timeout: float) -> None:
    with pytest.raises(UsageError, match="at most 2147483"):
        patience(timeout)


# With 0, no limit, commits were given no time at all, and a close would never end.
@pytest.mark.parametrize("name", ["message_timeout_ms", "delivery_timeout_ms"])
@pytest.mark.parametrize("milliseconds", ["0", "-1", "abc", "1.5", "9" * 30])
def test_a_property_that_bounds_nothing_is_a_wrong_setting(name: str, milliseconds: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name.replace('_', '.')}.*cannot be '{milliseconds}'"):
        patience(**{name: milliseconds})
