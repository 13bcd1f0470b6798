"""Settings of consumer groups, committed offsets and transactions."""

from dataclasses import dataclass

from headrace.config import setting

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's names in our spelling; defaults differ from Kafka's only where the help says why."""

    group_initial_rebalance_delay_ms: int = setting(
        200,
        "How long the first rebalance of an empty group waits for more members; each newcomer extends it. "
        "Kafka waits 3 s for members spread over a data centre; here they start side by side.",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session time-out that a member of a classic group may request."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session time-out that a member of a classic group may request."
    )
    group_max_size: int = setting(
        1_000, "Maximum members of a group, including ids handed out but not used yet (Kafka: no limit)."
    )
    group_max_member_bytes: int = setting(
        1_048_576, "Maximum protocol metadata of a member of a classic group, all protocols together."
    )
    group_max_count: int = setting(
        100_000, "Maximum number of groups; a further one is rejected with POLICY_VIOLATION."
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "A member of a server-side group that is silent for this long is removed."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        2_000,
        "How often members of a server-side group send a heartbeat. Kafka: 5 s; handing over a partition "
        "takes about two intervals, and one machine has few members.",
    )
    group_consumer_regex_max_length: int = setting(
        256, "Maximum length of a topic pattern that the broker evaluates; longer ones are rejected."
    )
    group_share_session_timeout_ms: int = setting(
        45_000, "A member of a queue that is silent for this long is removed."
    )
    group_share_heartbeat_interval_ms: int = setting(
        2_000, "How often members of a queue send a heartbeat (Kafka: 5 s)."
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000, "How long a member of a queue holds a record before it is delivered to another."
    )
    group_share_delivery_count_limit: int = setting(
        5, "A record that a queue delivered this often without success goes to the dead-letter topic."
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "Records of one partition that a queue may have in flight."
    )
    group_share_max_sessions: int = setting(
        2_000, "Maximum sessions of queue members; a further one is rejected."
    )
    group_share_skip_damage: bool = setting(
        False,
        "Start with the readable part of a damaged queue topic. Otherwise queues stay unavailable, because "
        "a lost acknowledgement delivers its record again.",
    )
    offsets_retention_minutes: int = setting(
        10_080, "Committed offsets expire this long after their group became empty (7 days)."
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often expired offsets and empty groups without offsets are removed."
    )
    groups_skip_damage: bool = setting(
        False,
        "Start with the readable part of a damaged group topic. Otherwise groups stay unavailable, because "
        "a lost commit makes consumers read records again or skip them.",
    )
    offset_metadata_max_bytes: int = setting(
        4_096, "Maximum length of the text that a client may store with a committed offset."
    )
    transaction_max_timeout_ms: int = setting(
        900_000, "The longest time-out a producer may request; open transactions are aborted after their own."
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "Transactional ids expire this long after their last transaction (7 days)."
    )
    transactions_skip_damage: bool = setting(
        False,
        "Start with the readable part of a damaged transaction topic. Otherwise transactions stay "
        "unavailable, because a lost decision could undo a commit.",
    )
