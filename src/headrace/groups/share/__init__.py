"""Queues (Kafka's share groups) as pure state machines: who is in one, and what became of each record.

Decisions take the state, the request and the time, and return a `ShareDecision`: the
state from then on, the events to persist and the answer. Promises: a record has at
most one lease at a time; of all acknowledgements of a record one counts; what was given up is
archived only after its dead letter was written; memory follows from the records in flight,
and those are bounded. No I/O.
"""

from headrace.groups.share.acknowledging import Ack, AckType, acknowledge, expire, release, spelled_out, woken
from headrace.groups.share.acquiring import Acquired, Taking, acquire, cut
from headrace.groups.share.burying import begin_burial, finish_burial, given_up, spans_of
from headrace.groups.share.config import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    ShareConfig,
    check_overrides,
    dead_letter_topic,
)
from headrace.groups.share.decision import ShareDecision
from headrace.groups.share.events import (
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareEvent,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareMemberRemoved,
    ShareMemberSaved,
    SharePartitionRemoved,
    SharePartitionSaved,
)
from headrace.groups.share.journal import decode, encode
from headrace.groups.share.membership import (
    ShareGroup,
    ShareHeartbeat,
    ShareMember,
    ShareReply,
    ShareState,
    assignment,
    expire_members,
    heartbeat,
    replay_member,
    rouse,
)
from headrace.groups.share.partition import Burial, GiveUpReason, RecordRun, RecordState, SharePartition, Span
from headrace.groups.share.sessions import FINAL, INITIAL, Sessions, ShareSession

__all__ = [
    "DEAD_LETTER_PREFIX",
    "DEAD_LETTER_TOPIC",
    "FINAL",
    "GROUP_CONFIGS",
    "INITIAL",
    "Ack",
    "AckType",
    "Acquired",
    "Burial",
    "GiveUpReason",
    "RecordRun",
    "RecordState",
    "Sessions",
    "ShareConfig",
    "ShareConfigRemoved",
    "ShareConfigSaved",
    "ShareDecision",
    "ShareEvent",
    "ShareGroup",
    "ShareGroupRemoved",
    "ShareGroupSaved",
    "ShareHeartbeat",
    "ShareMember",
    "ShareMemberRemoved",
    "ShareMemberSaved",
    "SharePartition",
    "SharePartitionRemoved",
    "SharePartitionSaved",
    "ShareReply",
    "ShareSession",
    "ShareState",
    "Span",
    "Taking",
    "acknowledge",
    "acquire",
    "assignment",
    "begin_burial",
    "check_overrides",
    "cut",
    "dead_letter_topic",
    "decode",
    "encode",
    "expire",
    "expire_members",
    "finish_burial",
    "given_up",
    "heartbeat",
    "release",
    "replay_member",
    "rouse",
    "spans_of",
    "spelled_out",
    "woken",
]
