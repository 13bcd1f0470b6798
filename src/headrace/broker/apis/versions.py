"""Which versions of which APIs are served; what ApiVersions answers."""

from headrace.wire import Api, VersionRange

__all__ = ["VERSIONS"]

VERSIONS: dict[int, VersionRange] = {
    # records
    Api.PRODUCE: VersionRange(3, 13),
    Api.FETCH: VersionRange(4, 18),
    Api.LIST_OFFSETS: VersionRange(1, 11),
    Api.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
    # where everything is
    Api.API_VERSIONS: VersionRange(0, 4),
    Api.METADATA: VersionRange(0, 13),
    Api.DESCRIBE_CLUSTER: VersionRange(0, 2),
    Api.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
    # logging in
    Api.SASL_HANDSHAKE: VersionRange(0, 1),
    Api.SASL_AUTHENTICATE: VersionRange(0, 2),
    # consumer groups
    Api.FIND_COORDINATOR: VersionRange(0, 6),
    Api.JOIN_GROUP: VersionRange(0, 9),
    Api.SYNC_GROUP: VersionRange(0, 5),
    Api.HEARTBEAT: VersionRange(0, 4),
    Api.LEAVE_GROUP: VersionRange(0, 5),
    Api.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1),
    Api.OFFSET_COMMIT: VersionRange(2, 10),
    Api.OFFSET_FETCH: VersionRange(1, 10),
    Api.OFFSET_DELETE: VersionRange(0, 0),
    Api.DESCRIBE_GROUPS: VersionRange(0, 6),
    Api.LIST_GROUPS: VersionRange(0, 5),
    Api.DELETE_GROUPS: VersionRange(0, 2),
    Api.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
    # queues
    Api.SHARE_GROUP_HEARTBEAT: VersionRange(1, 1),
    Api.SHARE_FETCH: VersionRange(1, 2),
    Api.SHARE_ACKNOWLEDGE: VersionRange(1, 2),
    Api.SHARE_GROUP_DESCRIBE: VersionRange(1, 1),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: VersionRange(0, 1),
    Api.ALTER_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
    Api.DELETE_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
    # transactions
    Api.INIT_PRODUCER_ID: VersionRange(0, 6),
    Api.ADD_PARTITIONS_TO_TXN: VersionRange(0, 3),
    Api.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    Api.END_TXN: VersionRange(0, 5),
    Api.TXN_OFFSET_COMMIT: VersionRange(0, 5),
    Api.DESCRIBE_PRODUCERS: VersionRange(0, 0),
    Api.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    Api.LIST_TRANSACTIONS: VersionRange(0, 2),
    # administration
    Api.CREATE_TOPICS: VersionRange(2, 7),
    Api.DELETE_TOPICS: VersionRange(1, 6),
    Api.CREATE_PARTITIONS: VersionRange(0, 3),
    Api.DELETE_RECORDS: VersionRange(0, 2),
    Api.DESCRIBE_LOG_DIRS: VersionRange(1, 5),
    Api.DESCRIBE_CONFIGS: VersionRange(1, 4),
    Api.ALTER_CONFIGS: VersionRange(0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    Api.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
    Api.DESCRIBE_ACLS: VersionRange(1, 3),
    Api.CREATE_ACLS: VersionRange(1, 3),
    Api.DELETE_ACLS: VersionRange(1, 3),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    Api.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    Api.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
}
