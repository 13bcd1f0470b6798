import pytest

from headrace.wire import Api, ErrorCode

TOPIC, BROKER = 2, 4


def configs_of(peer, topic):
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    (answer,) = peer.request(Api.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results
    return {config.name: config for config in answer.configs}


def alter(peer, topic, name, value, operation=0, validate_only=False):
    change = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [change]}
    fields = {"resources": [resource], "validate_only": validate_only}
    (answer,) = peer.request(Api.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
    return answer


def test_a_setting_is_set_shown_and_unset(peer, topic):
    assert alter(peer, topic, "retention.ms", "5000").error_code == 0
    changed = configs_of(peer, topic)["retention.ms"]
    assert (changed.value, changed.config_source) == ("5000", 1)
    assert alter(peer, topic, "retention.ms", None, operation=1).error_code == 0
    assert configs_of(peer, topic)["retention.ms"].config_source == 5


def test_lists_can_be_appended_to_and_subtracted_from(peer, topic):
    alter(peer, topic, "cleanup.policy", "compact", operation=2)
    assert configs_of(peer, topic)["cleanup.policy"].value == "delete,compact"
    alter(peer, topic, "cleanup.policy", "delete", operation=3)
    assert configs_of(peer, topic)["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "soon"), ("no.such.setting", "1"), ("segment.bytes", "-4")]
)
def test_settings_that_cannot_be_are_refused_with_the_reason(peer, topic, name, value):
    answer = alter(peer, topic, name, value)
    assert answer.error_code == ErrorCode.invalid_config
    assert name in answer.error_message


def test_validate_only_changes_nothing(peer, topic):
    assert alter(peer, topic, "retention.ms", "5000", validate_only=True).error_code == 0
    assert configs_of(peer, topic)["retention.ms"].value != "5000"


def test_the_brokers_settings_can_be_read_and_not_written(peer):
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    (answer,) = peer.request(Api.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results
    assert "fetch.max.bytes" in {config.name for config in answer.configs}
    changed = {**resource, "configs": [{"name": "fetch.max.bytes", "config_operation": 0, "value": "1"}]}
    del changed["configuration_keys"]
    (refused,) = peer.request(Api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [changed]}).responses
    assert refused.error_code == ErrorCode.invalid_request


def test_partitions_are_described_in_pages(peer):
    for name, count in (("page-a", 3), ("page-b", 4)):
        peer.create(name, partitions=count)
    seen, cursor = [], None
    while True:
        wanted = {
            "topics": [{"name": "page-a"}, {"name": "page-b"}],
            "response_partition_limit": 2,
            "cursor": cursor,
        }
        answer = peer.request(Api.DESCRIBE_TOPIC_PARTITIONS, 0, wanted)
        seen += [(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]
        assert all(
            part.eligible_leader_replicas == () for topic in answer.topics for part in topic.partitions
        )
        if answer.next_cursor is None:
            break
        cursor = vars(answer.next_cursor)
    assert seen == [("page-a", n) for n in range(3)] + [("page-b", n) for n in range(4)]


def test_partitions_can_only_be_added(peer, topic):
    def grow(count):
        fields = {"topics": [{"name": topic, "count": count, "assignments": None}], "timeout": 1000}
        (answer,) = peer.request(Api.CREATE_PARTITIONS, 3, fields).results
        return answer.error_code

    assert grow(3) == 0
    assert grow(2) == ErrorCode.invalid_partitions
    (described,) = peer.request(Api.METADATA, 12, {"topics": [{"name": topic}]}).topics
    assert len(described.partitions) == 3


def test_metadata_creates_topics_only_if_the_client_and_the_broker_allow_it(start):
    from .conftest import Peer

    def ask(peer, name, allowed):
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": allowed}
        (answer,) = peer.request(Api.METADATA, 12, fields).topics
        return answer.error_code

    willing = Peer(start().port)
    assert ask(willing, "no", False) == ErrorCode.unknown_topic_or_partition
    assert ask(willing, "yes", True) == 0
    assert ask(willing, "not/a/name", True) == ErrorCode.invalid_topic_exception
    willing.close()


def test_a_broker_told_so_creates_nothing_by_itself(start):
    from .conftest import Peer

    peer = Peer(start(auto_create_topics=False).port)
    (answer,) = peer.request(Api.METADATA, 12, {"topics": [{"name": "x"}]}).topics
    assert answer.error_code == ErrorCode.unknown_topic_or_partition
    peer.close()


def test_a_deleted_topic_is_gone_and_its_name_is_free_again(peer, topic):
    fields = {"topics": [{"name": topic}], "timeout": 1000}
    (answer,) = peer.request(Api.DELETE_TOPICS, 6, fields).responses
    assert answer.error_code == 0
    (again,) = peer.request(Api.DELETE_TOPICS, 6, fields).responses
    assert again.error_code == ErrorCode.unknown_topic_or_partition
    peer.create(topic)
    assert peer.fetch(topic, 0).high_watermark == 0


def test_producer_ids_are_never_given_twice(peer):
    fields = {"transactional_id": None, "transaction_timeout": 1000}
    given = [peer.request(Api.INIT_PRODUCER_ID, 4, fields).producer_id for _ in range(5)]
    assert len(set(given)) == 5
