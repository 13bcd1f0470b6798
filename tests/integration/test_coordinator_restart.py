"""What groups keep over restarts, crashes, a full disk, a failed sync and damage, in plain requests."""

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.client.connect.channel import Channel
from headrace.groups import Code, GroupSettings
from headrace.records import read_header
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk
from headrace.wire import Api

OFFSETS = "__consumer_offsets"
QUICK = GroupSettings(group_initial_rebalance_delay_ms=0)


class Member(Channel):
    """A member of group g on a bare connection."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port, client_id="member", timeout_ms=20_000)

    def create(self, topic: str, partitions: int = 2) -> None:
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        (answer,) = self.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
        assert answer.error_code == 0, answer.error_message

    def join(self, member_id: str = "") -> Any:
        fields = {
            "group_id": "g",
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0"}],
        }
        return self.request(Api.JOIN_GROUP, 3, fields, wait_ms=30_000)

    def sync(self, joined: Any, assignment: bytes = b"") -> Any:
        given = [{"member_id": joined.member_id, "assignment": assignment}] if assignment else []
        fields = {
            "group_id": "g",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": given,
        }
        return self.request(Api.SYNC_GROUP, 3, fields, wait_ms=30_000)

    def beat(self, joined: Any) -> int:
        fields = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        return int(self.request(Api.HEARTBEAT, 3, fields).error_code)

    def consumer_beat(self, epoch: int, **fields: Any) -> Any:
        given = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "topic_partitions": None, **fields}
        return self.request(Api.CONSUMER_GROUP_HEARTBEAT, 1, given)

    def commit(self, offset: int, topic: str = "t", partition: int = 0, metadata: str = "") -> int:
        place = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": metadata,
        }
        fields = {"group_id": "g", "member_id": "", "topics": [{"name": topic, "partitions": [place]}]}
        (answer,) = self.request(Api.OFFSET_COMMIT, 8, fields).topics
        return int(answer.partitions[0].error_code)

    def committed(self) -> dict[tuple[str, int], tuple[int, str]]:
        answer = self.request(Api.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})
        assert answer.error_code == 0, Code(answer.error_code)
        return {
            (topic.name, place.partition_index): (place.committed_offset, place.metadata)
            for topic in answer.topics
            for place in topic.partitions
        }


def member_of(port: int) -> Any:
    return contextlib.closing(Member(port))


def test_committed_offsets_survive_a_kill(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with member_of(broker.port) as member:
            member.create("t")
            for offset in range(20):
                assert member.commit(offset, metadata=f"at {offset}") == 0
            assert member.commit(7, partition=1) == 0
        broker.kill()
        broker.start()
        with member_of(broker.port) as member:
            assert member.committed() == {("t", 0): (19, "at 19"), ("t", 1): (7, "")}


def test_a_classic_member_goes_on_in_its_generation_after_a_kill(tmp_path):
    with BrokerProcess(tmp_path, group_initial_rebalance_delay_ms=0) as broker:
        with member_of(broker.port) as member:
            joined = member.join()
            assert member.sync(joined, b"mine").assignment == b"mine"
        broker.kill()
        broker.start()
        with member_of(broker.port) as member:
            assert member.beat(joined) == 0
            assert member.sync(joined).assignment == b"mine"
            assert member.join(joined.member_id).generation_id == joined.generation_id + 1


def test_generations_grow_over_an_empty_group_and_a_restart(tmp_path):
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        first = member.join()
        member.request(Api.LEAVE_GROUP, 2, {"group_id": "g", "member_id": first.member_id})
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        assert member.join().generation_id > first.generation_id


def test_a_server_side_member_keeps_its_epoch_and_partitions_after_a_kill(tmp_path):
    hello = {"rebalance_timeout": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    with BrokerProcess(tmp_path) as broker:
        with member_of(broker.port) as member:
            member.create("t")
            joined = member.consumer_beat(0, **hello)
            assert [place.partitions for place in joined.assignment.topic_partitions] == [(0, 1)]
        broker.kill()
        broker.start()
        with member_of(broker.port) as member:
            again = member.consumer_beat(joined.member_epoch)
            assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)
            assert again.assignment is None


def test_an_empty_group_changes_its_protocol_and_its_epoch_goes_on(tmp_path):
    hello = {"rebalance_timeout": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        first = member.join()
        assert member.consumer_beat(0, **hello).error_code == Code.GROUP_ID_NOT_FOUND
        member.request(Api.LEAVE_GROUP, 2, {"group_id": "g", "member_id": first.member_id})
        joined = member.consumer_beat(0, **hello)
        assert joined.member_epoch > first.generation_id
        assert member.join().error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        assert member.consumer_beat(joined.member_epoch).error_code == 0
        member.consumer_beat(-1)
        assert member.join().generation_id > joined.member_epoch


def test_offsets_of_a_deleted_topic_are_forgotten_for_good(tmp_path):
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        member.create("t")
        member.create("kept")
        member.commit(5)
        member.commit(6, "kept")
        member.request(Api.DELETE_TOPICS, 5, {"topic_names": ["t"]})
        member.create("t")
        assert member.committed() == {("kept", 0): (6, "")}
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        assert member.committed() == {("kept", 0): (6, "")}


def test_compaction_of_the_topic_changes_nothing(tmp_path):
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        member.create("t")
        for offset in range(50):
            member.commit(offset)
        joined = member.join()
        member.sync(joined, b"mine")
        log = broker.services.topics.partition(OFFSETS, 0).log
        before = log.size_bytes
        log.roll()
        assert log.compact(broker.services.clock.now_ms()) > 0
        assert log.size_bytes < before
    with running_broker(tmp_path, groups=QUICK) as broker, member_of(broker.port) as member:
        assert member.committed() == {("t", 0): (49, "")}
        assert member.sync(joined).assignment == b"mine"


def test_a_full_disk_makes_groups_unavailable_until_there_is_room_and_loses_nothing():
    disk = SimulatedDisk()
    with running_broker(Path("/data"), disk=disk, groups=QUICK) as broker, member_of(broker.port) as member:
        member.create("t")
        assert member.commit(1) == 0
        disk.capacity_bytes = disk.used_bytes()
        assert member.commit(2, metadata="x" * 2_000) == Code.COORDINATOR_NOT_AVAILABLE
        assert member.commit(3, metadata="x" * 2_000) == Code.COORDINATOR_NOT_AVAILABLE
        disk.capacity_bytes = None
        deadline = time.monotonic() + 60
        while member.commit(4, partition=1) != 0:
            assert time.monotonic() < deadline
        assert member.committed() == {("t", 0): (1, ""), ("t", 1): (4, "")}


def test_after_a_failed_sync_groups_stay_unavailable_and_whoever_waits_is_told():
    disk = SimulatedDisk()
    with running_broker(Path("/data"), disk=disk, groups=QUICK) as broker, member_of(broker.port) as member:
        member.create("t")
        leader = member.join()
        member.sync(leader, b"mine")
        with member_of(broker.port) as newcomer:
            replies: list[Any] = []
            waiting = threading.Thread(target=lambda: replies.append(newcomer.join()))
            waiting.start()
            while member.beat(leader) != Code.REBALANCE_IN_PROGRESS:
                pass
            disk.failing_syncs = 1
            assert member.join(leader.member_id).error_code == Code.COORDINATOR_NOT_AVAILABLE
            waiting.join(60)
        assert [reply.error_code for reply in replies] == [Code.COORDINATOR_NOT_AVAILABLE]
        assert member.beat(leader) == Code.COORDINATOR_NOT_AVAILABLE


def test_a_damaged_topic_of_groups_is_not_passed_over_silently(tmp_path):
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        member.create("t")
        member.commit(1)
        member.commit(2, partition=1)
        log = broker.services.topics.partition(OFFSETS, 0).log
        log.roll()
        path = next(log.path.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[read_header(data, 0).size_bytes // 2] ^= 1
    path.write_bytes(data)
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        assert member.commit(3) == Code.COORDINATOR_NOT_AVAILABLE
    told = GroupSettings(groups_skip_damage=True)
    with running_broker(tmp_path, groups=told) as broker, member_of(broker.port) as member:
        assert member.committed() == {("t", 1): (2, "")}


@pytest.mark.parametrize("size, expected", [(4_096, 0), (4_097, Code.OFFSET_METADATA_TOO_LARGE)])
def test_the_text_with_an_offset_is_bounded(tmp_path, size, expected):
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        member.create("t")
        assert member.commit(1, metadata="x" * size) == expected


def test_expired_offsets_and_empty_groups_are_forgotten(tmp_path):
    brief = GroupSettings(offsets_retention_minutes=0, offsets_retention_check_interval_ms=50)
    with running_broker(tmp_path, groups=brief) as broker, member_of(broker.port) as member:
        member.create("t")
        member.commit(1)
        deadline = time.monotonic() + 60
        while member.committed():
            assert time.monotonic() < deadline
        while member.request(Api.LIST_GROUPS, 4, {}).groups:
            assert time.monotonic() < deadline


def test_the_records_can_be_read_by_a_person(tmp_path):
    with running_broker(tmp_path) as broker, member_of(broker.port) as member:
        member.create("t")
        member.commit(42, metadata="hello")
        data = broker.services.topics.partition(OFFSETS, 0).log.read(0, 10_000)
        start = data.index(b'{"v":1,"offset"')
        value = orjson.loads(data[start : data.index(b"}", start) + 1])
        assert (value["offset"], value["metadata"]) == (42, "hello")
