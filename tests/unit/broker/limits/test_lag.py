import pytest

from headrace.broker.limits.lag import is_alarming, share_of_retention
from headrace.storage import TopicConfig


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ({"retention_bytes": 1000, "retention_ms": -1}, 0.5),
        ({"retention_bytes": -1, "retention_ms": 10_000}, 0.2),
        ({"retention_bytes": 1000, "retention_ms": 10_000}, 0.5),
        ({"retention_bytes": 100_000, "retention_ms": 2000}, 1.0),
        ({"retention_bytes": -1, "retention_ms": -1}, 0.0),
        ({"retention_bytes": 1000, "cleanup_policy": "compact"}, 0.0),
    ],
)
def test_the_share_of_retention_is_the_larger_of_bytes_and_age(config, share):
    assert share_of_retention(500, 2000, TopicConfig(**config)) == share


def test_without_a_timestamp_only_bytes_count():
    config = TopicConfig(retention_bytes=1000, retention_ms=1)
    assert share_of_retention(100, None, config) == 0.1


def test_the_topic_says_when_it_is_time_to_tell():
    assert is_alarming(0.8, TopicConfig())
    assert not is_alarming(0.79, TopicConfig())
    assert is_alarming(0.5, TopicConfig(headrace_lag_alert_ratio=0.5))
    assert not is_alarming(5.0, TopicConfig(headrace_lag_alert_ratio=0.0))
