"""Where everything is: the versions served, this broker's address, topics and their partitions."""

import dataclasses
import re
from typing import Any

from headrace.addresses import host_and_port
from headrace.broker.access import Resource, operations_on
from headrace.broker.apis.versions import VERSIONS
from headrace.broker.log import INTERNAL_TOPICS, Topics
from headrace.broker.settings import BrokerSettings
from headrace.errors import HeadraceError, RequestError
from headrace.storage import Topic, check_topic_name
from headrace.wire import Api, ErrorCode, Frame, Request, encode_response

__all__ = ["MetadataApis", "advertised", "unsupported_version"]

# Clients that know it bump their epoch with each transaction, and add partitions by producing to them.
TRANSACTION_VERSION = 2
# Share groups are served.
SHARE_VERSION = 1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_BROKERS, _CONTROLLERS = 1, 2  # kinds of endpoints

EVERYTHING = sum(1 << operation for operation in operations_on(Resource.CLUSTER))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetadataApis:
    """What clients ask first: what is served, and where."""

    settings: BrokerSettings
    topics: Topics
    cluster_id: str

    async def api_versions(self, request: Request) -> dict[str, Any]:
        """What is served: APIs, versions, transactions (KIP-890, both parts) and share groups."""
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

    async def describe_cluster(self, request: Request) -> dict[str, Any]:
        """A cluster of one; without permissions everybody may do everything to it."""
        kind = request.body.endpoint_type
        if kind != _BROKERS:
            code = (
                ErrorCode.mismatched_endpoint_type
                if kind == _CONTROLLERS
                else ErrorCode.unsupported_endpoint_type
            )
            return {"error_code": int(code), "error_message": "this is a broker; ask for brokers (1)"}
        host, port = advertised(self.settings, request)
        asked = request.body.include_cluster_authorized_operations
        return {
            **({"cluster_authorized_operations": EVERYTHING} if asked else {}),
            "endpoint_type": request.body.endpoint_type,
            "cluster_id": self.cluster_id,
            "controller_id": self.settings.node_id,
            "brokers": [{"broker_id": self.settings.node_id, "host": host, "port": port}],
        }

    async def metadata(self, request: Request) -> dict[str, Any]:
        """Who serves which partition: always us."""
        wanted = request.body.topics
        if wanted is None or (request.api_version == 0 and not wanted):
            topics = [self._described(topic) for topic in self.topics.all()]
        else:
            topics = [await self._wanted(request, topic) for topic in wanted]
        host, port = advertised(self.settings, request)
        asked = request.body.include_cluster_authorized_operations
        return {
            **({"cluster_authorized_operations": EVERYTHING} if asked else {}),
            "brokers": [{"node_id": self.settings.node_id, "host": host, "port": port}],
            "cluster_id": self.cluster_id,
            "controller_id": self.settings.node_id,
            "topics": topics,
        }

    async def _wanted(self, request: Request, wanted: Any) -> dict[str, Any]:
        topic = self.topics.find(wanted.name, wanted.topic_id)
        if topic is not None:
            return self._described(topic)
        answer = {"name": wanted.name, "topic_id": wanted.topic_id}
        if wanted.topic_id is not None:
            return {**answer, "error_code": int(ErrorCode.unknown_topic_id)}
        try:
            check_topic_name(wanted.name or "")
            if not (request.body.allow_auto_topic_creation and self.settings.auto_create_topics):
                return {**answer, "error_code": int(ErrorCode.unknown_topic_or_partition)}
            return self._described(await self._auto_create(wanted.name))
        except HeadraceError as error:
            return {
                **answer,
                "error_code": int(
                    error.code if isinstance(error, RequestError) else ErrorCode.kafka_storage_error
                ),
            }

    async def _auto_create(self, name: str) -> Topic:
        try:
            return await self.topics.create(name, self.settings.default_partitions, {})
        except RequestError as error:
            topic = self.topics.named(name)
            if error.code == ErrorCode.topic_already_exists and topic is not None:  # someone else was faster
                return topic
            raise

    def _described(self, topic: Topic) -> dict[str, Any]:
        return {
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self._partition(index) for index in range(len(topic.partitions))],
        }

    def _partition(self, index: int) -> dict[str, Any]:
        node = (self.settings.node_id,)
        return {
            "partition_index": index,
            "leader_id": node[0],
            "leader_epoch": 0,
            "replica_nodes": node,
            "isr_nodes": node,
        }

    async def describe_topic_partitions(self, request: Request) -> dict[str, Any]:
        """Topics and their partitions in pages of at most `response_partition_limit` partitions."""
        body = request.body
        names = sorted({topic.name for topic in body.topics}) or [topic.name for topic in self.topics.all()]
        from_name, from_index = (
            (body.cursor.topic_name, body.cursor.partition_index) if body.cursor else ("", 0)
        )
        left, topics, cursor = min(max(body.response_partition_limit, 1), 2000), [], None
        for name in (name for name in names if name >= from_name):
            topic = self.topics.named(name)
            if topic is None:
                topics.append({"name": name, "error_code": _why_unknown(name)})
                continue
            first = from_index if name == from_name else 0
            described = self._described(topic)
            page = described["partitions"][first : first + left]
            # Java's admin client takes null here for a mistake.
            partitions = [{**each, "eligible_leader_replicas": (), "last_known_elr": ()} for each in page]
            if partitions or not described["partitions"]:
                topics.append({**described, "partitions": partitions})
            left -= len(partitions)
            if first + len(partitions) < len(described["partitions"]):
                cursor = {"topic_name": name, "partition_index": first + len(partitions)}
                break
        return {"topics": topics, "next_cursor": cursor}


def advertised(settings: BrokerSettings, request: Request) -> tuple[str, int]:
    """The address that a client is given for this broker: what is configured, or where it reached us."""
    if settings.advertise:
        return host_and_port("advertise", settings.advertise)
    return request.local_address


def unsupported_version(correlation_id: int) -> Frame:
    """The answer to an ApiVersions request from the future: in version 0, with what is served."""
    fields = {"error_code": int(ErrorCode.unsupported_version), "api_keys": _served()}
    return encode_response(Api.API_VERSIONS, 0, correlation_id, fields)


def _served() -> list[dict[str, int]]:
    return [
        {"api_key": api, "min_version": versions.lowest, "max_version": versions.highest}
        for api, versions in sorted(VERSIONS.items())
    ]


def _is_named_badly(request: Request) -> bool:
    """Since version 3 a client says what it is, in names that can stand in metrics."""
    body = request.body
    names = (body.client_software_name, body.client_software_version)
    return request.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names)


def _why_unknown(name: str) -> int:
    try:
        check_topic_name(name)
    except RequestError as error:
        return error.code
    return int(ErrorCode.unknown_topic_or_partition)
