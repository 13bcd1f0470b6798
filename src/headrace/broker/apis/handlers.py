"""The table that says which handler serves which API, with the services that each family uses."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from headrace.broker.apis.admin import (
    AccessApis,
    ConfigApis,
    GroupAdminApis,
    QueueAdminApis,
    QuotaApis,
    TopicApis,
    TransactionAdminApis,
)
from headrace.broker.apis.answers import Reply
from headrace.broker.apis.committed_offsets import CommittedOffsetApis
from headrace.broker.apis.groups import GroupApis
from headrace.broker.apis.metadata import MetadataApis
from headrace.broker.apis.queues import QueueApis
from headrace.broker.apis.records import FetchApis, Fetching, OffsetApis
from headrace.broker.apis.sasl import SaslApis
from headrace.broker.apis.transactions import TransactionApis
from headrace.broker.services import Services
from headrace.wire import Api, Request

__all__ = ["Handler", "handlers"]

Handler: TypeAlias = Callable[[Request], Awaitable[Reply | dict[str, Any]]]
"""Answers a request of one API, in any version that is served."""


def handlers(
    services: Services, fetching: Fetching, sasl: SaslApis, expel: Callable[[str], None]
) -> dict[int, Handler]:
    """Every API but Produce, whose requests are pipelined (`produce`)."""
    return {
        **_records(services, fetching),
        **_metadata(services),
        **_groups(services),
        **_queues(services),
        **_transactions(services),
        **_topics(services),
        **_access(services, sasl, expel),
    }


def _records(services: Services, fetching: Fetching) -> dict[int, Handler]:
    offsets = OffsetApis(topics=services.topics, threads=services.threads)
    return {
        Api.FETCH: FetchApis(fetching).fetch,
        Api.LIST_OFFSETS: offsets.list_offsets,
        Api.DELETE_RECORDS: offsets.delete_records,
        Api.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    }


def _metadata(services: Services) -> dict[int, Handler]:
    metadata = MetadataApis(
        settings=services.settings, topics=services.topics, cluster_id=services.directory.cluster_id
    )
    return {
        Api.API_VERSIONS: metadata.api_versions,
        Api.METADATA: metadata.metadata,
        Api.DESCRIBE_CLUSTER: metadata.describe_cluster,
        Api.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    }


def _groups(services: Services) -> dict[int, Handler]:
    groups = GroupApis(settings=services.settings, groups=services.groups)
    offsets = CommittedOffsetApis(
        topics=services.topics,
        groups=services.groups,
        pending_offsets=services.pending_offsets,
        clock=services.clock,
    )
    admin = GroupAdminApis(topics=services.topics, groups=services.groups, queues=services.queues)
    return {
        Api.FIND_COORDINATOR: groups.find_coordinator,
        Api.JOIN_GROUP: groups.join_group,
        Api.SYNC_GROUP: groups.sync_group,
        Api.HEARTBEAT: groups.heartbeat,
        Api.LEAVE_GROUP: groups.leave_group,
        Api.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
        Api.OFFSET_COMMIT: offsets.offset_commit,
        Api.OFFSET_FETCH: offsets.offset_fetch,
        Api.OFFSET_DELETE: offsets.offset_delete,
        Api.DESCRIBE_GROUPS: admin.describe_groups,
        Api.LIST_GROUPS: admin.list_groups,
        Api.DELETE_GROUPS: admin.delete_groups,
        Api.CONSUMER_GROUP_DESCRIBE: admin.consumer_group_describe,
    }


def _queues(services: Services) -> dict[int, Handler]:
    queues = QueueApis(
        settings=services.settings,
        topics=services.topics,
        groups=services.groups,
        queues=services.queues,
        quotas=services.quotas,
        threads=services.threads,
    )
    admin = QueueAdminApis(topics=services.topics, groups=services.groups, queues=services.queues)
    return {
        Api.SHARE_GROUP_HEARTBEAT: queues.share_group_heartbeat,
        Api.SHARE_FETCH: queues.share_fetch,
        Api.SHARE_ACKNOWLEDGE: queues.share_acknowledge,
        Api.SHARE_GROUP_DESCRIBE: admin.share_group_describe,
        Api.DESCRIBE_SHARE_GROUP_OFFSETS: admin.describe_share_group_offsets,
        Api.ALTER_SHARE_GROUP_OFFSETS: admin.alter_share_group_offsets,
        Api.DELETE_SHARE_GROUP_OFFSETS: admin.delete_share_group_offsets,
    }


def _transactions(services: Services) -> dict[int, Handler]:
    transactions = TransactionApis(
        topics=services.topics,
        directory=services.directory,
        transactions=services.transactions,
        pending_offsets=services.pending_offsets,
        clock=services.clock,
        threads=services.threads,
    )
    admin = TransactionAdminApis(
        topics=services.topics, transactions=services.transactions, clock=services.clock
    )
    return {
        Api.INIT_PRODUCER_ID: transactions.init_producer_id,
        Api.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
        Api.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
        Api.END_TXN: transactions.end_txn,
        Api.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
        Api.DESCRIBE_PRODUCERS: admin.describe_producers,
        Api.DESCRIBE_TRANSACTIONS: admin.describe_transactions,
        Api.LIST_TRANSACTIONS: admin.list_transactions,
    }


def _topics(services: Services) -> dict[int, Handler]:
    topics = TopicApis(settings=services.settings, topics=services.topics)
    configs = ConfigApis(
        settings=services.settings,
        topics=services.topics,
        queues=services.queues,
        dead_letters=services.dead_letters,
    )
    return {
        Api.CREATE_TOPICS: topics.create_topics,
        Api.DELETE_TOPICS: topics.delete_topics,
        Api.CREATE_PARTITIONS: topics.create_partitions,
        Api.DESCRIBE_LOG_DIRS: topics.describe_log_dirs,
        Api.DESCRIBE_CONFIGS: configs.describe_configs,
        Api.ALTER_CONFIGS: configs.alter_configs,
        Api.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
        Api.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    }


def _access(services: Services, sasl: SaslApis, expel: Callable[[str], None]) -> dict[int, Handler]:
    access = AccessApis(access=services.access, expel=expel)
    quotas = QuotaApis(quotas=services.quotas)
    return {
        Api.SASL_HANDSHAKE: sasl.handshake,
        Api.SASL_AUTHENTICATE: sasl.authenticate,
        Api.DESCRIBE_ACLS: access.describe_acls,
        Api.CREATE_ACLS: access.create_acls,
        Api.DELETE_ACLS: access.delete_acls,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: access.describe_user_scram_credentials,
        Api.ALTER_USER_SCRAM_CREDENTIALS: access.alter_user_scram_credentials,
        Api.DESCRIBE_CLIENT_QUOTAS: quotas.describe_client_quotas,
        Api.ALTER_CLIENT_QUOTAS: quotas.alter_client_quotas,
    }
