"""Settings of consumer groups, committed offsets and transactions."""

from dataclasses import dataclass

from headrace.config import setting

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's names in our spelling; defaults differ from Kafka's only where the help says why."""

    group_initial_rebalance_delay_ms: int = setting(
        200,
        "How long the first rebalance of an empty group waits for further members; each newcomer extends it "
        "once more. Kafka waits 3 s for members spread over a data centre; here they start side by side.",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session time-out a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session time-out a member of a classic group may ask for."
    )
    group_max_size: int = setting(
        1_000, "Members a group may have, ids handed out but not yet used included (Kafka: no limit)."
    )
    group_max_member_bytes: int = setting(
        1_048_576, "Protocol metadata one member of a classic group may bring along, all protocols together."
    )
    group_max_count: int = setting(
        100_000, "Groups the broker keeps; a further one is refused with POLICY_VIOLATION."
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "A member of a server-side group that is silent for so long is removed."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        2_000,
        "How often members of a server-side group are told to heartbeat. Kafka says 5 s; a hand-over takes "
        "about two intervals, and one machine has few members.",
    )
    group_consumer_regex_max_length: int = setting(
        256, "Length of a topic pattern evaluated by the broker; longer ones are refused."
    )
    group_share_session_timeout_ms: int = setting(
        45_000, "A member of a queue that is silent for so long is removed."
    )
    group_share_heartbeat_interval_ms: int = setting(
        2_000, "How often members of a queue are told to heartbeat (Kafka: 5 s)."
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000, "How long a member of a queue has a record before it is delivered to another."
    )
    group_share_delivery_count_limit: int = setting(
        5, "A record that a queue delivered so often in vain goes to the dead-letter topic."
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "Records of one partition that a queue may have in flight."
    )
    group_share_max_sessions: int = setting(2_000, "Sessions of members of queues; a further one is refused.")
    group_share_skip_damage: bool = setting(
        False,
        "Start with what is readable of a damaged topic of queues. Otherwise queues stay unavailable, since "
        "a lost acknowledgement delivers its record again.",
    )
    offsets_retention_minutes: int = setting(
        10_080, "Committed offsets are forgotten so long after their group became empty (7 days)."
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often expired offsets and empty groups without offsets are looked for."
    )
    groups_skip_damage: bool = setting(
        False,
        "Start with what is readable of a damaged topic of groups. Otherwise groups stay unavailable, since "
        "a lost commit makes its consumers read again or skip.",
    )
    offset_metadata_max_bytes: int = setting(
        4_096, "Length of the text a client may store with a committed offset."
    )
    transaction_max_timeout_ms: int = setting(
        900_000, "The longest time-out a producer may ask for; open transactions are aborted after theirs."
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "Transactional ids are forgotten so long after their last transaction (7 days)."
    )
    transactions_skip_damage: bool = setting(
        False,
        "Start with what is readable of a damaged topic of transactions. Otherwise transactions stay "
        "unavailable, since a lost decision could undo what was committed.",
    )
