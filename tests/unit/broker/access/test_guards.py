"""The table of access: every API served is in it, and lets nobody through who may nothing."""

import importlib.util
from pathlib import Path
from uuid import UUID

import pytest

from headrace.broker.access.acls import Acl, AclIndex, Operation, Resource
from headrace.broker.access.guards import GUARDS, GuardedRequest
from headrace.broker.access.guards.ruling import CODES
from headrace.broker.access.login import SaslLogin
from headrace.broker.access.session import ClientSession, Rules
from headrace.broker.apis.versions import VERSIONS
from headrace.wire import Api, encode_response, name_of
from headrace.wire.schemas import MESSAGES

_spec = importlib.util.spec_from_file_location("bodies", Path(__file__).with_name("bodies.py"))
bodies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bodies)

OPEN = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.DESCRIBE_CLUSTER}
HIDES = {Api.LIST_GROUPS, 66}  # answer with what may be seen, and refuse nothing
SERVED = [
    (api, version)
    for api, versions in sorted(VERSIONS.items())
    for version in range(versions.lowest, versions.highest + 1)
]
KNOWN = [(api, MESSAGES[api].last) for api in sorted(GUARDS) if api not in VERSIONS]


def session(*acls, principal="User:alice"):
    rules = Rules(AclIndex(acls), frozenset())
    return ClientSession(rules, host="10.0.0.1", login=SaslLogin((), str), principal=principal)


def asked(request):
    return GuardedRequest(
        request=request,
        session=request.session,
        topic_name=lambda topic_id: "secret" if topic_id == bodies.TOPIC_ID else None,
        creates_topics=True,
        topic_exists=lambda name: name == "secret",
        topic_names=lambda: ["secret"],
    )


def ruled(api, version, *acls, text="secret"):
    request = bodies.request(api, version, text, session(*acls))
    return request, GUARDS[api](asked(request))


def codes_in(value):
    """Every number under a name that ends in error_code."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("error_code"):
                yield int(inner)
            else:
                yield from codes_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from codes_in(inner)


def test_every_api_that_is_served_is_in_the_table():
    missing = [name_of(api) for api in VERSIONS if api not in GUARDS]
    assert not missing, f"say in broker/access/guards what these require: {missing}"


@pytest.mark.parametrize(("api", "version"), SERVED + KNOWN)
def test_whoever_may_nothing_is_refused_in_a_form_that_can_be_sent(api, version):
    _, ruling = ruled(api, version)
    if api in OPEN | HIDES:
        assert ruling.refusal is None and not ruling.refused
        return
    answer = ruling.refusal if ruling.refusal is not None else {ruling.into: ruling.refused}
    encode_response(api, version, 1, answer)
    assert set(codes_in(answer)) & set(CODES.values()), answer


@pytest.mark.parametrize(("api", "version"), SERVED + KNOWN)
def test_nothing_that_was_refused_is_left_in_the_request(api, version):
    request, ruling = ruled(api, version)
    if ruling.refusal is None and ruling.refused:
        left = bodies.request(api, version, "secret").body
        emptied = [
            name
            for name, value in vars(left).items()
            if isinstance(value, list | tuple) and value and not getattr(request.body, name)
        ]
        assert emptied, "the handler would still see it"


@pytest.mark.parametrize(("api", "version"), SERVED + KNOWN)
def test_whoever_may_everything_is_let_through(api, version):
    everything = [
        Acl(resource, 3, "*", "User:alice", "*", Operation.ALL, 3)
        for resource in (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
    ]
    _, ruling = ruled(api, version, *everything)
    assert ruling.refusal is None and not ruling.refused


def topic(operation, name="secret"):
    return Acl(Resource.TOPIC, 3, name, "User:alice", "*", operation, 3)


@pytest.mark.parametrize(
    ("api", "enough", "too_little"),
    [
        (Api.PRODUCE, Operation.WRITE, Operation.READ),
        (Api.FETCH, Operation.READ, Operation.WRITE),
        (Api.LIST_OFFSETS, Operation.DESCRIBE, Operation.CREATE),
        (Api.DELETE_RECORDS, Operation.DELETE, Operation.ALTER),
        (Api.OFFSET_FOR_LEADER_EPOCH, Operation.DESCRIBE, Operation.CREATE),
        (Api.METADATA, Operation.DESCRIBE, Operation.CREATE),
        (Api.DELETE_TOPICS, Operation.DELETE, Operation.ALTER),
        (Api.CREATE_TOPICS, Operation.CREATE, Operation.WRITE),
        (Api.CREATE_PARTITIONS, Operation.ALTER, Operation.WRITE),
        (Api.DESCRIBE_PRODUCERS, Operation.READ, Operation.DESCRIBE),
    ],
)
def test_topics_need_their_operation_and_no_other(api, enough, too_little):
    version = MESSAGES[api].first
    transaction = Acl(Resource.TRANSACTIONAL_ID, 3, "*", "User:alice", "*", Operation.ALL, 3)
    assert not ruled(api, version, topic(enough), transaction)[1].refused
    assert ruled(api, version, topic(too_little), transaction)[1].refused


def test_an_unknown_topic_by_name_looks_like_a_forbidden_one():
    _, known = ruled(Api.METADATA, 9, text="secret")
    _, unknown = ruled(Api.METADATA, 9, text="nothing")
    assert [each["error_code"] for each in known.refused + unknown.refused] == [29, 29]


def test_a_forbidden_topics_id_does_not_tell_its_name():
    _, ruling = ruled(Api.METADATA, 12)
    assert ruling.refused == [{"error_code": 29, "name": None, "topic_id": bodies.TOPIC_ID}]
    _, ruling = ruled(Api.DELETE_TOPICS, 6)
    assert [each["name"] for each in ruling.refused] == [None]


def test_an_unknown_topic_id_is_left_to_the_handler():
    request = bodies.request(Api.FETCH, 13, "x", session())
    request.body.topics[0].topic_id = UUID(int=8)
    assert not GUARDS[Api.FETCH](asked(request)).refused


def test_creating_by_asking_for_metadata_needs_the_right_to_create():
    assert ruled(Api.METADATA, 4, topic(Operation.DESCRIBE, "new"), text="new")[0].body.topics
    request = bodies.request(Api.METADATA, 4, "new", session(topic(Operation.DESCRIBE, "new")))
    request.body.allow_auto_topic_creation = True
    assert GUARDS[Api.METADATA](asked(request)).refused[0]["error_code"] == 29
    entitled = session(topic(Operation.DESCRIBE, "new"), topic(Operation.CREATE, "new"))
    request = bodies.request(Api.METADATA, 4, "new", entitled)
    request.body.allow_auto_topic_creation = True
    assert not GUARDS[Api.METADATA](asked(request)).refused


def test_a_list_of_all_topics_leaves_forbidden_ones_out():
    request = bodies.request(Api.METADATA, 9, "x", session(topic(Operation.READ, "open")))
    request.body.topics = None
    ruling = GUARDS[Api.METADATA](asked(request))
    answer = ruling.completed({"topics": [{"name": "secret"}, {"name": "open"}]})
    assert [each["name"] for each in answer["topics"]] == ["open"]


def test_a_list_of_groups_leaves_forbidden_ones_out():
    group = Acl(Resource.GROUP, 4, "bill", "User:alice", "*", Operation.READ, 3)
    request = bodies.request(Api.LIST_GROUPS, 5, "x", session(group))
    ruling = GUARDS[Api.LIST_GROUPS](asked(request))
    answer = ruling.completed({"groups": [{"group_id": "billing"}, {"group_id": "audit"}]})
    assert answer["groups"] == [{"group_id": "billing"}]


def test_a_group_with_a_forbidden_topic_is_not_described():
    group = Acl(Resource.GROUP, 3, "*", "User:alice", "*", Operation.DESCRIBE, 3)
    request = bodies.request(Api.CONSUMER_GROUP_DESCRIBE, 1, "billing", session(group))
    ruling = GUARDS[Api.CONSUMER_GROUP_DESCRIBE](asked(request))
    member = {"assignment": {"topic_partitions": [{"topic_name": "secret"}]}, "member_id": "m"}
    answer = ruling.completed({"groups": [{"group_id": "billing", "members": [member]}]})
    assert answer["groups"][0]["error_code"] == 29
    assert "members" not in answer["groups"][0]


def test_committed_offsets_of_forbidden_topics_are_not_told():
    group = Acl(Resource.GROUP, 3, "billing", "User:alice", "*", Operation.READ, 3)
    request = bodies.request(Api.OFFSET_FETCH, 8, "billing", session(group, topic(Operation.READ, "open")))
    request.body.groups[0].topics = None
    ruling = GUARDS[Api.OFFSET_FETCH](asked(request))
    found = {"group_id": "billing", "topics": [{"name": "secret"}, {"name": "open"}]}
    assert ruling.completed({"groups": [found]})["groups"][0]["topics"] == [{"name": "open"}]


def test_an_idempotent_producer_needs_to_write_somewhere():
    assert ruled(Api.INIT_PRODUCER_ID, 4)[1].refusal == {"error_code": 53}
    request = bodies.request(Api.INIT_PRODUCER_ID, 4, "x", session())
    request.body.transactional_id = None
    assert GUARDS[Api.INIT_PRODUCER_ID](asked(request)).refusal == {"error_code": 31}
    request = bodies.request(Api.INIT_PRODUCER_ID, 4, "x", session(topic(Operation.WRITE, "any")))
    request.body.transactional_id = None
    assert GUARDS[Api.INIT_PRODUCER_ID](asked(request)).refusal is None


def test_one_forbidden_topic_keeps_all_out_of_a_transaction():
    writes = Acl(Resource.TRANSACTIONAL_ID, 3, "secret", "User:alice", "*", Operation.WRITE, 3)
    _, ruling = ruled(24, 3, writes)
    assert list(codes_in(ruling.refusal)) == [29]
    assert list(codes_in(ruled(24, 3)[1].refusal)) == [53]
    assert ruled(24, 3, writes, topic(Operation.WRITE))[1].refusal is None
