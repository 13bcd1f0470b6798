"""What a Connect worker is told, and what is said of it."""

import pytest

import headrace.capture.connect
from headrace.capture.connect import ConnectSettings, worker_properties
from headrace.errors import ConfigError


def test_the_surface_is_there():
    for name in headrace.capture.connect.__all__:
        assert hasattr(headrace.capture.connect, name)


def test_a_worker_is_called_by_its_name_everywhere():
    properties = worker_properties(ConnectSettings(bootstrap_servers="127.0.0.1:1", name="shop"))
    named = {key: value for key, value in properties.items() if value.startswith("shop")}
    assert named == {
        "group.id": "shop",
        "client.id": "shop",
        "offset.storage.topic": "shop-offsets",
        "config.storage.topic": "shop-configs",
        "status.storage.topic": "shop-status",
    }
    assert properties["exactly.once.source.support"] == "enabled"


def test_connects_own_settings_win_and_are_not_shown():
    given = {"sasl.jaas.config": "planted secret", "session.timeout.ms": "9000"}
    settings = ConnectSettings(bootstrap_servers="127.0.0.1:1", properties=given)
    assert worker_properties(settings).items() >= given.items()
    assert "planted secret" not in repr(settings)


@pytest.mark.parametrize("settings", [{"bootstrap_servers": ""}, {"bootstrap_servers": "a:1", "name": ""}])
def test_what_is_missing_is_named(settings):
    with pytest.raises(ConfigError):
        ConnectSettings(**settings)
