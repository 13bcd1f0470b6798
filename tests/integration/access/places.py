"""A broker with permissions as tests use it: an administrator, users, a topic and a group of one test."""

import contextlib
import threading
import time

from queue_member import QueueMember

from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.records import Record, encode_batch
from headrace.wire import Api

READ, WRITE, CREATE, ALL = 3, 4, 5, 2
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
TOPIC_DENIED, GROUP_DENIED, NO_SESSION, BAD_EPOCH, UNKNOWN_ID = 29, 30, 122, 123, 100
SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
USERS = ("admin", "alice", "bob")
LONG_MS = 30_000


def security(user):
    return Security(mechanism="PLAIN", user=user, password=f"password of {user}")


class Place:
    """A broker with permissions, its administrator, and a topic and group of one test."""

    def __init__(self, broker, name):
        self.broker, self.name = broker, name
        self.admin = self.channel("admin")
        self.topic_id = self.create(name)
        self.tell("share.auto.offset.reset", "earliest")

    def channel(self, user):
        return Channel(
            "127.0.0.1", self.broker.port, client_id=user, timeout_ms=20_000, security=security(user)
        )

    def create(self, name, *configs):
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        (answer,) = self.admin.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
        assert answer.error_code == 0, answer.error_message
        return answer.topic_id

    def delete(self, name):
        named = [{"name": name, "topic_id": None}]
        assert self.admin.request(Api.DELETE_TOPICS, 6, {"topics": named}).responses[0].error_code == 0

    def tell(self, name, value, user="admin", group=None):
        """Sets something of the group; the code."""
        change = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 32, "resource_name": group or self.name, "configs": [change]}
        channel = self.channel(user)
        with contextlib.closing(channel):
            answer = channel.request(Api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        return answer.responses[0].error_code

    def member(self, user, name="member"):
        return QueueMember(self.broker.port, self.name, name, self.topic_id, security=security(user))

    def allow(self, user, operation=READ, kind=TOPIC, name=None):
        given = {"resource_type": kind, "resource_name": name or self.name, "resource_pattern_type": 3}
        entry = {**given, "principal": f"User:{user}", "host": "*"}
        made = {"creations": [{**entry, "operation": operation, "permission_type": 3}]}
        assert self.admin.request(Api.CREATE_ACLS, 3, made).results[0].error_code == 0

    def revoke(self, user, operation=READ, kind=TOPIC, name=None):
        wanted = {"resource_type_filter": kind, "resource_name_filter": name or self.name}
        more = {"pattern_type_filter": 3, "principal_filter": f"User:{user}", "operation": operation}
        (answer,) = self.admin.request(
            Api.DELETE_ACLS, 3, {"filters": [{**wanted, **more, "permission_type": 3}]}
        ).filter_results
        assert len(answer.matching_acls) == 1

    def produce(self, *values, user="admin"):
        channel = self.channel(user)
        with contextlib.closing(channel):
            return produced(channel, self.name, batch_of(*values))

    def wait_read(self):
        """Until somebody waits for records of the topic."""
        wait(lambda: self.broker.services.topics.partition(self.name, 0).readers)


def produced(channel, topic, batch):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    answer = channel.request(Api.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})
    return answer.responses[0].partition_responses[0].error_code


def batch_of(*values):
    now_ms = int(time.time() * 1000)
    return encode_batch([Record(number, now_ms, None, value) for number, value in enumerate(values)])


def wait(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def codes(answer):
    return [part.error_code for topic in answer.responses for part in topic.partitions]


class Waiting(threading.Thread):
    """A call that does not return at once, on a thread of its own."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self._call = call
        self.outcome = None
        self.start()

    def run(self):
        self.outcome = self._call()

    def result(self):
        self.join(30)
        assert not self.is_alive()
        return self.outcome
