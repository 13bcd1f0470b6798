"""Cases of the protocol itself: versions, unknown requests, the cluster, coordinators."""

import base64
import struct

from headrace.errors import RetriableError
from headrace.wire import Api
from parity.case import case
from parity.stage import code

CLIENT = {"client_software_name": "parity", "client_software_version": "1"}
VERSIONS, CLUSTER, COORDINATORS = "versions", "cluster", "coordinators"


@case(
    VERSIONS,
    "ApiVersions in an unknown version is answered in version 0, with UNSUPPORTED_VERSION and a list",
)
def future_versions(log):
    peer = log.connect_only()
    peer.send_bytes(struct.pack(">ihhih", 4 + 2 + 4 + 1 + 1 + 1, Api.API_VERSIONS, 99, 7, 0) + b"\0\1\1")
    data = bytes(peer._receive())
    correlation, error, count = struct.unpack_from(">ihi", data)
    rows = [struct.unpack_from(">hhh", data, 10 + 6 * index) for index in range(count)]
    return [correlation, code(error), any(row[0] == Api.API_VERSIONS for row in rows)]


@case(VERSIONS, "ApiVersions with an invalid client name is INVALID_REQUEST")
def client_names(log):
    def ask(**fields):
        return code(log.connect_only().request(Api.API_VERSIONS, 3, fields).error_code)

    return [
        ask(client_software_name="a-client", client_software_version="1.0"),
        ask(client_software_name="a client", client_software_version="1.0"),
        ask(client_software_name="", client_software_version=""),
    ]


@case(VERSIONS, "any other request in a version that is not served closes the connection")
def unserved_version(log):
    found = []
    for api, version in ((Api.METADATA, 99), (Api.FETCH, 3), (Api.PRODUCE, 2)):
        peer = log.connect_only()
        peer.send_bytes(struct.pack(">ihhih", 10, api, version, 7, -1))
        found.append(peer.is_closed())
    return found


@case(VERSIONS, "an unknown request, a negative length and an absurd length close the connection")
def nonsense(log):
    found = []
    for data in (
        struct.pack(">ihhih", 10, 9999, 0, 7, -1),
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
    ):
        peer = log.connect_only()
        peer.send_bytes(data)
        found.append(peer.is_closed())
    return found


@case(VERSIONS, "a truncated request closes the connection")
def cut_short(log):
    peer = log.connect_only()
    peer.send_bytes(struct.pack(">ihhih", 10, Api.METADATA, 1, 7, 50))
    return peer.is_closed()


OTHER_VERSIONS = (Api.PRODUCE, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN)


def ranges(log, apis):
    answer = log.ask(Api.API_VERSIONS, 3, CLIENT)
    found = {each.api_key: [each.min_version, each.max_version] for each in answer.api_keys}
    return {Api(api).name.lower(): found.get(api) for api in apis}


@case(VERSIONS, "every API that clients use is served in the same versions, with three exceptions")
def served(log):
    return ranges(log, [api for api in Api if api not in OTHER_VERSIONS])


@case(
    VERSIONS,
    "Produce, InitProducerId and AddPartitionsToTxn",
    differs="Kafka lists Produce 0 to 2 for old clients and rejects them; Headrace knows InitProducerId 6,"
    " whose two-phase commit it rejects; AddPartitionsToTxn from 4 on is for communication between brokers",
)
def served_otherwise(log):
    return ranges(log, OTHER_VERSIONS)


@case(VERSIONS, "the version of transactions is announced as a feature")
def features(log):
    answer = log.ask(Api.API_VERSIONS, 3, CLIENT)
    found = {each.name: each.max_version_level for each in answer.finalized_features}
    return found.get("transaction.version")


@case(CLUSTER, "DescribeCluster: one node, which is the controller; operations only on request")
def cluster(log):
    plain = log.ask(Api.DESCRIBE_CLUSTER, 0, {})
    asked = log.ask(Api.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True})
    return [
        code(plain.error_code),
        bool(plain.cluster_id),
        plain.controller_id,
        [[each.broker_id, each.host, each.rack] for each in plain.brokers],
        plain.cluster_authorized_operations,
        asked.cluster_authorized_operations,
    ]


@case(CLUSTER, "asking a broker for the controllers is MISMATCHED_ENDPOINT_TYPE")
def controllers(log):
    return [code(log.ask(Api.DESCRIBE_CLUSTER, 1, {"endpoint_type": kind}).error_code) for kind in (1, 2, 9)]


@case(CLUSTER, "the cluster id is the same in every response")
def cluster_id(log):
    metadata = log.ask(Api.METADATA, 9, {"topics": []})
    return [log.ask(Api.DESCRIBE_CLUSTER, 0, {}).cluster_id == metadata.cluster_id, metadata.controller_id]


def find(log, kind, *keys):
    answer = log.ask(Api.FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": list(keys)})
    return [[each.key, code(each.error_code), each.node_id] for each in answer.coordinators]


@case(COORDINATORS, "of groups and of transactions, several at once")
def coordinators(log):
    return [find(log, 0, "one", "two"), find(log, 1, "one"), find(log, 0), find(log, 0, "")]


@case(COORDINATORS, "of an unknown kind are INVALID_REQUEST")
def unknown_kind(log):
    try:
        return find(log, 9, "one")
    except RetriableError:
        return "closed"


@case(COORDINATORS, "in the older versions one at a time")
def older(log):
    answer = log.ask(Api.FIND_COORDINATOR, 3, {"key": "one", "key_type": 0})
    oldest = log.ask(Api.FIND_COORDINATOR, 0, {"key": "one"})
    return [[code(each.error_code), each.node_id] for each in (answer, oldest)]


@case(COORDINATORS, "of share groups by group, topic and partition; another key is INVALID_REQUEST")
def share(log):
    topic_id = log.topic_id(log.topic())
    spelled = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    good = log.settled(
        lambda: log.ask(
            Api.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [f"g:{spelled}:0"]}
        ).coordinators[0]
    )
    return [code(good.error_code), [row[1] for row in find(log, 2, "nonsense")]]
