"""What the broker is: versions, cluster, disks."""

import re
import shutil
from typing import TYPE_CHECKING, Any

from headrace.broker.access.acls import Resource, operations_on
from headrace.wire import Api, ErrorCode, Frame, Request, encode_response

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = [
    "EVERYTHING",
    "api_versions",
    "describe_cluster",
    "describe_log_dirs",
    "unsupported_version",
]

# Clients that know it bump their epoch with each transaction, and add partitions by producing to them.
TRANSACTION_VERSION = 2
# Share groups are served.
SHARE_VERSION = 1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_BROKERS, _CONTROLLERS = 1, 2  # kinds of endpoints

EVERYTHING = sum(1 << operation for operation in operations_on(Resource.CLUSTER))


def _is_named_badly(request: Request) -> bool:
    """Since version 3 a client says what it is, in names that can stand in metrics."""
    body = request.body
    names = (body.client_software_name, body.client_software_version)
    return request.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names)


async def api_versions(broker: "Broker", request: Request) -> dict[str, Any]:  # noqa: ARG001 - a handler's form
    """The APIs and versions served, the protocol of transactions (KIP-890, both parts) and share groups."""
    if _is_named_badly(request):
        return {"error_code": int(ErrorCode.invalid_request)}
    features = {"share.version": SHARE_VERSION, "transaction.version": TRANSACTION_VERSION}
    return {
        "api_keys": _served(),
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": version} for name, version in features.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": version, "max_version_level": version}
            for name, version in features.items()
        ],
    }


def unsupported_version(broker: "Broker", correlation_id: int) -> Frame:  # noqa: ARG001 - may depend on it later
    """The answer to an ApiVersions request from the future: in version 0, with what is served."""
    fields = {"error_code": int(ErrorCode.unsupported_version), "api_keys": _served()}
    return encode_response(Api.API_VERSIONS, 0, correlation_id, fields)


def _served() -> list[dict[str, int]]:
    from headrace.broker.apis import HANDLERS

    return [
        {"api_key": api, "min_version": handler.versions.lowest, "max_version": handler.versions.highest}
        for api, handler in sorted(HANDLERS.items())
    ]


async def describe_cluster(broker: "Broker", request: Request) -> dict[str, Any]:
    """A cluster of one; where nobody has to log in, everybody may do everything to it."""
    kind = request.body.endpoint_type
    if kind != _BROKERS:
        code = (
            ErrorCode.mismatched_endpoint_type
            if kind == _CONTROLLERS
            else ErrorCode.unsupported_endpoint_type
        )
        return {"error_code": int(code), "error_message": "this is a broker; ask for brokers (1)"}
    host, port = broker.advertised(request)
    asked = request.body.include_cluster_authorized_operations
    return {
        **({"cluster_authorized_operations": EVERYTHING} if asked else {}),
        "endpoint_type": request.body.endpoint_type,
        "cluster_id": broker.directory.cluster_id,
        "controller_id": broker.settings.node_id,
        "brokers": [{"broker_id": broker.settings.node_id, "host": host, "port": port}],
    }


async def describe_log_dirs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Bytes on disk per partition."""
    wanted = request.body.topics
    chosen = None if wanted is None else {topic.topic: set(topic.partitions) for topic in wanted}
    disk = shutil.disk_usage(broker.settings.data)
    topics = []
    for topic in broker.topics.all():
        if chosen is not None and topic.name not in chosen:
            continue
        sizes = [
            {"partition_index": index, "partition_size": log.size_bytes}
            for index, log in enumerate(topic.partitions)
            if chosen is None or index in chosen[topic.name]
        ]
        topics.append({"name": topic.name, "partitions": sizes})
    result = {
        "log_dir": broker.settings.data,
        "topics": topics,
        "total_bytes": disk.total,
        "usable_bytes": disk.free,
    }
    return {"results": [result]}
