"""One file a family of APIs; this table says which handler serves which versions.

A handler takes the broker and the decoded request and returns the answer's
fields (see `wire`). It decides nothing that a pure room could decide.
"""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.apis import (
    access,
    client_quotas,
    cluster,
    configs,
    fetch,
    groups,
    offsets,
    share,
    topics,
    transaction_admin,
    transactions,
)
from headrace.wire import Api, VersionRange

__all__ = ["HANDLERS", "Handler"]


@dataclasses.dataclass(frozen=True, slots=True)
class Handler:
    """What answers an API, and for which versions."""

    call: Callable[..., Awaitable[Any]]
    versions: VersionRange


async def _produce(*_: Any) -> Any:
    raise AssertionError("produce requests are pipelined: Broker.start_produce serves them")


HANDLERS: dict[int, Handler] = {
    Api.PRODUCE: Handler(_produce, VersionRange(3, 13)),
    Api.FETCH: Handler(fetch.fetch, VersionRange(4, 18)),
    Api.LIST_OFFSETS: Handler(offsets.list_offsets, VersionRange(1, 11)),
    Api.METADATA: Handler(topics.metadata, VersionRange(0, 13)),
    Api.API_VERSIONS: Handler(cluster.api_versions, VersionRange(0, 4)),
    Api.CREATE_TOPICS: Handler(topics.create_topics, VersionRange(2, 7)),
    Api.DELETE_TOPICS: Handler(topics.delete_topics, VersionRange(1, 6)),
    Api.DELETE_RECORDS: Handler(offsets.delete_records, VersionRange(0, 2)),
    Api.OFFSET_FOR_LEADER_EPOCH: Handler(offsets.offset_for_leader_epoch, VersionRange(2, 4)),
    Api.DESCRIBE_CONFIGS: Handler(configs.describe_configs, VersionRange(1, 4)),
    Api.ALTER_CONFIGS: Handler(configs.alter_configs, VersionRange(0, 2)),
    Api.DESCRIBE_LOG_DIRS: Handler(cluster.describe_log_dirs, VersionRange(1, 5)),
    Api.CREATE_PARTITIONS: Handler(topics.create_partitions, VersionRange(0, 3)),
    Api.INCREMENTAL_ALTER_CONFIGS: Handler(configs.incremental_alter_configs, VersionRange(0, 1)),
    Api.DESCRIBE_CLUSTER: Handler(cluster.describe_cluster, VersionRange(0, 2)),
    Api.LIST_CONFIG_RESOURCES: Handler(configs.list_config_resources, VersionRange(0, 1)),
    Api.DESCRIBE_TOPIC_PARTITIONS: Handler(topics.describe_topic_partitions, VersionRange(0, 0)),
    **{api: Handler(call, versions) for api, (call, versions) in groups.HANDLERS.items()},
    **{api: Handler(call, versions) for api, (call, versions) in share.HANDLERS.items()},
    **{api: Handler(call, versions) for api, (call, versions) in access.HANDLERS.items()},
    **{api: Handler(call, versions) for api, (call, versions) in client_quotas.HANDLERS.items()},
    **{api: Handler(call, versions) for api, (call, versions) in transactions.HANDLERS.items()},
    **{api: Handler(call, versions) for api, (call, versions) in transaction_admin.HANDLERS.items()},
}
