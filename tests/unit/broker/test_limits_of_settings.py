"""Settings with which a broker could not serve are refused before it starts."""

import pytest

from headrace.broker.settings import BrokerSettings
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    "name",
    ["default_partitions", "max_connections", "produce_pipeline", "commit_threads", "fetch_window_bytes"],
)
def test_what_must_be_at_least_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0; it must be at least 1"):
        BrokerSettings(data="unused", **{name: 0})
