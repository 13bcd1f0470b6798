from pathlib import Path

import pytest

from headrace.errors import RequestError
from headrace.storage import TopicConfig
from headrace.storage.topic_config import SETTINGS

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_without_overrides_the_defaults_hold():
    assert TopicConfig.from_overrides({}) == TopicConfig()
    assert TopicConfig().max_message_bytes == 1_048_588


def test_overrides_go_by_kafkas_names():
    config = TopicConfig.from_overrides({"cleanup.policy": "compact,delete", "segment.bytes": "2048"})
    assert (config.compacts, config.deletes, config.segment_bytes) == (True, True, 2048)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("no.such.setting", "1", "unknown topic setting"),
        ("retention.ms", "soon", "not a number"),
        ("retention.ms", "-2", "from -1"),
        ("segment.bytes", "0", "from 1024"),
        ("cleanup.policy", "burn", "delete, compact"),
        ("compression.type", "gzip", "never recompressed"),
        ("min.insync.replicas", "2", "from 1 to 1"),
        ("message.timestamp.type", "Tomorrow", "CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
    ],
)
def test_a_bad_override_is_refused_naming_the_setting_and_why(name, value, why):
    with pytest.raises(RequestError, match=why) as refused:
        TopicConfig.from_overrides({name: value})
    assert refused.value.code == 40
    assert name in str(refused.value)


def test_what_is_shown_can_be_given_back():
    config = TopicConfig.from_overrides({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"})
    assert TopicConfig.from_overrides(config.as_strings()) == config


def test_every_setting_has_type_default_and_help():
    for setting in SETTINGS.values():
        assert setting.kind in {"int", "long", "double", "boolean", "string", "list"}
        assert setting.help
        TopicConfig.from_overrides({setting.name: setting.default})


def test_every_setting_is_documented():
    page = DOCS.read_text()
    for name, setting in SETTINGS.items():
        assert f"`{name}`" in page
        assert setting.help in page
