"""Kafka's messages: generated from kio by tools/generate_schemas.py, not edited by hand.

A field stands at its place in the versions from `first` to `last`; a tagged one has
its tag. `of` are the fields of a structure. Names and kinds are kio's.
"""

# fmt: off

from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["MESSAGES", "ErrorCode", "Field", "Message"]


class Field(NamedTuple):
    """One field of a message, for a range of versions."""

    name: str
    kind: str
    first: int
    last: int
    default: Any = 0
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    of: "tuple[Field, ...]" = ()


class Message(NamedTuple):
    """An API: its name, its versions, and its two messages."""

    name: str
    first: int
    last: int
    flexible_request: int
    flexible_response: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]


class ErrorCode(IntEnum):
    """Kafka's error codes."""

    unknown_server_error = -1
    none = 0
    offset_out_of_range = 1
    corrupt_message = 2
    unknown_topic_or_partition = 3
    invalid_fetch_size = 4
    leader_not_available = 5
    not_leader_or_follower = 6
    request_timed_out = 7
    broker_not_available = 8
    replica_not_available = 9
    message_too_large = 10
    stale_controller_epoch = 11
    offset_metadata_too_large = 12
    network_exception = 13
    coordinator_load_in_progress = 14
    coordinator_not_available = 15
    not_coordinator = 16
    invalid_topic_exception = 17
    record_list_too_large = 18
    not_enough_replicas = 19
    not_enough_replicas_after_append = 20
    invalid_required_acks = 21
    illegal_generation = 22
    inconsistent_group_protocol = 23
    invalid_group_id = 24
    unknown_member_id = 25
    invalid_session_timeout = 26
    rebalance_in_progress = 27
    invalid_commit_offset_size = 28
    topic_authorization_failed = 29
    group_authorization_failed = 30
    cluster_authorization_failed = 31
    invalid_timestamp = 32
    unsupported_sasl_mechanism = 33
    illegal_sasl_state = 34
    unsupported_version = 35
    topic_already_exists = 36
    invalid_partitions = 37
    invalid_replication_factor = 38
    invalid_replica_assignment = 39
    invalid_config = 40
    not_controller = 41
    invalid_request = 42
    unsupported_for_message_format = 43
    policy_violation = 44
    out_of_order_sequence_number = 45
    duplicate_sequence_number = 46
    invalid_producer_epoch = 47
    invalid_txn_state = 48
    invalid_producer_id_mapping = 49
    invalid_transaction_timeout = 50
    concurrent_transactions = 51
    transaction_coordinator_fenced = 52
    transactional_id_authorization_failed = 53
    security_disabled = 54
    operation_not_attempted = 55
    kafka_storage_error = 56
    log_dir_not_found = 57
    sasl_authentication_failed = 58
    unknown_producer_id = 59
    reassignment_in_progress = 60
    delegation_token_auth_disabled = 61
    delegation_token_not_found = 62
    delegation_token_owner_mismatch = 63
    delegation_token_request_not_allowed = 64
    delegation_token_authorization_failed = 65
    delegation_token_expired = 66
    invalid_principal_type = 67
    non_empty_group = 68
    group_id_not_found = 69
    fetch_session_id_not_found = 70
    invalid_fetch_session_epoch = 71
    listener_not_found = 72
    topic_deletion_disabled = 73
    fenced_leader_epoch = 74
    unknown_leader_epoch = 75
    unsupported_compression_type = 76
    stale_broker_epoch = 77
    offset_not_available = 78
    member_id_required = 79
    preferred_leader_not_available = 80
    group_max_size_reached = 81
    fenced_instance_id = 82
    eligible_leaders_not_available = 83
    election_not_needed = 84
    no_reassignment_in_progress = 85
    group_subscribed_to_topic = 86
    invalid_record = 87
    unstable_offset_commit = 88
    throttling_quota_exceeded = 89
    producer_fenced = 90
    resource_not_found = 91
    duplicate_resource = 92
    unacceptable_credential = 93
    inconsistent_voter_set = 94
    invalid_update_version = 95
    feature_update_failed = 96
    principal_deserialization_failure = 97
    snapshot_not_found = 98
    position_out_of_range = 99
    unknown_topic_id = 100
    duplicate_broker_registration = 101
    broker_id_not_registered = 102
    inconsistent_topic_id = 103
    inconsistent_cluster_id = 104
    transactional_id_not_found = 105
    fetch_session_topic_id_error = 106
    ineligible_replica = 107
    new_leader_elected = 108
    offset_moved_to_tiered_storage = 109
    fenced_member_epoch = 110
    unreleased_instance_id = 111
    unsupported_assignor = 112
    stale_member_epoch = 113
    mismatched_endpoint_type = 114
    unsupported_endpoint_type = 115
    unknown_controller_id = 116
    unknown_subscription_id = 117
    telemetry_too_large = 118
    invalid_registration = 119
    transaction_abortable = 120
    invalid_record_state = 121
    share_session_not_found = 122
    invalid_share_session_epoch = 123
    fenced_state_epoch = 124
    invalid_voter_key = 125
    duplicate_voter = 126
    voter_not_found = 127
    invalid_regular_expression = 128
    rebootstrap_required = 129
    streams_invalid_topology = 130
    streams_invalid_topology_epoch = 131
    streams_topology_fenced = 132
    share_session_limit_reached = 133


MESSAGES: dict[int, Message] = {}

MESSAGES[0] = Message(
    "produce", 3, 13, 9, 9,
    (
        Field("transactional_id", "string", 3, 13, default=None, nullable=True),
        Field("acks", "int16", 3, 13),
        Field("timeout", "timedelta_i32", 3, 13),
        Field("topic_data", "struct", 3, 13, default=(), array=True, of=(
            Field("topic_id", "uuid", 13, 13, default=None),
            Field("name", "string", 3, 12, default=""),
            Field("partition_data", "struct", 3, 13, default=(), array=True, of=(
                Field("index", "int32", 3, 13),
                Field("records", "records", 3, 13, default=None, nullable=True),
            )),
        )),
    ),
    (
        Field("responses", "struct", 3, 13, default=(), array=True, of=(
            Field("topic_id", "uuid", 13, 13, default=None),
            Field("name", "string", 3, 12, default=""),
            Field("partition_responses", "struct", 3, 13, default=(), array=True, of=(
                Field("index", "int32", 3, 13),
                Field("error_code", "error_code", 3, 13),
                Field("base_offset", "int64", 3, 13),
                Field("log_append_time", "datetime_i64", 3, 13, default=-1),
                Field("log_start_offset", "int64", 5, 13, default=-1),
                Field("record_errors", "struct", 8, 13, default=(), array=True, of=(
                    Field("batch_index", "int32", 8, 13),
                    Field("batch_index_error_message", "string", 8, 13, default=None, nullable=True),
                )),
                Field("error_message", "string", 8, 13, default=None, nullable=True),
                Field("current_leader", "struct", 10, 13, default=None, tag=0, of=(
                    Field("leader_id", "int32", 10, 13, default=-1),
                    Field("leader_epoch", "int32", 10, 13, default=-1),
                )),
            )),
        )),
        Field("throttle_time", "timedelta_i32", 3, 13),
        Field("node_endpoints", "struct", 10, 13, default=(), array=True, tag=0, of=(
            Field("node_id", "int32", 10, 13),
            Field("host", "string", 10, 13, default=""),
            Field("port", "int32", 10, 13),
            Field("rack", "string", 10, 13, default=None, nullable=True),
        )),
    ),
)

MESSAGES[1] = Message(
    "fetch", 4, 18, 12, 12,
    (
        Field("cluster_id", "string", 12, 18, default=None, nullable=True, tag=0),
        Field("replica_state", "struct", 15, 18, default=None, tag=1, of=(
            Field("replica_id", "int32", 15, 18, default=-1),
            Field("replica_epoch", "int64", 15, 18, default=-1),
        )),
        Field("replica_id", "int32", 4, 14, default=-1),
        Field("max_wait", "timedelta_i32", 4, 18),
        Field("min_bytes", "int32", 4, 18),
        Field("max_bytes", "int32", 4, 18, default=2147483647),
        Field("isolation_level", "int8", 4, 18),
        Field("session_id", "int32", 7, 18),
        Field("session_epoch", "int32", 7, 18, default=-1),
        Field("topics", "struct", 4, 18, default=(), array=True, of=(
            Field("topic_id", "uuid", 13, 18, default=None),
            Field("topic", "string", 4, 12, default=""),
            Field("partitions", "struct", 4, 18, default=(), array=True, of=(
                Field("partition", "int32", 4, 18),
                Field("current_leader_epoch", "int32", 9, 18, default=-1),
                Field("fetch_offset", "int64", 4, 18),
                Field("last_fetched_epoch", "int32", 12, 18, default=-1),
                Field("log_start_offset", "int64", 5, 18, default=-1),
                Field("partition_max_bytes", "int32", 4, 18),
                Field("replica_directory_id", "uuid", 17, 18, default=None, tag=0),
                Field("high_watermark", "int64", 18, 18, default=9223372036854775807, tag=1),
            )),
        )),
        Field("forgotten_topics_data", "struct", 7, 18, default=(), array=True, of=(
            Field("topic_id", "uuid", 13, 18, default=None),
            Field("topic", "string", 7, 12, default=""),
            Field("partitions", "int32", 7, 18, default=(), array=True),
        )),
        Field("rack_id", "string", 11, 18, default=""),
    ),
    (
        Field("throttle_time", "timedelta_i32", 4, 18),
        Field("error_code", "error_code", 7, 18),
        Field("session_id", "int32", 7, 18),
        Field("responses", "struct", 4, 18, default=(), array=True, of=(
            Field("topic_id", "uuid", 13, 18, default=None),
            Field("topic", "string", 4, 12, default=""),
            Field("partitions", "struct", 4, 18, default=(), array=True, of=(
                Field("partition_index", "int32", 4, 18),
                Field("error_code", "error_code", 4, 18),
                Field("high_watermark", "int64", 4, 18),
                Field("last_stable_offset", "int64", 4, 18, default=-1),
                Field("log_start_offset", "int64", 5, 18, default=-1),
                Field("diverging_epoch", "struct", 12, 18, default=None, tag=0, of=(
                    Field("epoch", "int32", 12, 18, default=-1),
                    Field("end_offset", "int64", 12, 18, default=-1),
                )),
                Field("current_leader", "struct", 12, 18, default=None, tag=1, of=(
                    Field("leader_id", "int32", 12, 18, default=-1),
                    Field("leader_epoch", "int32", 12, 18, default=-1),
                )),
                Field("snapshot_id", "struct", 12, 18, default=None, tag=2, of=(
                    Field("end_offset", "int64", 12, 18, default=-1),
                    Field("epoch", "int32", 12, 18, default=-1),
                )),
                Field("aborted_transactions", "struct", 4, 18, default=(), array=True, nullable=True, of=(
                    Field("producer_id", "int64", 4, 18),
                    Field("first_offset", "int64", 4, 18),
                )),
                Field("preferred_read_replica", "int32", 11, 18, default=-1),
                Field("records", "records", 4, 18, default=None, nullable=True),
            )),
        )),
        Field("node_endpoints", "struct", 16, 18, default=(), array=True, tag=0, of=(
            Field("node_id", "int32", 16, 18),
            Field("host", "string", 16, 18, default=""),
            Field("port", "int32", 16, 18),
            Field("rack", "string", 16, 18, default=None, nullable=True),
        )),
    ),
)

MESSAGES[2] = Message(
    "list_offsets", 1, 11, 6, 6,
    (
        Field("replica_id", "int32", 1, 11),
        Field("isolation_level", "int8", 2, 11),
        Field("topics", "struct", 1, 11, default=(), array=True, of=(
            Field("name", "string", 1, 11, default=""),
            Field("partitions", "struct", 1, 11, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 11),
                Field("current_leader_epoch", "int32", 4, 11, default=-1),
                Field("timestamp", "int64", 1, 11),
            )),
        )),
        Field("timeout", "timedelta_i32", 10, 11),
    ),
    (
        Field("throttle_time", "timedelta_i32", 2, 11),
        Field("topics", "struct", 1, 11, default=(), array=True, of=(
            Field("name", "string", 1, 11, default=""),
            Field("partitions", "struct", 1, 11, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 11),
                Field("error_code", "error_code", 1, 11),
                Field("timestamp", "int64", 1, 11, default=-1),
                Field("offset", "int64", 1, 11, default=-1),
                Field("leader_epoch", "int32", 4, 11, default=-1),
            )),
        )),
    ),
)

MESSAGES[3] = Message(
    "metadata", 0, 13, 9, 9,
    (
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
        )),
        Field("topics", "struct", 1, 13, default=(), array=True, nullable=True, of=(
            Field("topic_id", "uuid", 10, 13, default=None),
            Field("name", "string", 1, 9, default=""),
            Field("name", "string", 10, 13, default=None, nullable=True),
        )),
        Field("allow_auto_topic_creation", "bool", 4, 13, default=True),
        Field("include_cluster_authorized_operations", "bool", 8, 10, default=False),
        Field("include_topic_authorized_operations", "bool", 8, 13, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 3, 13),
        Field("brokers", "struct", 0, 13, default=(), array=True, of=(
            Field("node_id", "int32", 0, 13),
            Field("host", "string", 0, 13, default=""),
            Field("port", "int32", 0, 13),
            Field("rack", "string", 1, 13, default=None, nullable=True),
        )),
        Field("cluster_id", "string", 2, 13, default=None, nullable=True),
        Field("controller_id", "int32", 1, 13, default=-1),
        Field("topics", "struct", 0, 13, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 13),
            Field("name", "string", 0, 11, default=""),
            Field("name", "string", 12, 13, default=None, nullable=True),
            Field("topic_id", "uuid", 10, 13, default=None),
            Field("is_internal", "bool", 1, 13, default=False),
            Field("partitions", "struct", 0, 13, default=(), array=True, of=(
                Field("error_code", "error_code", 0, 13),
                Field("partition_index", "int32", 0, 13),
                Field("leader_id", "int32", 0, 13),
                Field("leader_epoch", "int32", 7, 13, default=-1),
                Field("replica_nodes", "int32", 0, 13, default=(), array=True),
                Field("isr_nodes", "int32", 0, 13, default=(), array=True),
                Field("offline_replicas", "int32", 5, 13, default=(), array=True),
            )),
            Field("topic_authorized_operations", "int32", 8, 13, default=-2147483648),
        )),
        Field("error_code", "error_code", 13, 13),
        Field("cluster_authorized_operations", "int32", 8, 10, default=-2147483648),
    ),
)

MESSAGES[8] = Message(
    "offset_commit", 2, 10, 8, 8,
    (
        Field("group_id", "string", 2, 10, default=""),
        Field("generation_id_or_member_epoch", "int32", 2, 10, default=-1),
        Field("member_id", "string", 2, 10, default=""),
        Field("group_instance_id", "string", 7, 10, default=None, nullable=True),
        Field("retention_time", "timedelta_i64", 2, 4, default=-1),
        Field("topics", "struct", 2, 10, default=(), array=True, of=(
            Field("topic_id", "uuid", 10, 10, default=None),
            Field("name", "string", 2, 9, default=""),
            Field("partitions", "struct", 2, 10, default=(), array=True, of=(
                Field("partition_index", "int32", 2, 10),
                Field("committed_offset", "int64", 2, 10),
                Field("committed_leader_epoch", "int32", 6, 10, default=-1),
                Field("committed_metadata", "string", 2, 10, default=None, nullable=True),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 3, 10),
        Field("topics", "struct", 2, 10, default=(), array=True, of=(
            Field("topic_id", "uuid", 10, 10, default=None),
            Field("name", "string", 2, 9, default=""),
            Field("partitions", "struct", 2, 10, default=(), array=True, of=(
                Field("partition_index", "int32", 2, 10),
                Field("error_code", "error_code", 2, 10),
            )),
        )),
    ),
)

MESSAGES[9] = Message(
    "offset_fetch", 1, 10, 6, 6,
    (
        Field("groups", "struct", 8, 10, default=(), array=True, of=(
            Field("group_id", "string", 8, 10, default=""),
            Field("member_id", "string", 9, 10, default=None, nullable=True),
            Field("member_epoch", "int32", 9, 10, default=-1),
            Field("topics", "struct", 8, 10, default=(), array=True, nullable=True, of=(
                Field("topic_id", "uuid", 10, 10, default=None),
                Field("name", "string", 8, 9, default=""),
                Field("partition_indexes", "int32", 8, 10, default=(), array=True),
            )),
        )),
        Field("group_id", "string", 1, 7, default=""),
        Field("topics", "struct", 1, 1, default=(), array=True, of=(
            Field("name", "string", 1, 1, default=""),
            Field("partition_indexes", "int32", 1, 1, default=(), array=True),
        )),
        Field("topics", "struct", 2, 7, default=(), array=True, nullable=True, of=(
            Field("name", "string", 2, 7, default=""),
            Field("partition_indexes", "int32", 2, 7, default=(), array=True),
        )),
        Field("require_stable", "bool", 7, 10, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 3, 10),
        Field("groups", "struct", 8, 10, default=(), array=True, of=(
            Field("group_id", "string", 8, 10, default=""),
            Field("topics", "struct", 8, 10, default=(), array=True, of=(
                Field("topic_id", "uuid", 10, 10, default=None),
                Field("name", "string", 8, 9, default=""),
                Field("partitions", "struct", 8, 10, default=(), array=True, of=(
                    Field("partition_index", "int32", 8, 10),
                    Field("committed_offset", "int64", 8, 10),
                    Field("committed_leader_epoch", "int32", 8, 10, default=-1),
                    Field("metadata", "string", 8, 10, default=None, nullable=True),
                    Field("error_code", "error_code", 8, 10),
                )),
            )),
            Field("error_code", "error_code", 8, 10),
        )),
        Field("topics", "struct", 1, 7, default=(), array=True, of=(
            Field("name", "string", 1, 7, default=""),
            Field("partitions", "struct", 1, 7, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 7),
                Field("committed_offset", "int64", 1, 7),
                Field("committed_leader_epoch", "int32", 5, 7, default=-1),
                Field("metadata", "string", 1, 7, default=None, nullable=True),
                Field("error_code", "error_code", 1, 7),
            )),
        )),
        Field("error_code", "error_code", 2, 7),
    ),
)

MESSAGES[10] = Message(
    "find_coordinator", 0, 6, 3, 3,
    (
        Field("key", "string", 0, 3, default=""),
        Field("key_type", "int8", 1, 6),
        Field("coordinator_keys", "string", 4, 6, default=(), array=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 6),
        Field("coordinators", "struct", 4, 6, default=(), array=True, of=(
            Field("key", "string", 4, 6, default=""),
            Field("node_id", "int32", 4, 6),
            Field("host", "string", 4, 6, default=""),
            Field("port", "int32", 4, 6),
            Field("error_code", "error_code", 4, 6),
            Field("error_message", "string", 4, 6, default=None, nullable=True),
        )),
        Field("error_code", "error_code", 0, 3),
        Field("error_message", "string", 1, 3, default=None, nullable=True),
        Field("node_id", "int32", 0, 3),
        Field("host", "string", 0, 3, default=""),
        Field("port", "int32", 0, 3),
    ),
)

MESSAGES[11] = Message(
    "join_group", 0, 9, 6, 6,
    (
        Field("group_id", "string", 0, 9, default=""),
        Field("session_timeout", "timedelta_i32", 0, 9),
        Field("rebalance_timeout", "timedelta_i32", 1, 9, default=-1),
        Field("member_id", "string", 0, 9, default=""),
        Field("group_instance_id", "string", 5, 9, default=None, nullable=True),
        Field("protocol_type", "string", 0, 9, default=""),
        Field("protocols", "struct", 0, 9, default=(), array=True, of=(
            Field("name", "string", 0, 9, default=""),
            Field("metadata", "bytes", 0, 9, default=b""),
        )),
        Field("reason", "string", 8, 9, default=None, nullable=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 2, 9),
        Field("error_code", "error_code", 0, 9),
        Field("generation_id", "int32", 0, 9, default=-1),
        Field("protocol_type", "string", 7, 9, default=None, nullable=True),
        Field("protocol_name", "string", 0, 6, default=""),
        Field("protocol_name", "string", 7, 9, default=None, nullable=True),
        Field("leader", "string", 0, 9, default=""),
        Field("skip_assignment", "bool", 9, 9, default=False),
        Field("member_id", "string", 0, 9, default=""),
        Field("members", "struct", 0, 9, default=(), array=True, of=(
            Field("member_id", "string", 0, 9, default=""),
            Field("group_instance_id", "string", 5, 9, default=None, nullable=True),
            Field("metadata", "bytes", 0, 9, default=b""),
        )),
    ),
)

MESSAGES[12] = Message(
    "heartbeat", 0, 4, 4, 4,
    (
        Field("group_id", "string", 0, 4, default=""),
        Field("generation_id", "int32", 0, 4),
        Field("member_id", "string", 0, 4, default=""),
        Field("group_instance_id", "string", 3, 4, default=None, nullable=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 4),
        Field("error_code", "error_code", 0, 4),
    ),
)

MESSAGES[13] = Message(
    "leave_group", 0, 5, 4, 4,
    (
        Field("group_id", "string", 0, 5, default=""),
        Field("members", "struct", 3, 5, default=(), array=True, of=(
            Field("member_id", "string", 3, 5, default=""),
            Field("group_instance_id", "string", 3, 5, default=None, nullable=True),
            Field("reason", "string", 5, 5, default=None, nullable=True),
        )),
        Field("member_id", "string", 0, 2, default=""),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 5),
        Field("error_code", "error_code", 0, 5),
        Field("members", "struct", 3, 5, default=(), array=True, of=(
            Field("member_id", "string", 3, 5, default=""),
            Field("group_instance_id", "string", 3, 5, default=None, nullable=True),
            Field("error_code", "error_code", 3, 5),
        )),
    ),
)

MESSAGES[14] = Message(
    "sync_group", 0, 5, 4, 4,
    (
        Field("group_id", "string", 0, 5, default=""),
        Field("generation_id", "int32", 0, 5),
        Field("member_id", "string", 0, 5, default=""),
        Field("group_instance_id", "string", 3, 5, default=None, nullable=True),
        Field("protocol_type", "string", 5, 5, default=None, nullable=True),
        Field("protocol_name", "string", 5, 5, default=None, nullable=True),
        Field("assignments", "struct", 0, 5, default=(), array=True, of=(
            Field("member_id", "string", 0, 5, default=""),
            Field("assignment", "bytes", 0, 5, default=b""),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 5),
        Field("error_code", "error_code", 0, 5),
        Field("protocol_type", "string", 5, 5, default=None, nullable=True),
        Field("protocol_name", "string", 5, 5, default=None, nullable=True),
        Field("assignment", "bytes", 0, 5, default=b""),
    ),
)

MESSAGES[15] = Message(
    "describe_groups", 0, 6, 5, 5,
    (
        Field("groups", "string", 0, 6, default=(), array=True),
        Field("include_authorized_operations", "bool", 3, 6, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 6),
        Field("groups", "struct", 0, 6, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 6),
            Field("error_message", "string", 6, 6, default=None, nullable=True),
            Field("group_id", "string", 0, 6, default=""),
            Field("group_state", "string", 0, 6, default=""),
            Field("protocol_type", "string", 0, 6, default=""),
            Field("protocol_data", "string", 0, 6, default=""),
            Field("members", "struct", 0, 6, default=(), array=True, of=(
                Field("member_id", "string", 0, 6, default=""),
                Field("group_instance_id", "string", 4, 6, default=None, nullable=True),
                Field("client_id", "string", 0, 6, default=""),
                Field("client_host", "string", 0, 6, default=""),
                Field("member_metadata", "bytes", 0, 6, default=b""),
                Field("member_assignment", "bytes", 0, 6, default=b""),
            )),
            Field("authorized_operations", "int32", 3, 6, default=-2147483648),
        )),
    ),
)

MESSAGES[16] = Message(
    "list_groups", 0, 5, 3, 3,
    (
        Field("states_filter", "string", 4, 5, default=(), array=True),
        Field("types_filter", "string", 5, 5, default=(), array=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 5),
        Field("error_code", "error_code", 0, 5),
        Field("groups", "struct", 0, 5, default=(), array=True, of=(
            Field("group_id", "string", 0, 5, default=""),
            Field("protocol_type", "string", 0, 5, default=""),
            Field("group_state", "string", 4, 5, default=""),
            Field("group_type", "string", 5, 5, default=""),
        )),
    ),
)

MESSAGES[17] = Message(
    "sasl_handshake", 0, 1, 2, 2,
    (
        Field("mechanism", "string", 0, 1, default=""),
    ),
    (
        Field("error_code", "error_code", 0, 1),
        Field("mechanisms", "string", 0, 1, default=(), array=True),
    ),
)

MESSAGES[18] = Message(
    "api_versions", 0, 4, 3, 3,
    (
        Field("client_software_name", "string", 3, 4, default=""),
        Field("client_software_version", "string", 3, 4, default=""),
    ),
    (
        Field("error_code", "error_code", 0, 4),
        Field("api_keys", "struct", 0, 4, default=(), array=True, of=(
            Field("api_key", "int16", 0, 4),
            Field("min_version", "int16", 0, 4),
            Field("max_version", "int16", 0, 4),
        )),
        Field("throttle_time", "timedelta_i32", 1, 4),
        Field("supported_features", "struct", 3, 4, default=(), array=True, tag=0, of=(
            Field("name", "string", 3, 4, default=""),
            Field("min_version", "int16", 3, 4),
            Field("max_version", "int16", 3, 4),
        )),
        Field("finalized_features_epoch", "int64", 3, 4, default=-1, tag=1),
        Field("finalized_features", "struct", 3, 4, default=(), array=True, tag=2, of=(
            Field("name", "string", 3, 4, default=""),
            Field("max_version_level", "int16", 3, 4),
            Field("min_version_level", "int16", 3, 4),
        )),
        Field("zk_migration_ready", "bool", 3, 4, default=False, tag=3),
    ),
)

MESSAGES[19] = Message(
    "create_topics", 2, 7, 5, 5,
    (
        Field("topics", "struct", 2, 7, default=(), array=True, of=(
            Field("name", "string", 2, 7, default=""),
            Field("num_partitions", "int32", 2, 7),
            Field("replication_factor", "int16", 2, 7),
            Field("assignments", "struct", 2, 7, default=(), array=True, of=(
                Field("partition_index", "int32", 2, 7),
                Field("broker_ids", "int32", 2, 7, default=(), array=True),
            )),
            Field("configs", "struct", 2, 7, default=(), array=True, of=(
                Field("name", "string", 2, 7, default=""),
                Field("value", "string", 2, 7, default=None, nullable=True),
            )),
        )),
        Field("timeout", "timedelta_i32", 2, 7, default=60000),
        Field("validate_only", "bool", 2, 7, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 2, 7),
        Field("topics", "struct", 2, 7, default=(), array=True, of=(
            Field("name", "string", 2, 7, default=""),
            Field("topic_id", "uuid", 7, 7, default=None),
            Field("error_code", "error_code", 2, 7),
            Field("error_message", "string", 2, 7, default=None, nullable=True),
            Field("topic_config_error_code", "int16", 5, 7, tag=0),
            Field("num_partitions", "int32", 5, 7, default=-1),
            Field("replication_factor", "int16", 5, 7, default=-1),
            Field("configs", "struct", 5, 7, default=(), array=True, nullable=True, of=(
                Field("name", "string", 5, 7, default=""),
                Field("value", "string", 5, 7, default=None, nullable=True),
                Field("read_only", "bool", 5, 7, default=False),
                Field("config_source", "int8", 5, 7, default=-1),
                Field("is_sensitive", "bool", 5, 7, default=False),
            )),
        )),
    ),
)

MESSAGES[20] = Message(
    "delete_topics", 1, 6, 4, 4,
    (
        Field("topics", "struct", 6, 6, default=(), array=True, of=(
            Field("name", "string", 6, 6, default=None, nullable=True),
            Field("topic_id", "uuid", 6, 6, default=None),
        )),
        Field("topic_names", "string", 1, 5, default=(), array=True),
        Field("timeout", "timedelta_i32", 1, 6),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 6),
        Field("responses", "struct", 1, 6, default=(), array=True, of=(
            Field("name", "string", 1, 5, default=""),
            Field("name", "string", 6, 6, default=None, nullable=True),
            Field("topic_id", "uuid", 6, 6, default=None),
            Field("error_code", "error_code", 1, 6),
            Field("error_message", "string", 5, 6, default=None, nullable=True),
        )),
    ),
)

MESSAGES[21] = Message(
    "delete_records", 0, 2, 2, 2,
    (
        Field("topics", "struct", 0, 2, default=(), array=True, of=(
            Field("name", "string", 0, 2, default=""),
            Field("partitions", "struct", 0, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 2),
                Field("offset", "int64", 0, 2),
            )),
        )),
        Field("timeout", "timedelta_i32", 0, 2),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 2),
        Field("topics", "struct", 0, 2, default=(), array=True, of=(
            Field("name", "string", 0, 2, default=""),
            Field("partitions", "struct", 0, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 2),
                Field("low_watermark", "int64", 0, 2),
                Field("error_code", "error_code", 0, 2),
            )),
        )),
    ),
)

MESSAGES[22] = Message(
    "init_producer_id", 0, 6, 2, 2,
    (
        Field("transactional_id", "string", 0, 6, default=None, nullable=True),
        Field("transaction_timeout", "timedelta_i32", 0, 6),
        Field("producer_id", "int64", 3, 6, default=-1),
        Field("producer_epoch", "int16", 3, 6, default=-1),
        Field("enable2_pc", "bool", 6, 6, default=False),
        Field("keep_prepared_txn", "bool", 6, 6, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 6),
        Field("error_code", "error_code", 0, 6),
        Field("producer_id", "int64", 0, 6, default=-1),
        Field("producer_epoch", "int16", 0, 6),
        Field("ongoing_txn_producer_id", "int64", 6, 6, default=-1),
        Field("ongoing_txn_producer_epoch", "int16", 6, 6, default=-1),
    ),
)

MESSAGES[23] = Message(
    "offset_for_leader_epoch", 2, 4, 4, 4,
    (
        Field("replica_id", "int32", 3, 4, default=-2),
        Field("topics", "struct", 2, 4, default=(), array=True, of=(
            Field("topic", "string", 2, 4, default=""),
            Field("partitions", "struct", 2, 4, default=(), array=True, of=(
                Field("partition", "int32", 2, 4),
                Field("current_leader_epoch", "int32", 2, 4, default=-1),
                Field("leader_epoch", "int32", 2, 4),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 2, 4),
        Field("topics", "struct", 2, 4, default=(), array=True, of=(
            Field("topic", "string", 2, 4, default=""),
            Field("partitions", "struct", 2, 4, default=(), array=True, of=(
                Field("error_code", "error_code", 2, 4),
                Field("partition", "int32", 2, 4),
                Field("leader_epoch", "int32", 2, 4, default=-1),
                Field("end_offset", "int64", 2, 4, default=-1),
            )),
        )),
    ),
)

MESSAGES[24] = Message(
    "add_partitions_to_txn", 0, 5, 3, 3,
    (
        Field("transactions", "struct", 4, 5, default=(), array=True, of=(
            Field("transactional_id", "string", 4, 5, default=""),
            Field("producer_id", "int64", 4, 5),
            Field("producer_epoch", "int16", 4, 5),
            Field("verify_only", "bool", 4, 5, default=False),
            Field("topics", "struct", 4, 5, default=(), array=True, of=(
                Field("name", "string", 4, 5, default=""),
                Field("partitions", "int32", 4, 5, default=(), array=True),
            )),
        )),
        Field("v3_and_below_transactional_id", "string", 0, 3, default=""),
        Field("v3_and_below_producer_id", "int64", 0, 3),
        Field("v3_and_below_producer_epoch", "int16", 0, 3),
        Field("v3_and_below_topics", "struct", 0, 3, default=(), array=True, of=(
            Field("name", "string", 0, 3, default=""),
            Field("partitions", "int32", 0, 3, default=(), array=True),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 5),
        Field("error_code", "error_code", 4, 5),
        Field("results_by_transaction", "struct", 4, 5, default=(), array=True, of=(
            Field("transactional_id", "string", 4, 5, default=""),
            Field("topic_results", "struct", 4, 5, default=(), array=True, of=(
                Field("name", "string", 4, 5, default=""),
                Field("results_by_partition", "struct", 4, 5, default=(), array=True, of=(
                    Field("partition_index", "int32", 4, 5),
                    Field("partition_error_code", "error_code", 4, 5),
                )),
            )),
        )),
        Field("results_by_topic_v3_and_below", "struct", 0, 3, default=(), array=True, of=(
            Field("name", "string", 0, 3, default=""),
            Field("results_by_partition", "struct", 0, 3, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 3),
                Field("partition_error_code", "error_code", 0, 3),
            )),
        )),
    ),
)

MESSAGES[25] = Message(
    "add_offsets_to_txn", 0, 4, 3, 3,
    (
        Field("transactional_id", "string", 0, 4, default=""),
        Field("producer_id", "int64", 0, 4),
        Field("producer_epoch", "int16", 0, 4),
        Field("group_id", "string", 0, 4, default=""),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 4),
        Field("error_code", "error_code", 0, 4),
    ),
)

MESSAGES[26] = Message(
    "end_txn", 0, 5, 3, 3,
    (
        Field("transactional_id", "string", 0, 5, default=""),
        Field("producer_id", "int64", 0, 5),
        Field("producer_epoch", "int16", 0, 5),
        Field("committed", "bool", 0, 5, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 5),
        Field("error_code", "error_code", 0, 5),
        Field("producer_id", "int64", 5, 5, default=-1),
        Field("producer_epoch", "int16", 5, 5, default=-1),
    ),
)

MESSAGES[28] = Message(
    "txn_offset_commit", 0, 5, 3, 3,
    (
        Field("transactional_id", "string", 0, 5, default=""),
        Field("group_id", "string", 0, 5, default=""),
        Field("producer_id", "int64", 0, 5),
        Field("producer_epoch", "int16", 0, 5),
        Field("generation_id", "int32", 3, 5, default=-1),
        Field("member_id", "string", 3, 5, default=""),
        Field("group_instance_id", "string", 3, 5, default=None, nullable=True),
        Field("topics", "struct", 0, 5, default=(), array=True, of=(
            Field("name", "string", 0, 5, default=""),
            Field("partitions", "struct", 0, 5, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 5),
                Field("committed_offset", "int64", 0, 5),
                Field("committed_leader_epoch", "int32", 2, 5, default=-1),
                Field("committed_metadata", "string", 0, 5, default=None, nullable=True),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 5),
        Field("topics", "struct", 0, 5, default=(), array=True, of=(
            Field("name", "string", 0, 5, default=""),
            Field("partitions", "struct", 0, 5, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 5),
                Field("error_code", "error_code", 0, 5),
            )),
        )),
    ),
)

MESSAGES[29] = Message(
    "describe_acls", 1, 3, 2, 2,
    (
        Field("resource_type_filter", "int8", 1, 3),
        Field("resource_name_filter", "string", 1, 3, default=None, nullable=True),
        Field("pattern_type_filter", "int8", 1, 3, default=3),
        Field("principal_filter", "string", 1, 3, default=None, nullable=True),
        Field("host_filter", "string", 1, 3, default=None, nullable=True),
        Field("operation", "int8", 1, 3),
        Field("permission_type", "int8", 1, 3),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 3),
        Field("error_code", "error_code", 1, 3),
        Field("error_message", "string", 1, 3, default=None, nullable=True),
        Field("resources", "struct", 1, 3, default=(), array=True, of=(
            Field("resource_type", "int8", 1, 3),
            Field("resource_name", "string", 1, 3, default=""),
            Field("pattern_type", "int8", 1, 3, default=3),
            Field("acls", "struct", 1, 3, default=(), array=True, of=(
                Field("principal", "string", 1, 3, default=""),
                Field("host", "string", 1, 3, default=""),
                Field("operation", "int8", 1, 3),
                Field("permission_type", "int8", 1, 3),
            )),
        )),
    ),
)

MESSAGES[30] = Message(
    "create_acls", 1, 3, 2, 2,
    (
        Field("creations", "struct", 1, 3, default=(), array=True, of=(
            Field("resource_type", "int8", 1, 3),
            Field("resource_name", "string", 1, 3, default=""),
            Field("resource_pattern_type", "int8", 1, 3, default=3),
            Field("principal", "string", 1, 3, default=""),
            Field("host", "string", 1, 3, default=""),
            Field("operation", "int8", 1, 3),
            Field("permission_type", "int8", 1, 3),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 3),
        Field("results", "struct", 1, 3, default=(), array=True, of=(
            Field("error_code", "error_code", 1, 3),
            Field("error_message", "string", 1, 3, default=None, nullable=True),
        )),
    ),
)

MESSAGES[31] = Message(
    "delete_acls", 1, 3, 2, 2,
    (
        Field("filters", "struct", 1, 3, default=(), array=True, of=(
            Field("resource_type_filter", "int8", 1, 3),
            Field("resource_name_filter", "string", 1, 3, default=None, nullable=True),
            Field("pattern_type_filter", "int8", 1, 3, default=3),
            Field("principal_filter", "string", 1, 3, default=None, nullable=True),
            Field("host_filter", "string", 1, 3, default=None, nullable=True),
            Field("operation", "int8", 1, 3),
            Field("permission_type", "int8", 1, 3),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 3),
        Field("filter_results", "struct", 1, 3, default=(), array=True, of=(
            Field("error_code", "error_code", 1, 3),
            Field("error_message", "string", 1, 3, default=None, nullable=True),
            Field("matching_acls", "struct", 1, 3, default=(), array=True, of=(
                Field("error_code", "error_code", 1, 3),
                Field("error_message", "string", 1, 3, default=None, nullable=True),
                Field("resource_type", "int8", 1, 3),
                Field("resource_name", "string", 1, 3, default=""),
                Field("pattern_type", "int8", 1, 3, default=3),
                Field("principal", "string", 1, 3, default=""),
                Field("host", "string", 1, 3, default=""),
                Field("operation", "int8", 1, 3),
                Field("permission_type", "int8", 1, 3),
            )),
        )),
    ),
)

MESSAGES[32] = Message(
    "describe_configs", 1, 4, 4, 4,
    (
        Field("resources", "struct", 1, 4, default=(), array=True, of=(
            Field("resource_type", "int8", 1, 4),
            Field("resource_name", "string", 1, 4, default=""),
            Field("configuration_keys", "string", 1, 4, default=(), array=True, nullable=True),
        )),
        Field("include_synonyms", "bool", 1, 4, default=False),
        Field("include_documentation", "bool", 3, 4, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 4),
        Field("results", "struct", 1, 4, default=(), array=True, of=(
            Field("error_code", "error_code", 1, 4),
            Field("error_message", "string", 1, 4, default=None, nullable=True),
            Field("resource_type", "int8", 1, 4),
            Field("resource_name", "string", 1, 4, default=""),
            Field("configs", "struct", 1, 4, default=(), array=True, of=(
                Field("name", "string", 1, 4, default=""),
                Field("value", "string", 1, 4, default=None, nullable=True),
                Field("read_only", "bool", 1, 4, default=False),
                Field("config_source", "int8", 1, 4, default=-1),
                Field("is_sensitive", "bool", 1, 4, default=False),
                Field("synonyms", "struct", 1, 4, default=(), array=True, of=(
                    Field("name", "string", 1, 4, default=""),
                    Field("value", "string", 1, 4, default=None, nullable=True),
                    Field("source", "int8", 1, 4),
                )),
                Field("config_type", "int8", 3, 4),
                Field("documentation", "string", 3, 4, default=None, nullable=True),
            )),
        )),
    ),
)

MESSAGES[33] = Message(
    "alter_configs", 0, 2, 2, 2,
    (
        Field("resources", "struct", 0, 2, default=(), array=True, of=(
            Field("resource_type", "int8", 0, 2),
            Field("resource_name", "string", 0, 2, default=""),
            Field("configs", "struct", 0, 2, default=(), array=True, of=(
                Field("name", "string", 0, 2, default=""),
                Field("value", "string", 0, 2, default=None, nullable=True),
            )),
        )),
        Field("validate_only", "bool", 0, 2, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 2),
        Field("responses", "struct", 0, 2, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 2),
            Field("error_message", "string", 0, 2, default=None, nullable=True),
            Field("resource_type", "int8", 0, 2),
            Field("resource_name", "string", 0, 2, default=""),
        )),
    ),
)

MESSAGES[35] = Message(
    "describe_log_dirs", 1, 5, 2, 2,
    (
        Field("topics", "struct", 1, 5, default=(), array=True, nullable=True, of=(
            Field("topic", "string", 1, 5, default=""),
            Field("partitions", "int32", 1, 5, default=(), array=True),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 5),
        Field("error_code", "error_code", 3, 5),
        Field("results", "struct", 1, 5, default=(), array=True, of=(
            Field("error_code", "error_code", 1, 5),
            Field("log_dir", "string", 1, 5, default=""),
            Field("topics", "struct", 1, 5, default=(), array=True, of=(
                Field("name", "string", 1, 5, default=""),
                Field("partitions", "struct", 1, 5, default=(), array=True, of=(
                    Field("partition_index", "int32", 1, 5),
                    Field("partition_size", "int64", 1, 5),
                    Field("offset_lag", "int64", 1, 5),
                    Field("is_future_key", "bool", 1, 5, default=False),
                )),
            )),
            Field("total_bytes", "int64", 4, 5, default=-1),
            Field("usable_bytes", "int64", 4, 5, default=-1),
            Field("is_cordoned", "bool", 5, 5, default=False),
        )),
    ),
)

MESSAGES[36] = Message(
    "sasl_authenticate", 0, 2, 2, 2,
    (
        Field("auth_bytes", "bytes", 0, 2, default=b""),
    ),
    (
        Field("error_code", "error_code", 0, 2),
        Field("error_message", "string", 0, 2, default=None, nullable=True),
        Field("auth_bytes", "bytes", 0, 2, default=b""),
        Field("session_lifetime", "timedelta_i64", 1, 2),
    ),
)

MESSAGES[37] = Message(
    "create_partitions", 0, 3, 2, 2,
    (
        Field("topics", "struct", 0, 3, default=(), array=True, of=(
            Field("name", "string", 0, 3, default=""),
            Field("count", "int32", 0, 3),
            Field("assignments", "struct", 0, 3, default=(), array=True, nullable=True, of=(
                Field("broker_ids", "int32", 0, 3, default=(), array=True),
            )),
        )),
        Field("timeout", "timedelta_i32", 0, 3),
        Field("validate_only", "bool", 0, 3, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 3),
        Field("results", "struct", 0, 3, default=(), array=True, of=(
            Field("name", "string", 0, 3, default=""),
            Field("error_code", "error_code", 0, 3),
            Field("error_message", "string", 0, 3, default=None, nullable=True),
        )),
    ),
)

MESSAGES[42] = Message(
    "delete_groups", 0, 2, 2, 2,
    (
        Field("groups_names", "string", 0, 2, default=(), array=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 2),
        Field("results", "struct", 0, 2, default=(), array=True, of=(
            Field("group_id", "string", 0, 2, default=""),
            Field("error_code", "error_code", 0, 2),
        )),
    ),
)

MESSAGES[44] = Message(
    "incremental_alter_configs", 0, 1, 1, 1,
    (
        Field("resources", "struct", 0, 1, default=(), array=True, of=(
            Field("resource_type", "int8", 0, 1),
            Field("resource_name", "string", 0, 1, default=""),
            Field("configs", "struct", 0, 1, default=(), array=True, of=(
                Field("name", "string", 0, 1, default=""),
                Field("config_operation", "int8", 0, 1),
                Field("value", "string", 0, 1, default=None, nullable=True),
            )),
        )),
        Field("validate_only", "bool", 0, 1, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("responses", "struct", 0, 1, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 1),
            Field("error_message", "string", 0, 1, default=None, nullable=True),
            Field("resource_type", "int8", 0, 1),
            Field("resource_name", "string", 0, 1, default=""),
        )),
    ),
)

MESSAGES[47] = Message(
    "offset_delete", 0, 0, 1, 1,
    (
        Field("group_id", "string", 0, 0, default=""),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 0),
            )),
        )),
    ),
    (
        Field("error_code", "error_code", 0, 0),
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 0),
                Field("error_code", "error_code", 0, 0),
            )),
        )),
    ),
)

MESSAGES[48] = Message(
    "describe_client_quotas", 0, 1, 1, 1,
    (
        Field("components", "struct", 0, 1, default=(), array=True, of=(
            Field("entity_type", "string", 0, 1, default=""),
            Field("match_type", "int8", 0, 1),
            Field("match", "string", 0, 1, default=None, nullable=True),
        )),
        Field("strict", "bool", 0, 1, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("error_code", "error_code", 0, 1),
        Field("error_message", "string", 0, 1, default=None, nullable=True),
        Field("entries", "struct", 0, 1, default=(), array=True, nullable=True, of=(
            Field("entity", "struct", 0, 1, default=(), array=True, of=(
                Field("entity_type", "string", 0, 1, default=""),
                Field("entity_name", "string", 0, 1, default=None, nullable=True),
            )),
            Field("values", "struct", 0, 1, default=(), array=True, of=(
                Field("key", "string", 0, 1, default=""),
                Field("value", "float64", 0, 1),
            )),
        )),
    ),
)

MESSAGES[49] = Message(
    "alter_client_quotas", 0, 1, 1, 1,
    (
        Field("entries", "struct", 0, 1, default=(), array=True, of=(
            Field("entity", "struct", 0, 1, default=(), array=True, of=(
                Field("entity_type", "string", 0, 1, default=""),
                Field("entity_name", "string", 0, 1, default=None, nullable=True),
            )),
            Field("ops", "struct", 0, 1, default=(), array=True, of=(
                Field("key", "string", 0, 1, default=""),
                Field("value", "float64", 0, 1),
                Field("remove", "bool", 0, 1, default=False),
            )),
        )),
        Field("validate_only", "bool", 0, 1, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("entries", "struct", 0, 1, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 1),
            Field("error_message", "string", 0, 1, default=None, nullable=True),
            Field("entity", "struct", 0, 1, default=(), array=True, of=(
                Field("entity_type", "string", 0, 1, default=""),
                Field("entity_name", "string", 0, 1, default=None, nullable=True),
            )),
        )),
    ),
)

MESSAGES[50] = Message(
    "describe_user_scram_credentials", 0, 0, 0, 0,
    (
        Field("users", "struct", 0, 0, default=(), array=True, nullable=True, of=(
            Field("name", "string", 0, 0, default=""),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("error_code", "error_code", 0, 0),
        Field("error_message", "string", 0, 0, default=None, nullable=True),
        Field("results", "struct", 0, 0, default=(), array=True, of=(
            Field("user", "string", 0, 0, default=""),
            Field("error_code", "error_code", 0, 0),
            Field("error_message", "string", 0, 0, default=None, nullable=True),
            Field("credential_infos", "struct", 0, 0, default=(), array=True, of=(
                Field("mechanism", "int8", 0, 0),
                Field("iterations", "int32", 0, 0),
            )),
        )),
    ),
)

MESSAGES[51] = Message(
    "alter_user_scram_credentials", 0, 0, 0, 0,
    (
        Field("deletions", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("mechanism", "int8", 0, 0),
        )),
        Field("upsertions", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("mechanism", "int8", 0, 0),
            Field("iterations", "int32", 0, 0),
            Field("salt", "bytes", 0, 0, default=b""),
            Field("salted_password", "bytes", 0, 0, default=b""),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("results", "struct", 0, 0, default=(), array=True, of=(
            Field("user", "string", 0, 0, default=""),
            Field("error_code", "error_code", 0, 0),
            Field("error_message", "string", 0, 0, default=None, nullable=True),
        )),
    ),
)

MESSAGES[60] = Message(
    "describe_cluster", 0, 2, 0, 0,
    (
        Field("include_cluster_authorized_operations", "bool", 0, 2, default=False),
        Field("endpoint_type", "int8", 1, 2, default=1),
        Field("include_fenced_brokers", "bool", 2, 2, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 2),
        Field("error_code", "error_code", 0, 2),
        Field("error_message", "string", 0, 2, default=None, nullable=True),
        Field("endpoint_type", "int8", 1, 2, default=1),
        Field("cluster_id", "string", 0, 2, default=""),
        Field("controller_id", "int32", 0, 2, default=-1),
        Field("brokers", "struct", 0, 2, default=(), array=True, of=(
            Field("broker_id", "int32", 0, 2),
            Field("host", "string", 0, 2, default=""),
            Field("port", "int32", 0, 2),
            Field("rack", "string", 0, 2, default=None, nullable=True),
            Field("is_fenced", "bool", 2, 2, default=False),
        )),
        Field("cluster_authorized_operations", "int32", 0, 2, default=-2147483648),
    ),
)

MESSAGES[61] = Message(
    "describe_producers", 0, 0, 0, 0,
    (
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("partition_indexes", "int32", 0, 0, default=(), array=True),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 0),
                Field("error_code", "error_code", 0, 0),
                Field("error_message", "string", 0, 0, default=None, nullable=True),
                Field("active_producers", "struct", 0, 0, default=(), array=True, of=(
                    Field("producer_id", "int64", 0, 0),
                    Field("producer_epoch", "int32", 0, 0),
                    Field("last_sequence", "int32", 0, 0, default=-1),
                    Field("last_timestamp", "int64", 0, 0, default=-1),
                    Field("coordinator_epoch", "int32", 0, 0),
                    Field("current_txn_start_offset", "int64", 0, 0, default=-1),
                )),
            )),
        )),
    ),
)

MESSAGES[65] = Message(
    "describe_transactions", 0, 0, 0, 0,
    (
        Field("transactional_ids", "string", 0, 0, default=(), array=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("transaction_states", "struct", 0, 0, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 0),
            Field("transactional_id", "string", 0, 0, default=""),
            Field("transaction_state", "string", 0, 0, default=""),
            Field("transaction_timeout", "timedelta_i32", 0, 0),
            Field("transaction_start_time", "datetime_i64", 0, 0, default=-1),
            Field("producer_id", "int64", 0, 0),
            Field("producer_epoch", "int16", 0, 0),
            Field("topics", "struct", 0, 0, default=(), array=True, of=(
                Field("topic", "string", 0, 0, default=""),
                Field("partitions", "int32", 0, 0, default=(), array=True),
            )),
        )),
    ),
)

MESSAGES[66] = Message(
    "list_transactions", 0, 2, 0, 0,
    (
        Field("state_filters", "string", 0, 2, default=(), array=True),
        Field("producer_id_filters", "int64", 0, 2, default=(), array=True),
        Field("duration_filter", "int64", 1, 2, default=-1),
        Field("transactional_id_pattern", "string", 2, 2, default=None, nullable=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 2),
        Field("error_code", "error_code", 0, 2),
        Field("unknown_state_filters", "string", 0, 2, default=(), array=True),
        Field("transaction_states", "struct", 0, 2, default=(), array=True, of=(
            Field("transactional_id", "string", 0, 2, default=""),
            Field("producer_id", "int64", 0, 2),
            Field("transaction_state", "string", 0, 2, default=""),
        )),
    ),
)

MESSAGES[68] = Message(
    "consumer_group_heartbeat", 0, 1, 0, 0,
    (
        Field("group_id", "string", 0, 1, default=""),
        Field("member_id", "string", 0, 1, default=""),
        Field("member_epoch", "int32", 0, 1),
        Field("instance_id", "string", 0, 1, default=None, nullable=True),
        Field("rack_id", "string", 0, 1, default=None, nullable=True),
        Field("rebalance_timeout", "timedelta_i32", 0, 1, default=-1),
        Field("subscribed_topic_names", "string", 0, 1, default=None, array=True, nullable=True),
        Field("subscribed_topic_regex", "string", 1, 1, default=None, nullable=True),
        Field("server_assignor", "string", 0, 1, default=None, nullable=True),
        Field("topic_partitions", "struct", 0, 1, default=(), array=True, nullable=True, of=(
            Field("topic_id", "uuid", 0, 1, default=None),
            Field("partitions", "int32", 0, 1, default=(), array=True),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("error_code", "error_code", 0, 1),
        Field("error_message", "string", 0, 1, default=None, nullable=True),
        Field("member_id", "string", 0, 1, default=None, nullable=True),
        Field("member_epoch", "int32", 0, 1),
        Field("heartbeat_interval", "timedelta_i32", 0, 1),
        Field("assignment", "struct", 0, 1, default=None, nullable=True, of=(
            Field("topic_partitions", "struct", 0, 1, default=(), array=True, of=(
                Field("topic_id", "uuid", 0, 1, default=None),
                Field("partitions", "int32", 0, 1, default=(), array=True),
            )),
        )),
    ),
)

MESSAGES[69] = Message(
    "consumer_group_describe", 0, 1, 0, 0,
    (
        Field("group_ids", "string", 0, 1, default=(), array=True),
        Field("include_authorized_operations", "bool", 0, 1, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("groups", "struct", 0, 1, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 1),
            Field("error_message", "string", 0, 1, default=None, nullable=True),
            Field("group_id", "string", 0, 1, default=""),
            Field("group_state", "string", 0, 1, default=""),
            Field("group_epoch", "int32", 0, 1),
            Field("assignment_epoch", "int32", 0, 1),
            Field("assignor_name", "string", 0, 1, default=""),
            Field("members", "struct", 0, 1, default=(), array=True, of=(
                Field("member_id", "string", 0, 1, default=""),
                Field("instance_id", "string", 0, 1, default=None, nullable=True),
                Field("rack_id", "string", 0, 1, default=None, nullable=True),
                Field("member_epoch", "int32", 0, 1),
                Field("client_id", "string", 0, 1, default=""),
                Field("client_host", "string", 0, 1, default=""),
                Field("subscribed_topic_names", "string", 0, 1, default=(), array=True),
                Field("subscribed_topic_regex", "string", 0, 1, default=None, nullable=True),
                Field("assignment", "struct", 0, 1, default=None, of=(
                    Field("topic_partitions", "struct", 0, 1, default=(), array=True, of=(
                        Field("topic_id", "uuid", 0, 1, default=None),
                        Field("topic_name", "string", 0, 1, default=""),
                        Field("partitions", "int32", 0, 1, default=(), array=True),
                    )),
                )),
                Field("target_assignment", "struct", 0, 1, default=None, of=(
                    Field("topic_partitions", "struct", 0, 1, default=(), array=True, of=(
                        Field("topic_id", "uuid", 0, 1, default=None),
                        Field("topic_name", "string", 0, 1, default=""),
                        Field("partitions", "int32", 0, 1, default=(), array=True),
                    )),
                )),
                Field("member_type", "int8", 1, 1, default=-1),
            )),
            Field("authorized_operations", "int32", 0, 1, default=-2147483648),
        )),
    ),
)

MESSAGES[74] = Message(
    "list_config_resources", 0, 1, 0, 0,
    (
        Field("resource_types", "int8", 1, 1, default=(), array=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("error_code", "error_code", 0, 1),
        Field("config_resources", "struct", 0, 1, default=(), array=True, of=(
            Field("resource_name", "string", 0, 1, default=""),
            Field("resource_type", "int8", 1, 1, default=16),
        )),
    ),
)

MESSAGES[75] = Message(
    "describe_topic_partitions", 0, 0, 0, 0,
    (
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("name", "string", 0, 0, default=""),
        )),
        Field("response_partition_limit", "int32", 0, 0, default=2000),
        Field("cursor", "struct", 0, 0, default=None, nullable=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
            Field("partition_index", "int32", 0, 0),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("error_code", "error_code", 0, 0),
            Field("name", "string", 0, 0, default=None, nullable=True),
            Field("topic_id", "uuid", 0, 0, default=None),
            Field("is_internal", "bool", 0, 0, default=False),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("error_code", "error_code", 0, 0),
                Field("partition_index", "int32", 0, 0),
                Field("leader_id", "int32", 0, 0),
                Field("leader_epoch", "int32", 0, 0, default=-1),
                Field("replica_nodes", "int32", 0, 0, default=(), array=True),
                Field("isr_nodes", "int32", 0, 0, default=(), array=True),
                Field("eligible_leader_replicas", "int32", 0, 0, default=None, array=True, nullable=True),
                Field("last_known_elr", "int32", 0, 0, default=None, array=True, nullable=True),
                Field("offline_replicas", "int32", 0, 0, default=(), array=True),
            )),
            Field("topic_authorized_operations", "int32", 0, 0, default=-2147483648),
        )),
        Field("next_cursor", "struct", 0, 0, default=None, nullable=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
            Field("partition_index", "int32", 0, 0),
        )),
    ),
)

MESSAGES[76] = Message(
    "share_group_heartbeat", 1, 1, 1, 1,
    (
        Field("group_id", "string", 1, 1, default=""),
        Field("member_id", "string", 1, 1, default=""),
        Field("member_epoch", "int32", 1, 1),
        Field("rack_id", "string", 1, 1, default=None, nullable=True),
        Field("subscribed_topic_names", "string", 1, 1, default=None, array=True, nullable=True),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 1),
        Field("error_code", "error_code", 1, 1),
        Field("error_message", "string", 1, 1, default=None, nullable=True),
        Field("member_id", "string", 1, 1, default=None, nullable=True),
        Field("member_epoch", "int32", 1, 1),
        Field("heartbeat_interval", "timedelta_i32", 1, 1),
        Field("assignment", "struct", 1, 1, default=None, nullable=True, of=(
            Field("topic_partitions", "struct", 1, 1, default=(), array=True, of=(
                Field("topic_id", "uuid", 1, 1, default=None),
                Field("partitions", "int32", 1, 1, default=(), array=True),
            )),
        )),
    ),
)

MESSAGES[77] = Message(
    "share_group_describe", 1, 1, 1, 1,
    (
        Field("group_ids", "string", 1, 1, default=(), array=True),
        Field("include_authorized_operations", "bool", 1, 1, default=False),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 1),
        Field("groups", "struct", 1, 1, default=(), array=True, of=(
            Field("error_code", "error_code", 1, 1),
            Field("error_message", "string", 1, 1, default=None, nullable=True),
            Field("group_id", "string", 1, 1, default=""),
            Field("group_state", "string", 1, 1, default=""),
            Field("group_epoch", "int32", 1, 1),
            Field("assignment_epoch", "int32", 1, 1),
            Field("assignor_name", "string", 1, 1, default=""),
            Field("members", "struct", 1, 1, default=(), array=True, of=(
                Field("member_id", "string", 1, 1, default=""),
                Field("rack_id", "string", 1, 1, default=None, nullable=True),
                Field("member_epoch", "int32", 1, 1),
                Field("client_id", "string", 1, 1, default=""),
                Field("client_host", "string", 1, 1, default=""),
                Field("subscribed_topic_names", "string", 1, 1, default=(), array=True),
                Field("assignment", "struct", 1, 1, default=None, of=(
                    Field("topic_partitions", "struct", 1, 1, default=(), array=True, of=(
                        Field("topic_id", "uuid", 1, 1, default=None),
                        Field("topic_name", "string", 1, 1, default=""),
                        Field("partitions", "int32", 1, 1, default=(), array=True),
                    )),
                )),
            )),
            Field("authorized_operations", "int32", 1, 1, default=-2147483648),
        )),
    ),
)

MESSAGES[78] = Message(
    "share_fetch", 1, 2, 1, 1,
    (
        Field("group_id", "string", 1, 2, default=None, nullable=True),
        Field("member_id", "string", 1, 2, default=None, nullable=True),
        Field("share_session_epoch", "int32", 1, 2),
        Field("max_wait", "timedelta_i32", 1, 2),
        Field("min_bytes", "int32", 1, 2),
        Field("max_bytes", "int32", 1, 2, default=2147483647),
        Field("max_records", "int32", 1, 2),
        Field("batch_size", "int32", 1, 2),
        Field("share_acquire_mode", "int8", 2, 2),
        Field("is_renew_ack", "bool", 2, 2, default=False),
        Field("topics", "struct", 1, 2, default=(), array=True, of=(
            Field("topic_id", "uuid", 1, 2, default=None),
            Field("partitions", "struct", 1, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 2),
                Field("acknowledgement_batches", "struct", 1, 2, default=(), array=True, of=(
                    Field("first_offset", "int64", 1, 2),
                    Field("last_offset", "int64", 1, 2),
                    Field("acknowledge_types", "int8", 1, 2, default=(), array=True),
                )),
            )),
        )),
        Field("forgotten_topics_data", "struct", 1, 2, default=(), array=True, of=(
            Field("topic_id", "uuid", 1, 2, default=None),
            Field("partitions", "int32", 1, 2, default=(), array=True),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 2),
        Field("error_code", "error_code", 1, 2),
        Field("error_message", "string", 1, 2, default=None, nullable=True),
        Field("acquisition_lock_timeout", "timedelta_i32", 1, 2),
        Field("responses", "struct", 1, 2, default=(), array=True, of=(
            Field("topic_id", "uuid", 1, 2, default=None),
            Field("partitions", "struct", 1, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 2),
                Field("error_code", "error_code", 1, 2),
                Field("error_message", "string", 1, 2, default=None, nullable=True),
                Field("acknowledge_error_code", "int16", 1, 2),
                Field("acknowledge_error_message", "string", 1, 2, default=None, nullable=True),
                Field("current_leader", "struct", 1, 2, default=None, of=(
                    Field("leader_id", "int32", 1, 2),
                    Field("leader_epoch", "int32", 1, 2),
                )),
                Field("records", "records", 1, 2, default=b""),
                Field("acquired_records", "struct", 1, 2, default=(), array=True, of=(
                    Field("first_offset", "int64", 1, 2),
                    Field("last_offset", "int64", 1, 2),
                    Field("delivery_count", "int16", 1, 2),
                )),
            )),
        )),
        Field("node_endpoints", "struct", 1, 2, default=(), array=True, of=(
            Field("node_id", "int32", 1, 2),
            Field("host", "string", 1, 2, default=""),
            Field("port", "int32", 1, 2),
            Field("rack", "string", 1, 2, default=None, nullable=True),
        )),
    ),
)

MESSAGES[79] = Message(
    "share_acknowledge", 1, 2, 1, 1,
    (
        Field("group_id", "string", 1, 2, default=None, nullable=True),
        Field("member_id", "string", 1, 2, default=None, nullable=True),
        Field("share_session_epoch", "int32", 1, 2),
        Field("is_renew_ack", "bool", 2, 2, default=False),
        Field("topics", "struct", 1, 2, default=(), array=True, of=(
            Field("topic_id", "uuid", 1, 2, default=None),
            Field("partitions", "struct", 1, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 2),
                Field("acknowledgement_batches", "struct", 1, 2, default=(), array=True, of=(
                    Field("first_offset", "int64", 1, 2),
                    Field("last_offset", "int64", 1, 2),
                    Field("acknowledge_types", "int8", 1, 2, default=(), array=True),
                )),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 1, 2),
        Field("error_code", "error_code", 1, 2),
        Field("error_message", "string", 1, 2, default=None, nullable=True),
        Field("acquisition_lock_timeout", "timedelta_i32", 2, 2),
        Field("responses", "struct", 1, 2, default=(), array=True, of=(
            Field("topic_id", "uuid", 1, 2, default=None),
            Field("partitions", "struct", 1, 2, default=(), array=True, of=(
                Field("partition_index", "int32", 1, 2),
                Field("error_code", "error_code", 1, 2),
                Field("error_message", "string", 1, 2, default=None, nullable=True),
                Field("current_leader", "struct", 1, 2, default=None, of=(
                    Field("leader_id", "int32", 1, 2),
                    Field("leader_epoch", "int32", 1, 2),
                )),
            )),
        )),
        Field("node_endpoints", "struct", 1, 2, default=(), array=True, of=(
            Field("node_id", "int32", 1, 2),
            Field("host", "string", 1, 2, default=""),
            Field("port", "int32", 1, 2),
            Field("rack", "string", 1, 2, default=None, nullable=True),
        )),
    ),
)

MESSAGES[90] = Message(
    "describe_share_group_offsets", 0, 1, 0, 0,
    (
        Field("groups", "struct", 0, 1, default=(), array=True, of=(
            Field("group_id", "string", 0, 1, default=""),
            Field("topics", "struct", 0, 1, default=(), array=True, nullable=True, of=(
                Field("topic_name", "string", 0, 1, default=""),
                Field("partitions", "int32", 0, 1, default=(), array=True),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 1),
        Field("groups", "struct", 0, 1, default=(), array=True, of=(
            Field("group_id", "string", 0, 1, default=""),
            Field("topics", "struct", 0, 1, default=(), array=True, of=(
                Field("topic_name", "string", 0, 1, default=""),
                Field("topic_id", "uuid", 0, 1, default=None),
                Field("partitions", "struct", 0, 1, default=(), array=True, of=(
                    Field("partition_index", "int32", 0, 1),
                    Field("start_offset", "int64", 0, 1),
                    Field("leader_epoch", "int32", 0, 1),
                    Field("lag", "int64", 1, 1, default=-1),
                    Field("error_code", "error_code", 0, 1),
                    Field("error_message", "string", 0, 1, default=None, nullable=True),
                )),
            )),
            Field("error_code", "error_code", 0, 1),
            Field("error_message", "string", 0, 1, default=None, nullable=True),
        )),
    ),
)

MESSAGES[91] = Message(
    "alter_share_group_offsets", 0, 0, 0, 0,
    (
        Field("group_id", "string", 0, 0, default=""),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 0),
                Field("start_offset", "int64", 0, 0),
            )),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("error_code", "error_code", 0, 0),
        Field("error_message", "string", 0, 0, default=None, nullable=True),
        Field("responses", "struct", 0, 0, default=(), array=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
            Field("topic_id", "uuid", 0, 0, default=None),
            Field("partitions", "struct", 0, 0, default=(), array=True, of=(
                Field("partition_index", "int32", 0, 0),
                Field("error_code", "error_code", 0, 0),
                Field("error_message", "string", 0, 0, default=None, nullable=True),
            )),
        )),
    ),
)

MESSAGES[92] = Message(
    "delete_share_group_offsets", 0, 0, 0, 0,
    (
        Field("group_id", "string", 0, 0, default=""),
        Field("topics", "struct", 0, 0, default=(), array=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
        )),
    ),
    (
        Field("throttle_time", "timedelta_i32", 0, 0),
        Field("error_code", "error_code", 0, 0),
        Field("error_message", "string", 0, 0, default=None, nullable=True),
        Field("responses", "struct", 0, 0, default=(), array=True, of=(
            Field("topic_name", "string", 0, 0, default=""),
            Field("topic_id", "uuid", 0, 0, default=None),
            Field("error_code", "error_code", 0, 0),
            Field("error_message", "string", 0, 0, default=None, nullable=True),
        )),
    ),
)
