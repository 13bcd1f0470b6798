"""A topic that a user may not describe is, to that user, one that does not exist; whatever is asked."""

import contextlib
import importlib.util
import itertools
import uuid
from pathlib import Path

import pytest

from headrace.broker.access import offline
from headrace.broker.access.acls import Acl
from headrace.broker.apis.versions import VERSIONS
from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.testing.broker import running_broker
from headrace.wire import Api
from headrace.wire.schemas import MESSAGES

BODIES = Path(__file__).parents[2] / "unit" / "broker" / "access" / "bodies.py"
_spec = importlib.util.spec_from_file_location("bodies", BODIES)
bodies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bodies)

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
READ, DESCRIBE, ALL = 3, 8, 2
SECRET, MISSING, SEEN = "secret", "nobody", "seen"
_groups = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("hidden")
    for user in ("admin", "alice", "bob"):
        offline.add_user(data, user, f"password of {user}")
    with running_broker(data, authenticate=True, super_users="admin") as running:
        with contextlib.closing(channel(running, "admin")) as admin:
            wanted = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in (SECRET, SEEN)]
            admin.request(Api.CREATE_TOPICS, 7, {"topics": wanted})
            for kind in (GROUP, TRANSACTIONAL_ID):
                allow(admin, ALL, kind, "*")
                allow(admin, ALL, kind, "*", user="bob")
            allow(admin, READ, TOPIC, SEEN)
            allow(admin, READ, TOPIC, SEEN, user="bob")
            allow(admin, READ, TOPIC, SECRET, user="bob")
        yield running


def channel(broker, user):
    security = Security(mechanism="PLAIN", user=user, password=f"password of {user}")
    return Channel("127.0.0.1", broker.port, client_id=user, timeout_ms=20_000, security=security)


def entry(operation, kind, name, user, prefix=""):
    acl = Acl(kind, 3, name, f"User:{user}", "*", operation, 3)
    fields = {"resource_type": acl.resource, "resource_name": acl.name, "resource_pattern_type": acl.pattern}
    fields |= {"principal": acl.principal, "host": acl.host, "operation": acl.operation}
    renamed = {f"{key}_filter" if key in FILTERED else key: value for key, value in fields.items()}
    if prefix:
        renamed["pattern_type_filter"] = renamed.pop("resource_pattern_type")
    return {**(renamed if prefix else fields), "permission_type": 3}


FILTERED = ("resource_type", "resource_name", "principal", "host")


def allow(admin, operation, kind, name, user="alice"):
    made = {"creations": [entry(operation, kind, name, user)]}
    assert admin.request(Api.CREATE_ACLS, 3, made).results[0].error_code == 0


def revoke(admin, operation, kind, name, user="alice"):
    (answer,) = admin.request(
        Api.DELETE_ACLS, 3, {"filters": [entry(operation, kind, name, user, "filter")]}
    ).filter_results
    assert len(answer.matching_acls) == 1


class Member:
    """Of a server-side group, subscribed by a pattern."""

    def __init__(self, broker, user, pattern, group=None):
        self.channel = channel(broker, user)
        self.group = group or f"group-{next(_groups)}"
        self.name, self.epoch, self.owned = str(uuid.uuid4()), 0, []
        self.first = self.beat(
            rebalance_timeout=60_000, subscribed_topic_names=[], subscribed_topic_regex=pattern
        )

    def beat(self, **fields):
        """What the answer tells besides the member's own name."""
        asked = {"group_id": self.group, "member_id": self.name, "member_epoch": self.epoch, **fields}
        answer = self.channel.request(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, {**asked, "topic_partitions": self.owned}
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    {"topic_id": each.topic_id, "partitions": list(each.partitions)}
                    for each in answer.assignment.topic_partitions
                ]
        message = (answer.error_message or "").replace(SECRET, "NAME").replace(MISSING, "NAME")
        return answer.error_code, message, self.epoch, [len(each["partitions"]) for each in self.owned]


def as_plain(value):
    """An answer as data, without the names asked for."""
    if hasattr(value, "__dict__"):
        return {name: as_plain(inner) for name, inner in vars(value).items()}
    if isinstance(value, list | tuple):
        return [as_plain(each) for each in value]
    return value.replace(SECRET, "NAME").replace(MISSING, "NAME") if isinstance(value, str) else value


@pytest.mark.parametrize("pattern", ["{}", "{}.*", "({}|zzz)", "[^a]*{}"])
def test_no_pattern_finds_a_hidden_topic(broker, pattern):
    hidden = Member(broker, "alice", pattern.format(SECRET))
    missing = Member(broker, "alice", pattern.format(MISSING))
    assert hidden.first == missing.first == (0, "", 1, [])
    assert hidden.beat() == missing.beat() == (0, "", 1, [])


@pytest.mark.parametrize("pattern", ["(", "", ".*", "x" * 1000 + "{}", "(" * 50 + "{}" + ")" * 50])
def test_what_is_wrong_with_a_pattern_does_not_depend_on_hidden_topics(broker, pattern):
    hidden, missing = (Member(broker, "alice", pattern.format(name)) for name in (SECRET, MISSING))
    assert hidden.first == missing.first
    assert hidden.first[3] in ([], [2])  # at most the topic that may be seen


def test_a_pattern_follows_the_permissions(broker):
    with contextlib.closing(channel(broker, "admin")) as admin:
        member = Member(broker, "alice", "se.*")
        assert member.first[3] == [2]
        allow(admin, DESCRIBE, TOPIC, SECRET)
        member.beat()
        assert member.beat()[3] == [2, 2]
        revoke(admin, DESCRIBE, TOPIC, SECRET)
        member.beat()
        assert member.beat()[3] == [2]


def test_two_users_of_one_group_are_each_given_topics_that_they_may_see(broker):
    alice = Member(broker, "alice", "se.*")
    bob = Member(broker, "bob", "se.*", alice.group)
    for _ in range(3):
        alice.beat()
        bob.beat()
    secret = broker.services.topics.named(SECRET).id
    assert secret not in [each["topic_id"] for each in alice.owned]
    assert [len(each["partitions"]) for each in bob.owned if each["topic_id"] == secret] == [2]


def test_the_name_of_a_hidden_topic_is_not_in_the_refusal_of_one_that_is_like_it(broker):
    with contextlib.closing(channel(broker, "admin")) as admin:
        wanted = {"name": "hidden.topic", "num_partitions": 1, "replication_factor": 1}
        admin.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]})
        allow(admin, 5, TOPIC, "hidden_topic")  # create
    with contextlib.closing(channel(broker, "alice")) as alice:
        (answer,) = alice.request(
            Api.CREATE_TOPICS, 7, {"topics": [{**wanted, "name": "hidden_topic"}]}
        ).topics
    assert answer.error_code == 17 and "hidden.topic" not in answer.error_message


NAMED = [
    (api, version)
    for api, versions in sorted(VERSIONS.items())
    if api not in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
    for version in sorted({versions.lowest, versions.highest})
]


@pytest.mark.parametrize(("api", "version"), NAMED)
def test_no_api_tells_a_hidden_topic_from_one_that_is_not_there(broker, api, version):
    """The name is everywhere in the request; of the groups and transactions everything is allowed."""

    def asked(name):
        with contextlib.closing(channel(broker, "alice")) as asking:
            fields = bodies.filled(MESSAGES[api].request, version, name)
            fields |= {each: "a-group" for each in ("group_id", "transactional_id") if each in fields}
            by_name(fields)
            return as_plain(asking.request(api, version, fields))

    assert asked(SECRET) == asked(MISSING)


def by_name(fields):
    """Topics are asked for by their names: an id is no secret."""
    for name, value in fields.items():
        if name == "topic_id":
            fields[name] = None
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    by_name(each)
